"""Passes on programs, each alone: lines that go, MLPs made linear or split, constants that are settled."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drasp.decompiler.components import Components
from drasp.decompiler.elimination import EliminationJudge, Move, eliminate
from drasp.decompiler.harm import harm_by_line
from drasp.decompiler.lines import constants_of, line_moves
from drasp.fitting.descent import minimise
from drasp.fitting.means import operand_means
from drasp.fitting.oracle import Oracle, answering
from drasp.language import Interpreter, Program, check, parse
from drasp.language.syntax import ElementWise, Network, Operand, Project
from drasp.naming.linear import with_linear
from drasp.naming.splitting import as_sum, split
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import fold_constants, without_unused
from drasp.settings import Settings
from drasp.wiring import write_program
from effort import examples
from small_graphs import (
    TASK,
    difference,
    oracle,
    random_graph,
    random_transformer,
)
from typed import known, of_kind

PROGRAM = """vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 156
s1 = select(q=token, k=token, op=A)
s2 = select(q=pos, k=token, op=Z)
s3 = select(k=token, op=b)
a1 = aggregate(s=s1+s2+s3, v=token)
m1 = element_wise_op(a1, pos, func=mlp(F, relu))
logits1 = project(inp=m1, op=R)
logits2 = project(inp=pos, op=P)
logits3 = project(op=c)
prediction = softmax(logits1+logits2+logits3)"""


def small_program() -> Program:
    generator = torch.Generator().manual_seed(0)
    shapes = {"A": (6, 6), "b": (1, 6), "F.0": (6, 4), "F.hidden": (4, 5), "F.hidden_bias": (5,)}
    shapes |= {"F.out": (5, 3), "F.out_bias": (3,), "R": (3, 6), "c": (1, 6)}
    tensors = {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    # The query by position, the MLP's input by position and the project of positions say nothing.
    tensors |= {"Z": torch.zeros(156, 6), "F.1": torch.zeros(156, 4), "P": torch.ones(156, 6)}
    return parse(PROGRAM, tensors)


def test_lines_that_say_nothing_go_without_a_trace():
    program, pool = small_program(), oracle(random_transformer(0, 1, 1))
    means = operand_means(program, pool)
    moves = {move.name: move for move in line_moves(program, means)}
    idle = {("select", "s2"), ("project", "logits2")}
    idle |= {("input", "m1", v) for v in of_kind(ElementWise, program.find("m1")).inputs if v.variable == "pos"}
    assert len(idle) == 3
    for name, move in moves.items():
        changed = known(move.apply(program))
        assert check(changed) == []
        same = difference(answering(program), answering(changed), pool) < 1e-4
        assert same == (name in idle), name


NORMED = """vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 156
a1 = aggregate(s=[], v=token)
a2 = aggregate(s=[], v=pos)
n1 = norm(a1, a2, token{one}, op=N, eps=1e-05)
logits1 = project(inp=a1/n1, op=R)
logits2 = project(op=c)
prediction = softmax(logits1+logits2)"""


def normed_program(one: str = ", one") -> Program:
    generator = torch.Generator().manual_seed(0)
    shapes = {"N.0": (6, 4), "N.2": (6, 4), "N.3": (1, 4), "R": (6, 6), "c": (1, 6)}
    tensors = {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    # The mean position adds a constant: the norm may as well read its mean.
    tensors["N.1"] = torch.ones(156, 4)
    return parse(NORMED.format(one=one), tensors)


@pytest.mark.parametrize("one", [", one", ""])
def test_an_input_of_a_norm_leaves_its_mean_behind(one):
    program, pool = normed_program(one), oracle(random_transformer(0, 1, 1))
    moves = {move.name: move for move in line_moves(program, operand_means(program, pool))}
    without = known(moves["input", "n1", Operand("a2")].apply(program))
    assert check(without) == []
    assert without.lines == program.lines - 1
    assert difference(answering(program), answering(without), pool) < 1e-4
    needed = known(moves["input", "n1", Operand("a1")].apply(program))
    assert difference(answering(program), answering(needed), pool) > 1e-2


@pytest.mark.long
def test_the_harm_of_losing_an_input_of_a_norm_is_that_of_losing_a_little_of_it_scaled_up():
    program, little = normed_program(), 0.05
    pool = Oracle.draw(Interpreter(program), TASK, 300, np.random.default_rng(0), batch_size=1)
    means = operand_means(program, pool)
    harms = harm_by_line(program, means, pool)
    for i, name in enumerate(("a1", "a2", "token")):
        weights, operand = program.tensors[f"N.{i}"], Operand(name)
        changed = {f"N.{i}": (1 - little) * weights, "N.3": program.tensors["N.3"] + little * means[operand] @ weights}
        loss = pool.mean_loss(answering(replace(program, tensors={**program.tensors, **changed})))
        found = harms["input", "n1", operand]
        assert loss / little**2 == pytest.approx(found, rel=0.4, abs=0.02 * max(harms.values())), name


def test_a_moves_second_use_finds_nothing():
    program = small_program()
    for move in line_moves(program, operand_means(program, oracle(random_transformer(0, 1, 1)))):
        assert move.apply(known(move.apply(program))) is None


def test_folding_is_exact_and_saves_lines():
    program, pool = small_program(), oracle(random_transformer(0, 1, 1))
    folded = fold_constants(program)
    # The key-only select goes into the one of token and token, the bias into the project of positions.
    assert folded.lines == program.lines - 2
    assert difference(answering(program), answering(folded), pool) < 1e-4


def test_an_mlp_that_is_only_projected_takes_the_bias_along():
    program, pool = small_program(), oracle(random_transformer(0, 1, 1))
    means = operand_means(program, pool)
    [drop] = [move for move in line_moves(program, means) if move.name == ("project", "logits2")]
    program = known(drop.apply(program))
    folded = fold_constants(program)
    assert [s.name for s in folded.statements if isinstance(s, Project)] == ["logits1"]
    assert difference(answering(program), answering(folded), pool) < 1e-4


READ = [Operand("a1"), Operand("pos")]


def unexplained(program: Program, inputs: list[Operand], pool: Oracle) -> float:
    """The share of the MLP's variance where answers count that no linear map of the inputs explains, by NumPy."""
    left, right = [], []
    for batch in pool.batches:
        *read, said = Interpreter(program).values(batch.inputs.ids, batch.inputs.positions, [*inputs, Operand("m1")])
        for row, place in batch.valid.nonzero().tolist():
            at = batch.where[row, place]
            left.append(np.concatenate([[1.0], *(value[row, at].numpy() for value in read)]))
            right.append(said[row, at].numpy())
    x, y = np.array(left, float), np.array(right, float)
    missed = y - x @ np.linalg.lstsq(x, y, rcond=1e-6)[0]
    return float((missed**2).sum() / ((y - y.mean(0)) ** 2).sum())


