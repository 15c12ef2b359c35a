"""Programs that are intervened on: every edit of every variable against the definition, loop by loop."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import naive
from drasp.edits import CUT, Edit, Replaced, Scaled, Shifted
from drasp.errors import DraspError
from drasp.language import Interpreter, parse
from drasp.language.interpreter import _Evaluation
from drasp.sequences import Sequences
from effort import examples
from random_programs import random_program, randoms

BATCH = 3


def names_of(program) -> list[str]:
    """Everything that can be edited."""
    patterns = [f"{s.name} pattern" for s in program.statements if s.kind == "aggregate"]
    return ["token", "pos", "one", *(s.name for s in program.statements if s.kind != "prediction"), *patterns]


def batch_for(program, seed: int):
    rng = random.Random(seed)
    length = rng.randint(1, program.n_positions)
    ids = torch.tensor([[rng.randrange(len(program.vocabulary)) for _ in range(length)] for _ in range(BATCH)])
    offsets = torch.tensor([rng.randint(0, program.n_positions - length) for _ in range(BATCH)])
    return ids, offsets[:, None] + torch.arange(length)


def edit_of(kind: str, shape: torch.Size, generator: torch.Generator) -> tuple[Edit, list[float], torch.Tensor]:
    """An edit, and what it is for each row: how much of the value it keeps, and what it adds."""

    def noise(*dims: int) -> torch.Tensor:
        # Positive, and not near 0: a norm that is replaced is divided by.
        return 0.5 + torch.rand(*dims, generator=generator, dtype=torch.float64)

    whole, share = noise(*shape), noise(shape[0])
    everywhere = torch.ones(shape, dtype=torch.float64)
    by_row = share.view(-1, *[1] * (len(shape) - 1))
    last = noise(*shape[-1:])
    match kind:
        case "replaced":
            return Replaced(whole), [0.0] * BATCH, whole
        case "replaced by a number":
            return Replaced(2.5), [0.0] * BATCH, 2.5 * everywhere
        case "replaced by the same everywhere":
            return Replaced(last), [0.0] * BATCH, last * everywhere
        case "scaled":
            return Scaled(0.3), [0.3] * BATCH, 0 * everywhere
        case "scaled by row, with an ablation":
            return Scaled(share, whole), share.tolist(), (1 - by_row) * whole
        case "shifted":
            return Shifted(whole), [1.0] * BATCH, whole
        case "shifted by a number":
            return Shifted(1.5), [1.0] * BATCH, 1.5 * everywhere
        case _:
            raise AssertionError(kind)


KINDS = (
    *("replaced", "replaced by a number", "replaced by the same everywhere", "scaled"),
    *("scaled by row, with an ablation", "shifted", "shifted by a number"),
)


def check_edits(program, edited: dict[str, str], seed: int) -> None:
    """The logits and all variables with edits, against the definition."""
    ids, positions = batch_for(program, seed)
    generator = torch.Generator().manual_seed(seed)
    interpreter, names = Interpreter(program, torch.float64), names_of(program)
    shapes = {
        name: value.shape for name, value in interpreter.run(Sequences(ids, positions), record=names).values.items()
    }
    made = {name: edit_of(kind, shapes[name], generator) for name, kind in edited.items()}
    edits = {name: edit for name, (edit, _, _) in made.items()}
    run = interpreter.run(Sequences(ids, positions), edits=edits, record=[*names, "prediction"])
    alone = interpreter.run(Sequences(ids, positions), edits=edits)
    torch.testing.assert_close(alone.logits, run.logits, rtol=1e-7, atol=1e-7)
    assert not alone.values
    for row in range(BATCH):
        own = {name: naive.NaiveEdit(keep[row], plus[row].numpy()) for name, (_, keep, plus) in made.items()}
        expected = naive.run(program, ids[row].tolist(), int(positions[row, 0]), own)
        np.testing.assert_allclose(run.logits[row], expected.pop("logits"), rtol=1e-6, atol=1e-6)
        assert set(expected) == set(run.values)
        for name, value in expected.items():
            seen = ~np.isnan(value)
            found = run.values[name][row].numpy()
            np.testing.assert_allclose(found[seen], value[seen], rtol=1e-6, atol=1e-6, err_msg=name)


ALL_KINDS = """vocab = [a, b, c]
positions = 6
n1 = norm(token, pos, op=N, eps=0.1)
s1 = select(q=token/n1, k=pos, op=A)
s2 = select(k=token, op=B)
a1 = aggregate(s=s1+s2, v=token/n1)
a2 = aggregate(s=[], v=pos)
a3 = aggregate(s=s1+s2, v=a2)
m1 = element_wise_op(a1, a3/n1, one, func=mlp(F, gelu_new, eps=0.1))
h1 = element_wise_op(a1, func=harden)
s3 = select(q=m1, k=a1, op=C)
a4 = aggregate(s=s3, v=h1)
logits1 = project(inp=a4, op=(inp==out)*2)
logits2 = project(inp=m1/n1, op=R)
logits3 = project(op=D)
prediction = softmax(logits1+logits2+logits3)"""


def all_kinds():
    generator = torch.Generator().manual_seed(0)
    shapes = {
        **{"N.0": (3, 2), "N.1": (6, 2), "A": (3, 6), "B": (1, 3), "C": (2, 3), "R": (2, 3), "D": (1, 3)},
        **{"F.0": (3, 4), "F.1": (6, 4), "F.2": (1, 4), "F.hidden": (4, 5), "F.hidden_bias": (5,)},
        **{"F.out": (5, 2), "F.out_bias": (2,)},
    }
    tensors = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    return parse(ALL_KINDS, tensors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", names_of(all_kinds()))
def test_every_edit_of_every_kind_of_variable(name, kind):
    check_edits(all_kinds(), {name: kind}, seed=1)


@examples(500)
@given(randoms, st.integers(0, 2**32))
def test_edits_of_random_programs(rng, seed):
    program = random_program(rng)
    names = names_of(program)
    chosen = rng.sample(names, min(len(names), rng.randint(0, 4)))
    check_edits(program, {name: rng.choice(KINDS) for name in chosen}, seed)


@examples(500)
@given(randoms, st.integers(0, 2**32))
def test_where_logits_are_wanted_at_some_positions_values_are_recorded_and_patched_there(rng, seed):
    """What no other position looks at has only the wanted positions; the logits there are those of a whole run."""
    program = random_program(rng)
    ids, positions = batch_for(program, seed)
    generator = torch.Generator().manual_seed(seed)
    wanted = ids.shape[1] + 1  # so that no shape is both
    where = torch.randint(ids.shape[1], (BATCH, wanted), generator=generator)
    names = names_of(program)

    def at_wanted(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        index = where.view(BATCH, wanted, *[1] * (value.ndim - 2)).expand(-1, -1, *value.shape[2:])
        return value.gather(1, index) if like.shape[1] == wanted else value

    interpreter = Interpreter(program, torch.float64)
    whole, narrow = (interpreter.run(Sequences(ids, positions, places), record=names) for places in (None, where))
    for name, value in narrow.values.items():
        torch.testing.assert_close(value, at_wanted(whole.values[name], value), rtol=1e-7, atol=1e-7)
    patches = {
        name: torch.rand(whole.values[name].shape, generator=generator, dtype=torch.float64) + 0.5
        for name in rng.sample(names, min(len(names), rng.randint(0, 3)))
    }
    patched = interpreter.run(Sequences(ids, positions), edits={name: Replaced(by) for name, by in patches.items()})
    there = {name: Replaced(at_wanted(by, narrow.values[name])) for name, by in patches.items()}
    found = interpreter.run(Sequences(ids, positions, where), there).logits
    torch.testing.assert_close(found, at_wanted(patched.logits, found), rtol=1e-7, atol=1e-7)


def test_what_is_replaced_is_not_computed(monkeypatch):
    program = all_kinds()
    ids, positions = batch_for(program, 1)
    computed: list[str] = []
    before = _Evaluation.computed
    monkeypatch.setattr(_Evaluation, "computed", lambda run, s: computed.append(s.name) or before(run, s))
    Interpreter(program).run(Sequences(ids, positions), edits={"a4": CUT})
    assert computed == ["n1", "a1", "a2", "a3", "m1", "logits1", "logits2", "logits3"]
    computed.clear()
    Interpreter(program).run(Sequences(ids, positions), edits={"m1": CUT, "a4 pattern": CUT})
    assert computed == ["n1", "a1", "h1", "a4", "logits1", "logits2", "logits3"]


def test_edits_that_make_no_sense_are_refused_by_name():
    program = all_kinds()
    ids, positions = batch_for(program, 1)
    for name in ("a9", "s1 pattern", "prediction"):
        with pytest.raises(DraspError, match=f"`{name}`: the program has no such variable"):
            Interpreter(program).run(Sequences(ids, positions), edits={name: CUT})
    with pytest.raises(DraspError, match="`a9`"):
        Interpreter(program).run(Sequences(ids, positions), record=["a9"])
    with pytest.raises(DraspError, match=r"the edit of `a1` does not fit a value of shape \[3, \d, 3\]"):
        Interpreter(program).run(Sequences(ids, positions), edits={"a1": Replaced(torch.ones(7, 7, 7))})


def test_gradients_pass_through_edits():
    program = all_kinds()
    ids, positions = batch_for(program, 1)
    share = torch.full((BATCH,), 0.5, requires_grad=True)
    Interpreter(program).run(Sequences(ids, positions), edits={"a1": Scaled(share)}).logits.square().sum().backward()
    assert share.grad is not None
    assert bool((share.grad != 0).all())


def test_values_are_made_on_the_device_of_the_inputs():
    """No other device is at hand, but torch's own that holds shapes alone would tell."""
    program = all_kinds()
    ids, positions = (x.to("meta") for x in batch_for(program, 1))
    names = names_of(program)
    run = Interpreter(program).run(Sequences(ids, positions), edits={"a1": Shifted(1.0)}, record=names)
    assert {value.device.type for value in (run.logits, *run.values.values())} == {"meta"}
