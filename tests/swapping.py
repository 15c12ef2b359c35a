"""Lines from another input, by hooks and by the definition of D-RASP."""

import numpy as np
import torch

import naive
from causal_models import ANSWERS, lively_gpt2
from drasp.decompiler.components import Components
from drasp.edits import Replaced, Scaled
from drasp.fitting.oracle import Oracle
from drasp.language.syntax import ElementWise
from drasp.model_files import load_model
from drasp.naming.splitting import split
from drasp.rewriting.simplify import simplify
from drasp.sites import Edge, NormSite, Path, Product, Receiver
from drasp.wiring import write_program
from hooked_model import HookedModel
from typed import blocks_of


def hooked_swap(model, pairs, swap) -> torch.Tensor:
    """The model with hooks: what the source's run says at the sites of a swap, put into the base's."""

    def values(sites, side, edits=None):
        hooked = HookedModel(model, {**(edits or {}), **{s: Scaled(1.0) for s in sites}})
        hooked.logits(side.ids, side.positions)
        return hooked

    def of_site(hooked, site):
        match site:
            case Edge(Path() as path):
                return hooked.along(path)
            case NormSite(Receiver(layer, "attention")):
                return hooked.values[NormSite(Receiver(layer, "query"))]
            case Product():
                block = blocks_of(model)[site.head.layer]
                read = [hooked.values[r] for r in site.head.receivers[:2]]
                sides = []
                for receiver, x in zip(site.head.receivers[:2], read, strict=True):
                    normed = (x - x.mean(-1, keepdim=True)) / hooked.roots[receiver] * block.ln_1.weight
                    sides.append(block.attn.c_attn(normed + block.ln_1.bias)[..., hooked.columns(receiver)])
                return hooked.product(site, block, *sides)
            case _:
                return hooked.values[site]

    source = values(swap.sites, pairs.source)
    edits = {site: Replaced(of_site(source, site)) for site in swap.sites}
    for through in swap.through:
        [receiver] = through.mlp.receivers
        inner = [Edge(sender, receiver) for sender in through.inputs]
        whole = values(inner, pairs.source)
        mixed = values([], pairs.base, {edge: Replaced(of_site(whole, edge)) for edge in inner})
        edits |= {Edge(through.mlp, r): Replaced(mixed.values[through.mlp]) for r in through.receivers}
    logits = HookedModel(model, edits).logits(pairs.base.ids, pairs.base.positions)
    return pairs.at_counted(logits)


def naive_swap(program, pairs, row: int, lines) -> np.ndarray:
    """A program's logits on one base, with lines as they are on its source, by the definition."""
    size = int(pairs.sizes[row])
    base, source = ((side.ids[row, :size].tolist(), int(side.positions[row, 0])) for side in (pairs.base, pairs.source))
    theirs = naive.run(program, *source)
    edits = {line: naive.NaiveEdit(0.0, theirs[line]) for line in lines}
    return naive.run(program, *base, edits)["logits"]


def split_program(seed: int):
    """A program with an MLP of several variables, and the same with the MLP split."""
    transformer = load_model(lively_gpt2(seed, 1, 1).float())  # the passes' precision
    components = Components(transformer)
    graph = components.whole()
    graph = type(graph)(graph.anatomy, graph.kept, graph.constants, dict.fromkeys(graph.live_receivers(), 1.7))
    program = simplify(write_program(transformer, graph.edits, ANSWERS.vocabulary, ANSWERS.output))
    oracle = Oracle.draw(transformer, ANSWERS, 20, np.random.default_rng(0), batch_size=10)
    [mlp] = [s for s in program.statements if isinstance(s, ElementWise)]
    parts = split(program, mlp.name, oracle)
    assert parts is not None
    return transformer, program, simplify(parts), mlp
