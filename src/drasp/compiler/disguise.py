"""What can be done to a compiled model so that its weights do not show the program at a glance.

Some disguises change nothing at all that the model computes: another basis of the stream (one that keeps the direction
in which all coordinates are the same, since layer norm takes the mean away), gains of the layer norms that what follows
undoes, parts that write in that one direction only, which no one sees. Others change it a little: noise, less room than
the blocks of the stream need, training. And a small pair ±B makes layer norms matter, which is another program.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from drasp.compiler.plan import CompilationPlan
from drasp.errors import DraspError
from drasp.tasks import Task
from drasp.training.layout import lay_out_pairs
from drasp.training.loop import loss_of
from drasp.training.recipe import BATCH, WEIGHT_DECAY
from drasp.transformer import Shape, assemble

NORM_SIZE = 1000.0
"""The pair ±B where nothing else is asked for: layer norms differ by a millionth from one input to another."""
QUIET_NORM = 300.0
"""Below this, norms change logits by more than a thousandth of their range, and belong into the program."""
GAIN_SPREAD = 0.7
"""The deviation of the logarithm of random gains: most are between a half and two."""
LEARNING_RATE = 1e-4
"""What small models are trained with last."""


@dataclass(frozen=True)
class Disguise:
    """What hides a program in a model's weights; by default, nothing.

    `noise` is the deviation of what is added to each weight, as a share of the spread of the weights around it.
    `idle_heads` are heads a layer, `idle_mlps` hidden units a layer, that do nothing; `twin_heads` are heads that come
    twice, each with half the output. `superposition` is the share of the room that the blocks of the stream need.
    """

    rotate: bool = False
    gains: bool = False
    noise: float = 0.0
    idle_heads: int = 0
    idle_mlps: int = 0
    twin_heads: int = 0
    superposition: float = 1.0
    norm_size: float = NORM_SIZE
    training_steps: int = 0
    task: Task | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "idle_heads", "idle_mlps", "twin_heads", "training_steps"):
            if getattr(self, name) < 0:
                raise DraspError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected 0 or more")
        if not 0 < self.superposition <= 1:
            raise DraspError(
                f"--superposition {self.superposition:g}: expected a share of the room, above 0 and up to 1"
            )
        if not 0 < self.norm_size < math.inf:
            raise DraspError(f"--norm-size {self.norm_size:g}: expected a number above 0")
        if self.training_steps and self.task is None:
            raise DraspError(f"--training-steps {self.training_steps}: name the task to train on with --task")

    @property
    def norms_matter(self) -> bool:
        return self.norm_size < QUIET_NORM


PLAIN = Disguise()


def draws(seed: int, purpose: str) -> torch.Generator:
    """A source of random numbers for one disguise, which others do not depend on."""
    return torch.Generator().manual_seed(int(np.random.default_rng([seed, *purpose.encode()]).integers(2**62)))


def with_twins(plan: CompilationPlan, count: int, seed: int) -> CompilationPlan:
    """The plan in which two heads of the model do what one did, for `count` of them."""
    if count > len(plan.heads):
        raise DraspError(f"--twin-heads {count}: expected at most {len(plan.heads)}, the heads of the program")
    chosen = set(torch.randperm(len(plan.heads), generator=draws(seed, "twins"))[:count].tolist())
    used = [sum(head.layer == layer for head in plan.heads) for layer in range(plan.n_layers)]
    heads = list(plan.heads)
    for i in sorted(chosen):
        layer = heads[i].layer
        heads[i] = replace(heads[i], places=(*heads[i].places, used[layer]))
        used[layer] += 1
    return replace(plan, heads=tuple(heads))


def directions(width: int, superposition: float, seed: int) -> Float[Tensor, "width room"]:
    """A direction for each dimension of the stream's blocks: orthogonal, or as nearly so as the room allows.

    With less room they are the shadows of orthogonal ones in a random subspace, which overlap as little as can be in
    the mean square.
    """
    room = math.ceil(superposition * width)
    if room == width:
        return torch.eye(width, dtype=torch.float64)
    shadows = _orthogonal(width, draws(seed, "superposition"))[:, :room]
    return shadows / shadows.norm(dim=1, keepdim=True)


@dataclass(frozen=True)
class Dressed:
    """Weights on their way to another form. `constant` is what the stream holds everywhere."""

    shape: Shape
    weights: Mapping[str, Float[Tensor, "..."]]
    constant: Float[Tensor, " d_model"]

    def mapped(self, new: Mapping[str, Tensor]) -> "Dressed":
        return replace(self, weights={**self.weights, **{f"transformer.{k}": v for k, v in new.items()}})

    def __getitem__(self, name: str) -> Tensor:
        return self.weights[f"transformer.{name}"]

    @property
    def layers(self) -> range:
        return range(self.shape.n_layers)


def dress(plain: Dressed, disguise: Disguise, seed: int) -> Mapping[str, Tensor]:
    """The weights in their disguise: first what adds to them, then what only writes them in another way."""
    made = plain
    if disguise.idle_heads or disguise.idle_mlps:
        made = _with_idle_parts(made, disguise, draws(seed, "idle"))
    if disguise.noise:
        made = _with_noise(made, disguise.noise, draws(seed, "noise"))
    if disguise.rotate:
        made = _rotated(made, draws(seed, "rotate"))
    if disguise.gains:
        made = _with_gains(made, draws(seed, "gains"))
    return made.weights


def _normal(generator: torch.Generator, *size: int) -> Tensor:
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def _with_idle_parts(model: Dressed, disguise: Disguise, generator: torch.Generator) -> Dressed:
    """What the program does not use of heads and MLPs gets random weights, and writes the same to all coordinates."""
    d, heads, hidden = model.shape.d_model, model.shape.n_heads, model.shape.d_hidden
    new: dict[str, Tensor] = {}
    for i in model.layers:
        attention, mlp = f"h.{i}.attn", f"h.{i}.mlp"
        output = model[f"{attention}.c_proj.weight"].view(heads, -1, d)
        idle = (~output.flatten(1).any(1)).repeat_interleave(d // heads)
        random = _normal(generator, d, 3 * d) / math.sqrt(d)
        new[f"{attention}.c_attn.weight"] = torch.where(idle.repeat(3), random, model[f"{attention}.c_attn.weight"])
        blind = _normal(generator, d, 1).expand(d, d) / math.sqrt(d)
        new[f"{attention}.c_proj.weight"] = torch.where(idle[:, None], blind, model[f"{attention}.c_proj.weight"])
        if disguise.idle_mlps:
            idle = ~model[f"{mlp}.c_proj.weight"].any(1)
            random, bias = _normal(generator, d, hidden) / math.sqrt(d), _normal(generator, hidden)
            new[f"{mlp}.c_fc.weight"] = torch.where(idle, random, model[f"{mlp}.c_fc.weight"])
            new[f"{mlp}.c_fc.bias"] = torch.where(idle, bias, model[f"{mlp}.c_fc.bias"])
            blind = _normal(generator, hidden, 1).expand(hidden, d) / math.sqrt(d)
            new[f"{mlp}.c_proj.weight"] = torch.where(idle[:, None], blind, model[f"{mlp}.c_proj.weight"])
    return model.mapped(new)


def _with_noise(model: Dressed, share: float, generator: torch.Generator) -> Dressed:
    """Noise on all weights but those of layer norms, in proportion to the vector of the matrix that a weight is in.

    What reads the stream gets none along its constant, which is large only for the sake of the norms.
    """
    seen = model.constant / model.constant.norm()

    def reading(weight: Float[Tensor, "d_model columns"]) -> Tensor:
        noise = _normal(generator, *weight.shape) * weight.norm(dim=0) / math.sqrt(len(weight))
        return weight + share * (noise - torch.outer(seen, seen @ noise))

    def writing(weight: Float[Tensor, "rows d_model"]) -> Tensor:
        noise = _normal(generator, *weight.shape) / math.sqrt(weight.shape[1])
        return weight + share * noise * weight.norm(dim=1, keepdim=True)

    def embedding(weight: Float[Tensor, "rows d_model"]) -> Tensor:
        spread = (weight - weight.mean(0)).square().mean().sqrt()
        return weight + share * spread * _normal(generator, *weight.shape)

    new = {name: embedding(model[name]) for name in ("wte.weight", "wpe.weight")}
    for i in model.layers:
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            name = f"h.{i}.{name}"
            weight = model[f"{name}.weight"]
            new[f"{name}.weight"] = writing(weight) if name.endswith("c_proj") else reading(weight)
            bias = model[f"{name}.bias"]
            new[f"{name}.bias"] = bias * (1 + share * _normal(generator, *bias.shape))
    made = model.mapped(new)
    return replace(made, weights={**made.weights, "lm_head.weight": reading(model.weights["lm_head.weight"].T).T})


def _orthogonal(size: int, generator: torch.Generator) -> Float[Tensor, "size size"]:
    """A random orthogonal matrix, uniformly distributed."""
    q, r = torch.linalg.qr(_normal(generator, size, size))
    return q * r.diagonal().sign()


def _rotation(size: int, generator: torch.Generator) -> Float[Tensor, "size size"]:
    """A random orthogonal matrix that leaves the vector of ones as it is, and so commutes with layer norm."""
    first = torch.full((size, 1), 1 / math.sqrt(size), dtype=torch.float64)
    basis = torch.linalg.qr(torch.cat([first, _normal(generator, size, size - 1)], 1)).Q
    inner = torch.eye(size, dtype=torch.float64)
    inner[1:, 1:] = _orthogonal(size - 1, generator)
    return basis @ inner @ basis.T


def _rotated(model: Dressed, generator: torch.Generator) -> Dressed:
    """Another basis of the stream and, in each head, of queries and keys and of values; units in another order."""
    d, heads, hidden = model.shape.d_model, model.shape.n_heads, model.shape.d_hidden
    turn = _rotation(d, generator)
    new = {name: model[name] @ turn for name in ("wte.weight", "wpe.weight", "ln_f.bias")}
    for i in model.layers:
        attention, mlp = f"h.{i}.attn", f"h.{i}.mlp"
        # One turn for queries and keys, whose products stay as they are, and one for values, undone by the output.
        scores, values = (torch.stack([_orthogonal(d // heads, generator) for _ in range(heads)]) for _ in range(2))
        inner = torch.stack([scores, scores, values])
        qkv = (turn.T @ model[f"{attention}.c_attn.weight"]).view(d, 3, heads, -1)
        new[f"{attention}.c_attn.weight"] = torch.einsum("dshi,shij->dshj", qkv, inner).reshape(d, -1)
        bias = model[f"{attention}.c_attn.bias"].view(3, heads, -1)
        new[f"{attention}.c_attn.bias"] = torch.einsum("shi,shij->shj", bias, inner).reshape(-1)
        output = (model[f"{attention}.c_proj.weight"] @ turn).view(heads, -1, d)
        new[f"{attention}.c_proj.weight"] = (values.mT @ output).reshape(-1, d)
        new[f"{attention}.c_proj.bias"] = model[f"{attention}.c_proj.bias"] @ turn
        order = torch.randperm(hidden, generator=generator)
        new[f"{mlp}.c_fc.weight"] = turn.T @ model[f"{mlp}.c_fc.weight"][:, order]
        new[f"{mlp}.c_fc.bias"] = model[f"{mlp}.c_fc.bias"][order]
        new[f"{mlp}.c_proj.weight"] = model[f"{mlp}.c_proj.weight"][order] @ turn
        new[f"{mlp}.c_proj.bias"] = model[f"{mlp}.c_proj.bias"] @ turn
    made = model.mapped(new)
    unembedding = model.weights["lm_head.weight"] @ turn
    return Dressed(model.shape, {**made.weights, "lm_head.weight": unembedding}, model.constant @ turn)


def _with_gains(model: Dressed, generator: torch.Generator) -> Dressed:
    """Random gains and biases of the layer norms, undone by what reads them."""
    d, new = model.shape.d_model, dict[str, Tensor]()
    for i in model.layers:
        for norm, reader in (("ln_1", "attn.c_attn"), ("ln_2", "mlp.c_fc")):
            gain, shift = (GAIN_SPREAD * _normal(generator, d)).exp(), _normal(generator, d)
            weight = model[f"h.{i}.{reader}.weight"] / gain[:, None]
            new |= {f"h.{i}.{norm}.weight": gain, f"h.{i}.{norm}.bias": shift, f"h.{i}.{reader}.weight": weight}
            new[f"h.{i}.{reader}.bias"] = model[f"h.{i}.{reader}.bias"] - shift @ weight
    gain = (GAIN_SPREAD * _normal(generator, d)).exp()
    new |= {"ln_f.weight": gain, "ln_f.bias": model["ln_f.bias"] * gain}
    made = model.mapped(new)
    return replace(made, weights={**made.weights, "lm_head.weight": model.weights["lm_head.weight"] / gain})


@torch.enable_grad()
def trained(shape: Shape, weights: Mapping[str, Tensor], task: Task, steps: int, seed: int) -> dict[str, Tensor]:
    """The weights after some steps of training on a task, at its shorter lengths, as `drasp train` has them."""
    own = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
    model = assemble(shape, own)
    optimiser = torch.optim.AdamW(own.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    inputs = task.pool(BATCH * steps, np.random.default_rng(seed), *task.training_bins[0])
    for batch in lay_out_pairs(inputs, BATCH):
        optimiser.zero_grad()
        loss_of(model, batch, task.output).backward()
        optimiser.step()
    return {name: weight.detach() for name, weight in own.items()}