def straight_program() -> Program:
    """With a relu that never cuts off."""
    return small_program().with_tensors({"F.hidden_bias": torch.full((5,), 50.0)})


@pytest.mark.parametrize("inputs", [READ, READ[:1]], ids=["all", "the one that matters"])
def test_an_mlp_that_is_linear_is_found_out(inputs):
    """The program is the same without its MLP, and shorter; of its inputs, the positions say nothing."""
    program, pool = straight_program(), oracle(random_transformer(0, 1, 1))
    linear, residual = known(with_linear(program, "m1", inputs, pool))
    assert check(linear) == []
    assert "element_wise_op" not in str(linear)
    assert difference(answering(program), answering(linear), pool) < 1e-2
    assert fold_constants(linear).lines < fold_constants(program).lines
    assert residual < 1e-6


@pytest.mark.parametrize("inputs", [READ, READ[:1], READ[1:]], ids=["all", "shares", "positions"])
def test_how_far_an_mlp_is_from_linear_is_known(inputs):
    program = small_program().with_tensors({"F.1": torch.randn(156, 4, generator=torch.Generator().manual_seed(1))})
    pool = oracle(random_transformer(0, 1, 1), count=120)
    linear, residual = known(with_linear(program, "m1", inputs, pool))
    assert residual > 1e-3
    assert residual == pytest.approx(unexplained(program, inputs, pool), rel=1e-3)
    assert difference(answering(program), answering(linear), pool) > 1e-2


def test_an_mlp_that_others_read_does_not_become_linear():
    program, pool = small_program(), oracle(random_transformer(0, 1, 1))
    text = PROGRAM.replace("inp=m1,", "inp=a2,").replace("logits1 =", "a2 = aggregate(s=[], v=m1)\nlogits1 =")
    assert with_linear(parse(text, program.tensors), "m1", READ, pool) is None


def test_what_is_not_used_goes():
    program = small_program()
    text = PROGRAM.replace("logits1+logits2+logits3", "logits2")
    short = without_unused(parse(text, program.tensors))
    assert [s.name for s in short.statements] == ["logits2", "prediction"]
    assert set(short.tensors) == {"P"}


def test_constants_are_what_is_tuned():
    assert constants_of(small_program()) == ["b", "F.hidden_bias", "F.out_bias", "c"]


