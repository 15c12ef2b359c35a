"""A Hugging Face GPT-2 with edits, spelt out: the reference for the forward pass.

Every receiver of every head reads its own sum, and what it reads goes through the model's own modules; nothing is
shared, fused or left out.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from drasp.edits import Edit, Replaced, Scaled, Shifted, edited
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    POSITION,
    TOKEN,
    Component,
    ConstantNorm,
    Edge,
    NormSite,
    Path,
    Pattern,
    Product,
    Read,
    Receiver,
    Site,
    last_of,
    through,
)
from typed import blocks_of, known


class HookedModel:
    def __init__(self, model: GPT2LMHeadModel, edits: Mapping[Site, Edit]) -> None:
        self.model, self.edits = model, edits
        self.values: dict[Site, Tensor] = {}

    def edited(self, site: Site, value: Tensor) -> Tensor:
        self.values[site] = edited(value, self.edits.get(site)).expand(value.shape)
        return self.values[site]

    @torch.no_grad()
    def logits(self, ids: Tensor, positions: Tensor) -> Tensor:
        body, config = self.model.transformer, self.model.config
        self.sent = {TOKEN: body.wte(ids), POSITION: body.wpe(positions)}
        self.sent = {component: self.edited(component, value) for component, value in self.sent.items()}
        self.biases = torch.zeros(config.n_embd, dtype=torch.float64)
        self.roots: dict[Receiver, Tensor] = {}
        self.patterns: dict[Component, Tensor] = {}
        self.fixed: dict[Component, Tensor] = {}
        for number, block in enumerate(blocks_of(self.model)):
            heads = [Component("head", number, h) for h in range(config.n_head)]
            outputs = {head: self.head(head, block) for head in heads}
            if any(isinstance(site, ConstantNorm) for site in self.edits):
                self.fixed |= {head: self.fixed_by(head, block) for head in heads}
            self.sent |= {head: self.edited(head, value) for head, value in outputs.items()}
            self.biases = self.biases + block.attn.c_proj.bias
            mlp = Component("mlp", number)
            self.sent[mlp] = self.edited(mlp, block.mlp(self.normed(Receiver(number, "mlp"), block.ln_2)))
        return self.model.lm_head(self.normed(OUT, body.ln_f))

    def normed(self, receiver: Receiver, norm: torch.nn.LayerNorm) -> Tensor:
        x = sum((self.edited(Edge(s, receiver), value) for s, value in self.sent.items()), self.biases)
        for edge in self.edits:
            if isinstance(edge, Edge) and edge.receiver == receiver and isinstance(edge.sender, Path):
                value = self.along(edge.sender)
                x = x + self.edited(edge, value) - value
        x = self.edited(receiver, x)
        root = (x.var(-1, correction=0) + norm.eps).sqrt()
        if receiver.kind in ("query", "key", "value") and NormSite(receiver) not in self.edits:
            root = self.edited(NormSite(Receiver(receiver.layer, "attention")), root)
        self.roots[receiver] = self.edited(NormSite(receiver), root)[..., None]
        for site in self.edits:
            if isinstance(site, Read) and site.receiver == receiver:
                value = self.along(site.sender) if isinstance(site.sender, Path) else self.sent[site.sender]
                x = x + self.edited(site, value) - value
        centred = x - x.mean(-1, keepdim=True)
        edit = self.edits.get(ConstantNorm(receiver))
        if edit is None:
            return centred / self.roots[receiver] * norm.weight + norm.bias
        constant = self.constant(receiver) - self.constant(receiver).mean()
        return ((centred - constant) / self.roots[receiver] + constant / edit.by) * norm.weight + norm.bias

    def constant(self, receiver: Receiver) -> Tensor:
        """What no input changes of that which a receiver reads."""
        heard = [v for head, v in self.fixed.items() if not self.is_replaced(Edge(head, receiver))]
        shift = self.edits.get(receiver)
        return sum(heard, self.biases) + (shift.by if isinstance(shift, Shifted) else 0)

    def fixed_by(self, head: Component, block: GPT2Block) -> Tensor:
        """What a head makes of its biases, and of constants that are divided by a number."""
        receiver = head.receivers[2]
        sites = (NormSite(receiver), NormSite(Receiver(receiver.layer, "attention")), ConstantNorm(receiver))
        by = next((self.edits[site].by for site in sites if site in self.edits), None)
        constant = self.constant(receiver) - self.constant(receiver).mean()
        behind_norm = block.ln_1.bias + (0 if by is None else constant / by * block.ln_1.weight)
        width = self.model.config.n_embd // self.model.config.n_head
        value = block.attn.c_attn(behind_norm)[self.columns(receiver)]
        return value @ block.attn.c_proj.weight[head.head * width : (head.head + 1) * width]

    def head(self, head: Component, block: GPT2Block) -> Tensor:
        width = self.model.config.n_embd // self.model.config.n_head
        q, k, v = (
            block.attn.c_attn(self.normed(receiver, block.ln_1))[..., self.columns(receiver)]
            for receiver in head.receivers
        )
        scores = q @ k.mT * self.scale(block)
        for product in self.edits:
            if isinstance(product, Product) and product.head == head:
                part = self.product(product, block, q, k)
                scores = scores + self.edited(product, part) - part
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        self.patterns[head] = self.edited(Pattern(head), scores.masked_fill(future, -torch.inf).softmax(-1))
        return self.patterns[head] @ v @ block.attn.c_proj.weight[head.head * width : (head.head + 1) * width]

    def scale(self, block: GPT2Block) -> float:
        config = self.model.config
        by_head = (config.n_embd // config.n_head) ** -0.5 if config.scale_attn_weights else 1.0
        return by_head / (known(block.attn.layer_idx) + 1) if config.scale_attn_by_inverse_layer_idx else by_head

    def columns(self, receiver: Receiver) -> slice:
        width = self.model.config.n_embd // self.model.config.n_head
        start = ("query", "key", "value").index(receiver.kind) * self.model.config.n_embd + receiver.head * width
        return slice(start, start + width)

    def part(self, value: Tensor, receiver: Receiver) -> Tensor:
        block = blocks_of(self.model)[receiver.layer]
        normed = (value - value.mean(-1, keepdim=True)) / self.roots[receiver] * block.ln_1.weight
        return normed @ block.attn.c_attn.weight[:, self.columns(receiver)]

    def along(self, path: Path) -> Tensor:
        value, before = self.sent[path.origin], path.origin
        for head in path.heads:
            match self.edits.get(Edge(before, head.receivers[2])):
                case Replaced():
                    value = 0 * value
                case Scaled(by):
                    value = edited(value, Scaled(by))
                case _:
                    pass
            block, width = blocks_of(self.model)[head.layer], self.model.config.n_embd // self.model.config.n_head
            weight = block.attn.c_proj.weight[head.head * width : (head.head + 1) * width]
            value, before = self.patterns[head] @ self.part(value, head.receivers[2]) @ weight, head
        return value

    def product(self, product: Product, block: GPT2Block, q: Tensor, k: Tensor) -> Tensor:
        query, key, _ = product.head.receivers
        return self.side(product.query, query, q) @ self.side(product.key, key, k).mT * self.scale(block)

    def side(self, sender: Component | Path, receiver: Receiver, whole: Tensor) -> Tensor:
        if sender == NO_COMPONENT:
            return whole - sum(self.heard(way, receiver) for way in self.ways(receiver))
        return self.part(self.along(sender) if isinstance(sender, Path) else self.sent[sender], receiver)

    def ways(self, receiver: Receiver) -> list[Component | Path]:
        """How embeddings and MLPs reach a receiver, by edges that are not replaced."""
        found: list[Component | Path] = []
        for sender in self.sent:
            if sender.layer < receiver.layer and not self.is_replaced(Edge(sender, receiver)):
                value = Receiver(sender.layer, "value", sender.head)
                found += [through(way, sender) for way in self.ways(value)] if sender.kind == "head" else [sender]
        return [way for way in found if not any(map(self.is_replaced, (Edge(way, receiver), Read(way, receiver))))]

    def is_replaced(self, site: Edge | Read) -> bool:
        return isinstance(self.edits.get(site), Replaced)

    def heard(self, way: Component | Path, receiver: Receiver) -> Tensor:
        value = self.along(way) if isinstance(way, Path) else self.sent[way]
        edit = self.edits.get(Edge(last_of(way), receiver))
        return self.part(edited(value, Scaled(edit.by)) if isinstance(edit, Scaled) else value, receiver)
