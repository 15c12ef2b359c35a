"""Backward elimination: take away what is not needed, settle the rest, and keep what still agrees.

The moves that harm least are tried first, half of them at once; where the result no longer agrees with the
model even after its constants have been settled, fewer are tried, and in the end one. A move that fails alone
is put aside; when several have failed in a row, the rest, which harm more, are not tried.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")

PATIENCE = 5  # failures in a row that end a pass
NEAR = 0.2  # from so far below the target, settling may still reach it


@dataclass(frozen=True)
class Move(Generic[State]):
    """One thing that could go; `apply` gives None where it has gone already."""

    name: Hashable
    apply: Callable[[State], State | None]


@dataclass(frozen=True)
class Judge(Generic[State]):
    """How a state is judged and mended; all of it on inputs drawn beforehand.

    `match` gives the share that agrees, or 0 where that is below the target; from a loss of `hopeless` on,
    settling is not tried. Settling is brief first; where that brings the target near, it goes on for longer.
    """

    loss: Callable[[State], float]
    match: Callable[[State, float], float]
    settle: Callable[[State], State]
    settle_longer: Callable[[State], State]
    hopeless: float

    def mended(self, state: State, target: float) -> tuple[State, float]:
        """The state, settled if it has to be, and its agreement: 0 where the target is not reached."""
        if (agreement := self.match(state, target)) >= target:
            return state, agreement
        if self.loss(state) >= self.hopeless:
            return state, 0.0
        state = self.settle(state)
        agreement = self.match(state, target - NEAR)
        if agreement >= target or agreement < target - NEAR:
            return state, agreement if agreement >= target else 0.0
        state = self.settle_longer(state)
        return state, self.match(state, target)


def eliminate(
    state: State,
    moves: Callable[[State], Sequence[Move[State]]],
    judge: Judge[State],
    target: float,
    accepted: Callable[[State, float], None],
) -> State:
    """As much as can go while agreement stays at `target`; `accepted` hears of every state on the way."""
    failed: set[Hashable] = set()
    failures = 0
    while failures < PATIENCE:
        found = [(move, move.apply(state)) for move in moves(state) if move.name not in failed]
        losses = {move.name: judge.loss(result) for move, result in found if result is not None}
        if not losses:
            break
        ranked = sorted((move for move, _ in found if move.name in losses), key=lambda move: losses[move.name])
        count = max(1, len(ranked) // 2)
        while True:
            result, agreement = judge.mended(_apply_all(state, ranked[:count]), target)
            if agreement >= target:
                state = result
                failures = 0
                accepted(state, agreement)
                break
            if count == 1:
                failed.add(ranked[0].name)
                failures += 1
                break
            count = max(1, count // 3)
    return state


def _apply_all(state: State, moves: Sequence[Move[State]]) -> State:
    for move in moves:
        state = move.apply(state) or state
    return state


def minimise(loss: Callable[[list[Tensor]], Tensor], start: Sequence[Tensor], steps: int) -> list[Tensor]:
    """L-BFGS from `start` on a loss without noise; gives the start back where it does not get better."""
    parameters = [tensor.detach().clone().requires_grad_() for tensor in start]
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=steps, history_size=10, line_search_fn="strong_wolfe", tolerance_change=1e-7
    )
    losses: list[float] = []

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(parameters)
        value.backward()
        losses.append(float(value.detach()))
        return value

    optimiser.step(closure)
    with torch.no_grad():
        better = bool(torch.isfinite(final := loss(parameters)) and float(final) <= losses[0])
    return [tensor.detach() for tensor in (parameters if better else start)]