def test_settling_goes_on_only_where_the_target_is_near():
    """A state is a number, its own agreement; settling briefly adds 0.1, for longer 0.15. Some are refused."""
    calls: list[str] = []

    def settling(name: str, gain: float):
        def settle(state: float) -> float:
            calls.append(name)
            return round(state + gain, 2)

        return settle

    for start, refused, expected, called in (
        (0.95, (), 0.95, []),
        (0.85, (), 0.95, ["brief"]),
        (0.75, (), 1.0, ["brief", "longer"]),
        (0.6, (), 0.0, ["brief"]),
        (0.4, (), 0.0, []),
        (0.95, (0.95,), 1.05, ["brief"]),
        (0.95, (0.95, 1.05), 1.2, ["brief", "longer"]),
        (0.95, (0.95, 1.05, 1.2), 0.0, ["brief", "longer"]),
    ):
        judge = EliminationJudge(
            loss=lambda state: 1 - state,
            match=lambda state, target: state if state >= target else 0.0,
            stands=lambda _: True,
            spare=lambda state, refused=refused: -0.01 if state in refused else 0.0,
            settle=settling("brief", 0.1),
            settle_longer=settling("longer", 0.15),
            hopeless=1.25,
            settings=Settings(near=0.1),
        )
        calls.clear()
        assert judge.mended(start, 0.9)[1] == pytest.approx(expected)
        assert calls == called


def counting_judge(match: dict[int, float], **others) -> EliminationJudge[int]:
    """States are numbers of things left; what they agree is known."""
    given = {
        "stands": lambda _: True,
        "loss": lambda state: 1.0 / (1 + state),
        "match": lambda state, target: match[state] if match[state] >= target else 0.0,
        "spare": lambda _: 0.0,
        "settle": lambda state: state,
        "settle_longer": lambda state: state,
        "hopeless": 2.0,
        "key": lambda state: state,
    }
    return EliminationJudge(**{**given, **others})


def less(by: int) -> Move[int]:
    return Move(f"less {by}", lambda state: state - by if state >= by else None)


def test_what_cannot_stand_is_not_settled_and_what_was_refused_not_tried_again():
    settled: list[int] = []
    judge = counting_judge({2: 0.5}, stands=lambda _: False, settle=lambda state: settled.append(state) or state)
    assert judge.mended(2, 0.9) == (2, 0.0)
    assert not settled
    judge = counting_judge({2: 0.87}, settle=lambda state: settled.append(state) or state)
    assert judge.mended(2, 0.9)[1] == 0.0
    assert settled == [2]
    assert judge.refused == {2: 0.9}
    assert judge.mended(2, 0.95)[1] == 0.0
    assert settled == [2]
    assert judge.mended(2, 0.8)[1] == 0.87, "less is asked for"


def test_nothing_is_settled_for_more_than_settling_brings():
    settled: list[int] = []
    judge = counting_judge({2: 0.99}, settle=lambda state: settled.append(state) or state)
    assert judge.mended(2, 0.997)[1] == 0.0
    assert not settled
    assert judge.mended(2, 0.995)[1] == 0.0
    assert settled == [2]


def test_moves_are_ranked_by_what_they_cost_for_what_they_are_worth():
    match = dict.fromkeys(range(11), 1.0)
    order: list[int] = []
    judge = counting_judge(match, loss=lambda state: {9: 0.1, 7: 0.2, 10: 0.0}.get(state, 1.0))
    moves = [less(1), less(3)]

    def worth(before: int, after: int) -> float:
        return 0.0 if after == before - 1 else 1.0

    state = eliminate(10, lambda _: moves, judge, lambda *_: 0.9, lambda s, _: order.append(s), 5, worth=worth)
    assert order == [7, 4, 1]
    assert state == 1, "what is worth nothing is no move"


def test_constants_are_settled_anew_before_a_failure_counts():
    """Two that agree too seldom go once what is left has been settled."""
    match = {3: 0.92, 2: 0.85, 13: 0.99, 12: 0.95, 11: 0.8, 1: 0.0, 0: 0.0, 10: 0.0}
    judge = counting_judge(match, settle_longer=lambda state: state + 10 if state == 3 else state)
    taken = eliminate(3, lambda _: [less(1)], judge, lambda *_: 0.9, lambda *_: None, patience=1)
    assert taken == 12


def test_descent_finds_the_minimum_of_a_badly_scaled_quadratic():
    scales = torch.tensor([1.0, 10.0, 1000.0])
    aim = torch.tensor([3.0, -2.0, 0.5])

    def loss(values):
        return (scales * (values[0] - aim).square()).sum() + (values[1] - 1).square().sum()

    first, second = minimise(loss, [torch.zeros(3), torch.zeros(2, 2)], 40)
    assert torch.allclose(first, aim, atol=1e-3)
    assert torch.allclose(second, torch.ones(2, 2), atol=1e-3)


