"""Minimising a smooth loss without noise: L-BFGS on a handful of tensors.

`torch.optim.LBFGS` does the same, but its first use imports the compiler, which takes longer than a small model's
whole decompilation.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program

_MEMORY = 10  # steps whose curvature is remembered
_ENOUGH = 1e-4  # of the decrease that the slope promises
_HALVINGS = 6
_STALLED = 0.01  # of the loss: where so many of the last steps together gave no more, the rest would not either
_STEPS_STALLED = 3

Flat = Float[Tensor, " parameters"]


def minimise(loss: Callable[[list[Tensor]], Tensor], start: Sequence[Tensor], steps: int) -> list[Tensor]:
    """The tensors after at most `steps` steps of L-BFGS from `start`; never with a greater loss."""

    def value_and_slope(at: Flat) -> tuple[float, Callable[[], Flat]]:
        """The loss, and what finds its slope: that takes as long, and is wanted only where a step goes on from."""
        parameters = [tensor.requires_grad_() for tensor in _unpacked(at, start)]
        with torch.enable_grad():
            value = loss(parameters)

        def slope() -> Flat:
            if not value.requires_grad:  # behind a comparison or a hardened choice nothing has a slope
                return torch.zeros_like(at)
            slopes = torch.autograd.grad(value, parameters, allow_unused=True)
            pairs = zip(slopes, parameters, strict=True)
            return torch.cat([(torch.zeros_like(p) if slope is None else slope).flatten() for slope, p in pairs])

        return float(value.detach()), slope

    x = torch.cat([tensor.detach().flatten() for tensor in start])
    value, slope_there = value_and_slope(x)
    slope, step = torch.zeros_like(x), None
    history: list[tuple[Flat, Flat]] = []
    values = [value]
    for _ in range(steps):
        before, slope = slope, slope_there()
        del slope_there  # and all that it keeps of the run
        if step is not None and float(step @ (change := slope - before)) > 1e-10 * float(change @ change):
            history = [*history, (step, change)][-_MEMORY:]
        direction = -_times_inverse_curvature(slope, history)
        promised = float(direction @ slope)
        if not promised < -1e-14:
            break
        # Without a memory the slope says nothing of how far to go.
        size = 1.0 if history else min(1.0, 1 / float(slope.abs().sum()))
        for _ in range(_HALVINGS):
            new = x + size * direction
            new_value, slope_there = value_and_slope(new)
            if new_value <= value + _ENOUGH * size * promised:
                break
            del slope_there
            size /= 4 if new_value < float("inf") else 16
        else:
            break
        step, x, value = new - x, new, new_value
        values.append(value)
        if len(values) > _STEPS_STALLED and value > (1 - _STALLED) * values[-1 - _STEPS_STALLED]:
            break
    return _unpacked(x, start)


def _unpacked(flat: Flat, like: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape).clone() for part, tensor in zip(parts, like, strict=True)]


def _times_inverse_curvature(slope: Flat, history: Sequence[tuple[Flat, Flat]]) -> Flat:
    """The slope times an estimate of the inverse Hessian from the last steps (the two-loop recursion)."""
    result = slope.clone()
    weights: list[Tensor] = []
    for step, change in reversed(history):
        weights.append((step @ result) / (step @ change))
        result -= weights[-1] * change
    if history:
        step, change = history[-1]
        result *= (step @ change) / (change @ change)
    for (step, change), weight in zip(history, reversed(weights), strict=True):
        result += (weight - (change @ result) / (step @ change)) * step
    return result


def fit_tensors(program: Program, names: Sequence[str], oracle: Oracle, steps: int) -> Program:
    """The program with these tensors, its constants, settled on the model's answers to the oracle's inputs."""

    def tuned(values: Sequence[Tensor]) -> Program:
        return program.with_tensors(dict(zip(names, values, strict=True)))

    def loss(values: Sequence[Tensor]) -> Tensor:
        run = answering(tuned(values))
        return torch.cat([oracle.loss(batch, run(batch)) for batch in oracle.batches]).mean()

    return tuned(minimise(loss, [program.tensors[name] for name in names], steps)) if names else program
