"""Runs a circuit, with a mask for every gate in every row: what the paper's pruning trains.

Each input is run under several masks at once; what no mask has changed yet (embeddings, as a rule) is computed once for
all of them. A value is [inputs, masks or 1, positions, d_model]. As in `forward.py`, what is read only where answers
count is computed only there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.attention import causal_weights
from drasp.decompiler.ugs.circuit import Circuit, before, norm_of
from drasp.fitting.means import means_over
from drasp.fitting.oracle import Answering, Oracle
from drasp.sequences import Sequences
from drasp.sites import NO_COMPONENT, OUT, POSITION, TOKEN, Component, Edge, Path, Product, Receiver, Sender

Values = Float[Tensor, "#inputs #masks #places d_model"]


@dataclass(frozen=True, eq=False)
class Masks:
    """How far every gate of a circuit is open, in each row, and the constants that closed edges leave.

    Constants learn only where nothing is kept, and what is learnt of a term of a key alone only where it is whole.
    """

    kept: Float[Tensor, "inputs masks gates"]
    senders: Mapping[Sender, int]
    ablations: Float[Tensor, "senders d_model"]


def _as_it_is(x: Tensor) -> Tensor:
    return x


class CircuitRun:
    """One evaluation of a circuit on some inputs; values are computed when they are asked for."""

    def __init__(self, circuit: Circuit, inputs: Sequences, masks: Masks | None = None) -> None:
        self.circuit, self.model, self.inputs, self.masks = circuit, circuit.model, inputs, masks
        self.columns = {gate: i for i, gate in enumerate(circuit.gates)} if masks else {}
        self.values: dict[tuple[Sender, bool], Values] = {}
        self.patterns: dict[Component, Tensor] = {}

    def logits(self) -> Float[Tensor, "#inputs #masks wanted n_vocab"]:
        logits = self.normed(OUT, self.read(OUT, self.inputs.where is not None)) @ self.model.unembedding.T
        return logits if self.model.unembedding_bias is None else logits + self.model.unembedding_bias

    # ---------------------------------------------------------------------------------- senders

    def value(self, sender: Sender, narrow: bool = False) -> Values:
        """What comes on a way, everywhere or at the wanted positions."""
        if (sender, narrow) not in self.values:
            if narrow and not self.is_narrow(sender):
                self.values[sender, True] = self.at_wanted(self.value(sender))
            else:
                self.values[sender, narrow] = self.computed(sender)
        return self.values[sender, narrow]

    def is_narrow(self, sender: Sender) -> bool:
        """Whether a sender is computed at the wanted positions only: what the last layer says nobody looks at."""
        if self.inputs.where is None:
            return False
        steps = sender.heads if isinstance(sender, Path) else (sender,)
        return any(step.layer + 1 == len(self.model.layers) for step in steps)

    def at_wanted(self, x: Values) -> Float[Tensor, "#inputs #masks #wanted d_model"]:
        where = self.inputs.where
        assert where is not None
        return x if x.shape[2] == 1 else x.take_along_dim(where[:, None, :, None], 2)

    def computed(self, sender: Sender) -> Values:
        match sender:
            case Path():
                return self.along(sender)
            case Component() if sender == TOKEN:
                return self.model.token_embedding[self.inputs.ids][:, None]
            case Component() if sender == POSITION:
                return self.model.position_embedding[self.inputs.positions][:, None]
            case Component(kind="mlp", layer=layer):
                mlp, [receiver] = self.model.layers[layer].mlp, sender.receivers
                assert mlp is not None
                return mlp(self.normed(receiver, self.read(receiver, self.is_narrow(sender))))
            case head:
                return self.mixed(head, self.side(head, 2))

    def along(self, way: Path) -> Values:
        """What the last step of a way makes of what comes on the rest of it; constants are not on ways."""
        step, rest = way.heads[-1], before(way)
        if step.kind == "mlp":
            receiver = step.receivers[0]
            x = norm_of(self.model, receiver).centred(self.value(rest, self.is_narrow(way)))
            return self.circuit.mlps[way](x / self.circuit.root(receiver))
        attention = self.model.layers[step.layer].attention
        said = self.circuit.scaled(step.receivers[2], self.value(rest)) @ attention.side(2)[:, step.head]
        return self.mixed(step, said)

    def mixed(self, head: Component, said: Tensor) -> Values:
        """What a head makes of its values; of one that is the same everywhere, itself."""
        output = self.model.layers[head.layer].attention.output_of(head.head)
        return (self.pattern(head) @ said if said.shape[2] > 1 else said) @ output

    # -------------------------------------------------------------------------------- receivers

    def read(self, receiver: Receiver, narrow: bool = False, through: Callable[[Tensor], Tensor] = _as_it_is) -> Tensor:
        """The sum of what a receiver hears, as far as gates let it through, and of its constants.

        Each part goes through a linear map: where masks share what they hear, that is done once for all of them.
        """
        senders, bias = self.circuit.hears(receiver), through(self.circuit.bias(receiver)[None, None, None])
        if not senders:
            return bias
        values = [through(self.value(sender, narrow)) for sender in senders]
        if self.masks is None or Edge(senders[0], receiver) not in self.columns:
            return sum(values, bias)
        kept = self.masks.kept[..., [self.columns[Edge(sender, receiver)] for sender in senders]]
        ablations = self.masks.ablations[[self.masks.senders[sender] for sender in senders]]
        gone = (kept == 0).to(kept.dtype)
        x = (gone @ through(ablations) + (1 - kept - gone) @ through(ablations.detach()))[:, :, None] + bias
        for shared in (True, False):
            chosen = [i for i, value in enumerate(values) if (value.shape[1] == 1) == shared]
            if chosen:
                x = x + _mixed(kept[..., chosen], [values[i] for i in chosen])
        return x

    def root(self, receiver: Receiver, x: Values) -> Tensor:
        if self.circuit.log_variances is None:
            return norm_of(self.model, receiver).root(x)[..., None]
        return self.circuit.root(receiver)

    def normed(self, receiver: Receiver, x: Values) -> Values:
        norm = norm_of(self.model, receiver)
        return norm.gain * norm.centred(x) / self.root(receiver, x) + norm.bias

    # -------------------------------------------------------------------------------- attention

    def pattern(self, head: Component) -> Float[Tensor, "#inputs #masks query key"]:
        if head not in self.patterns:
            narrow = self.is_narrow(head)
            bias, scores = self.inputs.bias(narrow)[:, None], self.scores(head, narrow)
            # What hears no key scores all of them alike.
            self.patterns[head] = causal_weights(scores.expand(*scores.shape[:-1], bias.shape[-1]), bias)
        return self.patterns[head]

    def scores(self, head: Component, narrow: bool) -> Float[Tensor, "#inputs #masks #query #key"]:
        if self.circuit.level == "products":
            return self.sum_of_products(head, narrow)
        scale = self.model.layers[head.layer].attention.scale
        return (scale * self.side(head, 0, narrow)) @ self.side(head, 1).mT

    def side(self, head: Component, index: int, narrow: bool = False) -> Float[Tensor, "#inputs #masks #places d_head"]:
        """A head's queries (0), keys (1) or values (2)."""
        attention, receiver = self.model.layers[head.layer].attention, head.receivers[index]
        weight, bias = attention.side(index)[:, head.head], attention.side_bias(index)[head.head]
        if self.circuit.log_variances is None:
            return self.normed(receiver, self.read(receiver, narrow)) @ weight + bias
        heard = self.read(receiver, narrow, lambda x: self.circuit.scaled(receiver, x) @ weight)
        return heard + (norm_of(self.model, receiver).bias @ weight + bias)

    def sum_of_products(self, head: Component, narrow: bool) -> Float[Tensor, "#inputs #masks #query #key"]:
        """Products side by side are one matrix product; a term of a key alone adds the same for all queries."""
        attention, (query, key, _) = self.model.layers[head.layer].attention, head.receivers
        scores = self.circuit.biases.new_zeros(1, 1, 1, 1)
        rows: list[Tensor] = []
        columns: list[Tensor] = []
        for each in self.circuit.products_of(head):
            kept = self.kept(each)
            keys = self.circuit.scaled(key, self.value(each.key)) @ attention.side(1)[:, head.head]
            if each.query == NO_COMPONENT:
                alone = self.circuit.queries[each]
                alone = torch.where(kept == 1, alone, alone.detach())
                scores = scores + attention.scale * kept * (keys * alone).sum(-1)[:, :, None]
                continue
            queries = self.circuit.scaled(query, self.value(each.query, narrow)) @ attention.side(0)[:, head.head]
            rows.append(kept * attention.scale * queries)
            columns.append(keys)
        if rows:
            masks = max(part.shape[1] for part in (*rows, *columns))
            q, k = (torch.cat([part.expand(-1, masks, -1, -1) for part in side], -1) for side in (rows, columns))
            scores = scores + q @ k.mT
        return scores

    def kept(self, product: Product) -> Tensor:
        if self.masks is None or product not in self.columns:
            return self.circuit.biases.new_ones(1, 1, 1, 1)
        return self.masks.kept[..., self.columns[product], None, None]


