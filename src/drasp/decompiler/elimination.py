"""Backward elimination: take away what is not needed, settle the rest, and keep what still agrees.

The moves that harm least are tried first, half of them at once; where the result no longer agrees with the
model even after its constants have been settled, fewer are tried, and in the end one. A move that fails alone
is put aside; when several that harm have failed in a row, the rest, which harm more, are not tried.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

from drasp.settings import DEFAULT, Settings

State = TypeVar("State")

# An estimate, by the names of moves, of the loss that they cause.
Harm = Callable[[State], dict[Hashable, float]]


@dataclass(frozen=True)
class Move(Generic[State]):
    """A cut that could be made: `apply` takes a state to the one after it, or to None if it has been made."""

    name: Hashable
    apply: Callable[[State], State | None]


@dataclass(frozen=True)
class EliminationJudge(Generic[State]):
    """How a state is judged and mended; all of it on inputs drawn beforehand.

    `stands` says whether what is cut may go at all, whatever the constants; `match` gives the share that agrees, or 0
    where that is below the target; `spare` by how much the state does what the model does by the same means: less than
    0 is not enough. Near a loss of `hopeless`, settling is not tried, nor where nothing `settles`, nor for a target
    that settling hardly ever reaches. Settling is brief first; where that comes near, it goes on for longer. `refused`
    keeps, by `key`, the agreement that a state could not reach.
    """

    stands: Callable[[State], bool]
    loss: Callable[[State], float]
    match: Callable[[State, float], float]
    spare: Callable[[State], float]
    settle: Callable[[State], State]
    settle_longer: Callable[[State], State]
    hopeless: float
    settings: Settings = DEFAULT
    settles: bool = True
    key: Callable[[State], Hashable] = id
    refused: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def mended(self, state: State, target: float) -> tuple[State, float]:
        """The state, settled if it has to be, and its agreement: 0 where the target is not reached."""
        key = self.key(state)
        if self.refused.get(key, math.inf) <= target:
            return state, 0.0
        # Answers that differ are found out soonest; settling, which mends them, takes longer than to see what stands.
        if (not self.settles and self.match(state, target) < target) or not self.stands(state):
            return state, 0.0
        state, agreement = self._mended(state, target)
        if agreement < target:
            self.refused[key] = target
        return state, agreement

    def _mended(self, state: State, target: float) -> tuple[State, float]:
        chosen = self.settings
        agreement, spare = self._seen(state, target)
        if agreement >= target and spare >= 0:
            return state, agreement
        if (
            not self.settles
            or target > chosen.hardly_better
            or spare < -chosen.most_missing
            or self.loss(state) >= chosen.worth_settling * self.hopeless
        ):
            return state, 0.0
        state = self.settle(state)
        agreement, spare = self._seen(state, target - chosen.near)
        if agreement >= target and spare >= 0:
            return state, agreement
        if agreement < target - chosen.near or spare < -chosen.most_missing:
            return state, 0.0
        state = self.settle_longer(state)
        agreement, spare = self._seen(state, target)
        return state, agreement if spare >= 0 else 0.0

    def improved(self, state: State) -> State | None:
        """The state with other constants, where they bring more agreement: that leaves more to lose."""
        before = self.match(state, 0.0)
        if not self.settles or before >= self.settings.hardly_better:
            return None
        settled = self.settle_longer(state)
        if self.match(settled, 0.0) <= before or self.spare(settled) < 0:
            return None
        self.refused.clear()
        return settled

    def _seen(self, state: State, target: float) -> tuple[float, float]:
        """Agreement, and what is to spare: not looked at where the answers differ."""
        agreement = self.match(state, target)
        return agreement, self.spare(state) if agreement >= target else 0.0


def always(_before: object, _after: object) -> bool:
    return True


def eliminate(
    state: State,
    moves: Callable[[State], Sequence[Move[State]]],
    judge: EliminationJudge[State],
    target: Callable[[State, State], float | None],
    accepted: Callable[[State, float], None],
    patience: int,
    harm: Harm[State] | None = None,
    worth: Callable[[State, State], float] | None = None,
    holds: Callable[[State, State], bool] = always,
) -> State:
    """The state without all that can go while agreement stays at `target`; `accepted` hears of every state on the way.

    The target may depend on the state before and the one after; where there is none, that is not wanted. `patience`:
    so many failures in a row end it. `harm` spares looking at every move; `worth` is what a state gains over another:
    the moves that cost least for it go first, and those without are no moves. `holds` has the last word on a state in
    place of another.
    """
    failed: set[Hashable] = set()
    known: dict[Hashable, float] = {}
    failures, settled = 0, False
    most: float = float("inf")  # moves at once, by what the last round could do
    ranked: list[Move[State]] | None = None  # of this very state
    while failures < patience:
        if ranked is None:
            left = [move for move in moves(state) if move.name not in failed]
            if harm:
                ranked = _ranked_by_harm(state, left, judge, harm, known, judge.settings.looked_at)
            else:
                ranked = _ranked(state, left, judge, known, worth)
        if not ranked:
            break
        count = int(min(most, _first_count([known[move.name] for move in ranked], judge.hopeless)))
        while True:
            candidate = _apply_all(state, ranked[:count])
            wanted = target(state, candidate)
            result, agreement = (candidate, 0.0) if wanted is None else judge.mended(candidate, wanted)
            if wanted is not None and agreement >= wanted and holds(state, result):
                state, ranked = result, None
                failures, most, settled = 0, 3 * count, False
                accepted(state, agreement)
                break
            if count == 1 and not settled:
                settled = True
                if (better := judge.improved(state)) is not None:
                    state, ranked, most = better, None, 1
                    break
            if count == 1:
                failed.add(ranked[0].name)
                # What costs no answers and is refused says nothing of those that harm more.
                failures, most = failures + (known[ranked[0].name] > judge.settings.harmless * judge.hopeless), 1
                ranked = ranked[1:]
                break
            count = max(1, count // 3)
    return state


def squeeze(
    state: State,
    moves: Callable[[State], Sequence[Move[State]]],
    judge: EliminationJudge[State],
    harm: Harm[State],
    excess: Callable[[State], int],
    accepted: Callable[[State, float], None],
) -> State:
    """The state without any excess, whatever that does to agreement: what harms least goes, a third at a time.

    Constants are settled only in the end: on the way down it takes long and does not help.
    """
    if excess(state) <= 0:
        return state
    known: dict[Hashable, float] = {}
    while (over := excess(state)) > 0:
        count = max(2, over // 3)
        # Which of those that go come first does not matter.
        looked_at = judge.settings.looked_at if count < judge.settings.looked_at else 0
        ranked = _ranked_by_harm(state, moves(state), judge, harm, known, looked_at)
        if not ranked:
            break
        state = _apply_all(state, ranked[: min(count, 1 + len(ranked) // 2)])
        accepted(state, judge.match(state, 0.0))
    state = judge.settle_longer(state)
    accepted(state, judge.match(state, 0.0))
    return state


def _ranked(
    state: State,
    moves: Sequence[Move[State]],
    judge: EliminationJudge[State],
    known: dict[Hashable, float],
    worth: Callable[[State, State], float] | None,
) -> list[Move[State]]:
    """The moves that still change something, sorted by the loss they lead to, for what they are worth.

    What harmed much in an earlier round is not looked at again before its turn: only the better half is.
    """
    results = {move.name: result for move in moves if (result := move.apply(state)) is not None}
    gains = {name: worth(state, result) if worth else 1.0 for name, result in results.items()}
    there = [move for move in moves if gains.get(move.name, 0.0) > 0]
    there.sort(key=lambda move: known.get(move.name, 0.0))
    for move in there[: max(judge.settings.looked_at, len(there) // 2)]:
        known[move.name] = judge.loss(results[move.name])
    for move in there:
        if move.name not in known:
            known[move.name] = judge.loss(results[move.name])
    if worth is None:
        # What is hopeless alone may still go together with others.
        return sorted(there, key=lambda move: known[move.name])
    # What comes near to hearing nothing is no way on, however many lines it saves.
    there = [move for move in there if known[move.name] < judge.hopeless]
    before = judge.loss(state)

    def price(move: Move[State]) -> float:
        """What it costs, for each unit; of what costs nothing, the one that is worth most."""
        cost, gain = known[move.name] - before, gains[move.name]
        return cost / gain if cost > 0 else cost * gain

    return sorted(there, key=price)


def _ranked_by_harm(
    state: State,
    moves: Sequence[Move[State]],
    judge: EliminationJudge[State],
    harm: Harm[State],
    known: dict[Hashable, float],
    looked_at: int,
) -> list[Move[State]]:
    """The moves sorted by estimated harm, or by the loss when first met; the best few by their loss now."""
    results = {move.name: result for move in moves if (result := move.apply(state)) is not None}
    known.update(harm(state))
    if others := [name for name in results if name not in known]:
        before = judge.loss(state)
        known.update({name: judge.loss(results[name]) - before for name in others})
    there = sorted((move for move in moves if move.name in results), key=lambda move: known[move.name])
    best = sorted(there[:looked_at], key=lambda move: judge.loss(results[move.name]))
    return [*best, *there[looked_at:]]


def _first_count(losses: Sequence[float], hopeless: float) -> int:
    """How many moves are tried at once: half of them, or as many as together may not be hopeless."""
    bearable = sum(total < hopeless for total in accumulate(losses))
    return max(1, min(bearable, len(losses) // 2))


def _apply_all(state: State, moves: Sequence[Move[State]]) -> State:
    for move in moves:
        state = move.apply(state) or state
    return state