def test_descent_never_ends_at_a_greater_loss():
    def cliff(values):
        return values[0].square().sum() + (values[0].abs() < 0.5).sum() * 1e3

    [found] = minimise(cliff, [torch.ones(1)], 5)
    assert 0.5 <= float(found.abs()) <= 1
    [kept] = minimise(lambda values: values[0].sum() * float("nan"), [torch.ones(1)], 5)
    assert kept.tolist() == [1.0]


def test_descent_stays_where_nothing_has_a_slope():
    [kept] = minimise(lambda values: (values[0] > 0).float().sum(), [torch.ones(2)], 5)
    assert kept.tolist() == [1.0, 1.0]


def test_descent_finds_the_slope_only_where_it_goes_on_from():
    """Not of steps that were too long, nor of the last one."""
    values, slopes = [], []

    def loss(parameters):
        [x] = parameters
        x.register_hook(slopes.append)
        values.append(x.detach())
        return (x**4 - x).sum()

    [found] = minimise(loss, [torch.full((1,), 3.0)], 4)
    assert len(slopes) == 4 < len(values)
    assert 0 < float(found) < 3


# ------------------------------------------------------------------------------------- splitting


@examples(15)
@given(st.integers(0, 2**32), st.integers(1, 2), st.integers(0, 2**32))
def test_a_variable_read_as_a_sum_leaves_the_logits_as_they_are(seed, layers, cut):
    """Every MLP as the sum of its double and its negative, in all places where MLPs are read."""
    transformer = random_transformer(seed, layers, 1)
    components, pool = Components(transformer), oracle(transformer)
    graph = random_graph(components, components.means(pool), cut)
    program = write_program(transformer, graph.edits, TASK.vocabulary, TASK.output)
    summed = program
    for name in [s.name for s in program.statements if isinstance(s, ElementWise)]:
        whole = of_kind(ElementWise, summed.find(name))
        tensors, parts = dict(summed.tensors), []
        for part, times in ((f"{name}_double", 2.0), (f"{name}_negative", -1.0)):
            network = of_kind(Network, whole.function)
            for old in whole.tensor_names:
                scale = times if ".out" in old else 1.0
                tensors[old.replace(network.name, f"F_{part}", 1)] = scale * tensors[old]
            parts.append(replace(whole, name=part, function=replace(network, name=f"F_{part}")))
        where = summed.statements.index(whole)
        statements = (*summed.statements[:where], *parts, *summed.statements[where + 1 :])
        wider = replace(summed, statements=statements, tensors=tensors)
        summed = as_sum(wider, name, [part.name for part in parts])
    assert check(summed) == []
    scale = max(1.0, max(float(b.logits.abs().max()) for b in pool.batches))
    assert difference(answering(program), answering(summed), pool) <= 1e-4 * scale


def additive_program() -> Program:
    """Two of the hidden units hear the one variable, three the other: the MLP is a sum."""
    program = small_program()
    heard = {f"F.{i}": torch.zeros(rows, 4) for i, rows in enumerate((6, 156))}
    generator = torch.Generator().manual_seed(1)
    heard["F.0"][:, :2] = torch.randn(6, 2, generator=generator)
    heard["F.1"][:, 2:] = torch.randn(156, 2, generator=generator)
    hidden = torch.zeros(4, 5)
    hidden[:2, :2], hidden[2:, 2:] = torch.randn(2, 2, generator=generator), torch.randn(2, 3, generator=generator)
    return replace(program, tensors={**program.tensors, **heard, "F.hidden": hidden})


def test_an_mlp_that_is_a_sum_is_split_but_for_a_constant():
    program, pool = additive_program(), oracle(random_transformer(0, 1, 1))
    parts = known(split(program, "m1", pool))
    assert check(parts) == []
    assert [len(s.inputs) for s in parts.statements if isinstance(s, ElementWise)] == [1, 1]
    run, other = answering(program), answering(parts)
    off = torch.cat([(run(b) - other(b))[b.valid] for b in pool.batches])
    torch.testing.assert_close(off, off[:1].expand_as(off), atol=1e-4, rtol=0)
    # The part that reads positions is a table, and that is one more project of positions.
    assert simplify(parts).lines == simplify(program).lines


def test_an_mlp_that_is_no_sum_does_not_pass_for_one():
    program, pool = small_program(), oracle(random_transformer(0, 1, 1))
    program = replace(program, tensors={**program.tensors, "F.1": torch.randn(156, 4)})
    run, other = answering(program), answering(known(split(program, "m1", pool)))
    off = torch.cat([(run(b) - other(b))[b.valid] for b in pool.batches])
    assert float(off.var(0).max()) > 1e-2


def test_an_mlp_of_one_variable_is_not_split():
    program, pool = small_program(), oracle(random_transformer(0, 1, 1))
    text = PROGRAM.replace("element_wise_op(a1, pos,", "element_wise_op(a1,")
    assert split(parse(text, program.tensors), "m1", pool) is None