def _mixed(kept: Float[Tensor, "inputs masks senders"], values: Sequence[Values]) -> Values:
    """Σ kept · value, for values that all have masks of their own, or none of them."""
    stacked = torch.stack(torch.broadcast_tensors(*values), -3)  # [inputs, masks or 1, senders, places, d_model]
    shape = stacked.shape
    flat = stacked.flatten(-2)
    mixed = kept @ flat[:, 0] if shape[1] == 1 else (kept[:, :, None] @ flat)[:, :, 0]
    return mixed.unflatten(-1, shape[-2:])


def answers_of(circuit: Circuit) -> Answering:
    """The circuit's logits at the positions that count."""
    return lambda batch: CircuitRun(circuit, batch.sequences).logits()[:, 0].expand(*batch.where.shape, -1)


@torch.no_grad()
def means_of(circuit: Circuit, senders: Sequence[Sender], oracle: Oracle) -> dict[Sender, Float[Tensor, " d_model"]]:
    """What comes on ways on average, over all positions of some inputs."""
    runs = (CircuitRun(circuit, batch.sequences.everywhere) for batch in oracle.batches)
    values = ({sender: run.value(sender)[:, 0] for sender in senders} for run in runs)
    return means_over(zip(values, (batch.real for batch in oracle.batches), strict=True))


@torch.no_grad()
def mean_log_variances(circuit: Circuit, oracle: Oracle) -> Float[Tensor, " receivers"]:
    """The logarithm of what each norm of the whole model divides by, squared, on average."""
    receivers = circuit.model.anatomy.receivers
    totals, count = torch.zeros(len(receivers)), 0
    for batch in oracle.batches:
        run, real = CircuitRun(circuit, batch.sequences.everywhere), batch.real
        count += int(real.sum())
        for i, receiver in enumerate(receivers):
            roots = run.root(receiver, run.read(receiver))[:, 0, :, 0]
            totals[i] += roots.expand(real.shape)[real].square().sum()
    return (totals / count).log()
