"""The evidence as a whole: what follows from it, what cannot be measured, and how it is shown."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from causal_models import ANSWERS, SETS, lively, lively_gpt2
from command import drasp, fails
from controls import answers_only
from drasp.causal import Amount, Evidence, EvidenceEffort, Mechanism, PartEffect, Trials, evaluate
from drasp.causal.evidence import LineEvidence, causal_reasons, completeness_reasons
from drasp.causal.measures import NOT_APPLICABLE, Measure
from drasp.cli.evidence import print_evidence
from drasp.compiler import Disguise, compile_program
from drasp.language import parse, program_files
from drasp.language.syntax import PrimitiveTensor, Select
from drasp.loading import load_model_and_task
from drasp.model_files import load_model
from drasp.records import WrongFieldError
from drasp.rewriting.simplify import simplify
from drasp.tasks import TASKS, Language, language_task
from drasp.translation import translate
from swapping import split_program
from truth.families import families
from truth.specs import make
from typed import blocks_of, known

SMALL = EvidenceEffort(inputs=60, pairs=Amount(60, 30), more=Amount(0, 0))


def exact(transformer, task=ANSWERS):
    return translate(transformer, task.vocabulary, task.output)


@pytest.mark.parametrize("task", [ANSWERS, SETS], ids=["answers", "sets"])
def test_an_exact_program_is_complete(task):
    transformer = lively(7, 1, 1, task)
    program = simplify(exact(transformer, task))
    found = evaluate(program, transformer, task, program, replace(SMALL, more=Amount(240, 80)))
    measures = [found.model_cut_down, found.program, found.edited, found.attention, found.complement]
    measures += [getattr(line, name) for line in found.lines for name in ("interchange", "attention", "splice")]
    assert not [m for m in measures if m is not None and (m.failed or (m.value is not None and m.value < 0.98))]
    assert found.causal
    assert known(found.mean_ablated).value == 1.0  # of nothing
    assert {line.origin for line in found.lines} == {"own"}
    assert sum(known(line.interchange).passed for line in found.lines) >= 2
    interchanged = {line.line: known(line.interchange) for line in found.lines}
    few = [line for line, measure in interchanged.items() if measure.status == "untested" and not measure.idle]
    assert (found.grade == "complete") == (len(few) <= 1)


def test_a_program_that_looks_elsewhere_is_not_causal():
    """Scores the other way round: the model's answers where heads do not matter, not where they do."""
    transformer = lively(1, 1, 1)
    program = simplify(exact(transformer))
    wrong = program.with_tensors(
        {name: -program.tensors[name] for s in program.statements if isinstance(s, Select) for name in s.tensor_names}
    )
    found = evaluate(wrong, transformer, ANSWERS, None, SMALL)
    assert not found.causal
    assert found.grade is None
    assert found.attention.failed
    assert any("does not look where the model does" in reason for reason in found.reasons)
    # The same as a replacement of the exact program: then interchange against that says so too.
    replaced = evaluate(wrong, transformer, ANSWERS, program, SMALL)
    assert replaced.attention.passed
    assert {line.origin for line in replaced.lines} == {"own", "approximated"}
    assert any("is not what it replaced" in reason for reason in replaced.reasons)


# ------------------------------------------------------------- without the model cut down: nobody knows whose numbers


def test_a_program_fitted_to_answers_is_refused():
    """It agrees, on edited inputs too, but its projects are not the model's, under whose names they stand."""
    transformer, task = load_model_and_task("bin_majority", None)
    assert task is not None
    found = evaluate(answers_only(transformer, task), transformer, task)
    assert found.program.passed
    assert found.edited.passed
    assert {line.origin for line in found.lines} == {"unknown"}
    assert not found.causal
    assert any(reason.startswith("logits1 (unknown) is not what the model does") for reason in found.reasons)


def test_a_line_that_claims_more_than_it_reads_is_refused():
    """With all that reaches the output from a source at once, any project that answers alike would pass."""
    transformer, task = load_model_and_task("bin_majority", None)
    assert task is not None
    text = BIN_MAJORITY.format("(inp==out)")
    for claim, unfounded in (("layer 0 mlp -> out", False), ("token -> out, pos -> out", True)):
        program = parse(text.replace("layer 0 head 0 -> out", f"layer 0 head 0 -> out, {claim}"))
        said = "logits1 says that it hears token and pos, and reads nothing of it"
        assert (said in evaluate(program, transformer, task, None, SMALL).reasons) == unfounded


@pytest.mark.parametrize("seed", [1, 7])
def test_an_exact_translation_is_causal(seed):
    transformer = lively(seed, 1, 1)
    found = evaluate(simplify(exact(transformer)), transformer, ANSWERS, None, SMALL)
    assert {line.origin for line in found.lines} == {"unknown"}
    assert found.causal, found.reasons


@pytest.mark.parametrize("number", [0, 6])
def test_the_program_that_a_model_was_compiled_from_is_causal(number):
    spec = make("quick", number, 0)
    found = evaluate(spec.compiled.program, spec.compiled.transformer, spec.task, None, replace(SMALL, inputs=200))
    assert found.causal, found.reasons


# -------------------------------------------------------------------------------------- what cannot be measured


def test_one_word_a_length_and_one_token_cannot_be_edited():
    transformer, task = load_model_and_task("aastar", None)
    assert task is not None
    trials = Trials.draw(transformer, task, Amount(20, 20), np.random.default_rng(0))
    assert {int(k) for p in trials.batches for k in p.kinds} == {0}  # only other offsets
    text = "vocab = [a, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 152\n"
    text += "logits1 = project(inp=token, op=R)  # token -> out\nprediction = sigmoid(logits1)  # out"
    found = evaluate(parse(text, {"R": torch.randn(5, 5)}), transformer, task, None, SMALL)
    assert found.edited.status == "not_applicable"
    assert known(found.line("logits1").interchange).status == "not_applicable"
    assert not found.causal  # it does not agree either


def test_one_word_a_length():
    """Another input of the same length is the same word at another offset; words can be edited all the same."""
    task = language_task("abab", Language("ab", "(ab)*"), lengths=range(2, 9))
    transformer = lively(3, 1, 1, task)
    trials = Trials.draw(transformer, task, Amount(20, 20), np.random.default_rng(0))
    for pairs in trials.batches:
        same = (pairs.base.ids == pairs.source.ids).all(1)
        assert same[pairs.kinds == 0].all()
        assert not same[pairs.kinds > 0].any()
    program = simplify(exact(transformer, task))
    found = evaluate(program, transformer, task, program, SMALL)
    assert found.causal, found.reasons
    assert found.edited.n > 0


def test_heads_that_say_the_same_are_one_line():
    """Each head looks where both do in the mean, and both are taken from a source at once."""
    spec = make("b", 0, 0)
    twins = compile_program(spec.program, Disguise(twin_heads=1))
    found = evaluate(twins.program, twins.transformer, spec.task, twins.program, SMALL)
    line = next(line for line in found.lines if line.line == "a1")
    assert line.stands_for == "layer 0 head 0, layer 0 head 1"
    assert known(line.attention).value == pytest.approx(1, abs=0.01)
    assert known(line.interchange).passed
    assert found.grade == "complete"
    # Under the name of one of them, it is not all there is.
    alone = replace_sites(twins.program, lambda site: "head 1" not in str(site))
    found = evaluate(alone, twins.transformer, spec.task, twins.program, SMALL)
    assert not known(found.line("a1").interchange).passed


def replace_sites(program, kept):
    lines = (replace(s, sites=tuple(filter(kept, s.sites))) for s in program.statements)
    return replace(program, statements=tuple(lines))


def test_a_path_through_two_heads():
    """The second head carries what the first one took: from a source, its line is that path."""
    names = [f"{family.name}: {mechanism}" for family in families() for mechanism in family.programs]
    spec = make("b", names.index("last_two_alike: last but one in two steps"), 0)
    program = spec.compiled.program
    assert "token > layer 0 head 0 > layer 1 head 0" in {str(s) for s in Mechanism.of(program).senders["a2"]}
    found = evaluate(program, spec.compiled.transformer, spec.task, program, SMALL)
    assert known(found.line("a2").interchange).passed
    assert found.causal, found.reasons


def test_a_split_mlp():
    """Its parts are approximated, each judged by what the MLP does with that part of its input from a source."""
    transformer, whole, parts, _ = split_program(0)
    effort = EvidenceEffort(inputs=20, pairs=Amount(40, 10), more=Amount(0, 0))
    found = evaluate(parts, transformer, ANSWERS, whole, effort)
    lines = [line for line in found.lines if line.stands_for == "layer 0 mlp"]
    assert {line.origin for line in lines} == {"approximated"}
    assert all(line.interchange_cut_down is not None for line in lines)
    assert any(known(line.interchange_cut_down).n for line in lines)
    assert all(line.part is not None and not line.part.dormant for line in lines)


def test_a_constant_model_has_no_case():
    model = lively_gpt2(0, 1, 1)
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.copy_(torch.randn(4))
    transformer = load_model(model)
    found = evaluate(simplify(exact(transformer)), transformer, ANSWERS, None, SMALL)
    assert found.program.passed
    assert found.edited.idle
    assert found.complement.status == "not_applicable"
    assert all(known(line.interchange).status == "not_applicable" for line in found.lines)
    assert found.causal
    assert found.grade == "sufficient"  # nothing shows more


def test_one_answer_position():
    transformer, task = load_model_and_task("bin_majority", None)
    assert task is not None
    assert all(
        p.where.shape[1] == 1 for p in Trials.draw(transformer, task, Amount(5, 5), np.random.default_rng(0)).batches
    )
    text = "vocab = [0, 1, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 154\n"
    text += "a1 = aggregate(s=[], v=token)  # layer 0 head 0\n"
    text += (
        "logits1 = project(inp=a1, op=(inp==out))  # layer 0 head 0 -> out, out\nprediction = softmax(logits1)  # out"
    )
    found = evaluate(parse(text), transformer, task, None, EvidenceEffort(100, Amount(60, 60), Amount(100, 140)))
    assert found.program.passed
    assert found.edited.passed
    assert known(found.line("a1").interchange).passed
    assert found.line("logits1").origin == "named"


def test_a_line_without_cases_is_idle():
    """An MLP that says always the same changes no answer on either side: no evidence, and none against."""
    model = lively_gpt2(7, 1, 1)
    with torch.no_grad():
        blocks_of(model)[0].mlp.c_proj.weight.zero_()
    transformer = load_model(model)
    found = evaluate(exact(transformer), transformer, ANSWERS, None, SMALL)
    mlp = next(line for line in found.lines if line.stands_for == "layer 0 mlp")
    assert known(mlp.interchange).idle
    assert str(mlp.interchange) == "idle"
    assert known(mlp.splice).status == "untested"


def test_hand_written_programs_give_agreement_and_edited_only():
    transformer = lively(7, 1, 1)
    text = "vocab = [a, b, c, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 155\n"
    text += "logits1 = project(inp=token, op=(inp==out))\nprediction = softmax(logits1)"
    found = evaluate(parse(text), transformer, ANSWERS, None, SMALL)
    assert found.without_sites == ("logits1",)
    assert not found.lines
    assert found.program.n == 60
    assert found.edited.n > 0
    assert "logits1" in found.reasons[0]


def test_evidence_is_json_both_ways():
    transformer = lively(7, 1, 1)
    program = simplify(exact(transformer))
    found = evaluate(program.with_tensors({"A1": -program.tensors["A1"]}), transformer, ANSWERS, program, SMALL)
    assert Evidence.from_json(json.loads(json.dumps(found.to_json()))) == found
    older = {name: value for name, value in found.to_json().items() if name != "mean_ablated"}
    assert Evidence.from_json(json.loads(json.dumps(older))) == replace(found, mean_ablated=None)
    with pytest.raises(WrongFieldError, match=r"lines\[0\].line"):
        Evidence.from_json(json.loads(json.dumps(found.to_json())) | {"lines": [{"line": 3}]})


def test_the_same_seed_gives_the_same_evidence():
    transformer = lively(7, 1, 1)
    program = simplify(exact(transformer))
    first, again, other = (evaluate(program, transformer, ANSWERS, None, SMALL, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


# --------------------------------------------------------------------------------------------------- verdicts

GOOD = Measure(1.0, 200, (0.98, 1.0), "passed")
BAD = Measure(0.5, 200, (0.4, 0.6), "failed")
FEW = Measure(0.9, 20, (0.7, 1.0), "untested")
IDLE = Measure(None, 0, None, "untested")


def evidence(*lines: LineEvidence, **measures: Measure) -> Evidence:
    names = ("model_cut_down", "program", "edited", "attention", "interchange", "splice", "complement")
    found = Evidence(**dict.fromkeys(names, GOOD))
    return replace(found, **measures, lines=lines, has_cut_down=True)


def line(name: str = "a1", origin: str = "own", **measures: Measure | PartEffect) -> LineEvidence:
    found = LineEvidence(name, "layer 0 head 0", origin, interchange=GOOD, attention_cut_down=GOOD)
    return replace(found, **measures)


def test_what_makes_a_program_causal():
    named = line("s1", "named", interchange_cut_down=GOOD)
    assert not causal_reasons(evidence(line(), named))
    assert causal_reasons(evidence(line(), named, model_cut_down=BAD))
    assert causal_reasons(evidence(line(), named, program=BAD))
    assert causal_reasons(evidence(line(), named, edited=BAD))
    assert not causal_reasons(evidence(line(), named, edited=NOT_APPLICABLE))
    assert causal_reasons(evidence(line(attention_cut_down=BAD)))
    assert not causal_reasons(evidence(line(attention=BAD)))  # a name may harden what is soft
    assert not causal_reasons(evidence(line(interchange=BAD)))  # which is about what is left out
    assert causal_reasons(evidence(line("s1", "named", interchange_cut_down=BAD)))
    assert not causal_reasons(evidence(*(line(name, "named", interchange_cut_down=FEW) for name in ("s1", "s2"))))
    assert causal_reasons(evidence(line("s1", "named", interchange_cut_down=replace(FEW, value=0.6))))
    idle = line("s1", "named", interchange_cut_down=IDLE)
    assert not causal_reasons(evidence(idle))
    assert not causal_reasons(evidence(idle, edited=IDLE))
    # Where interchange is silent, what the weights are of has to show that a replacement is true.
    assert causal_reasons(evidence(replace(idle, attention=BAD)))
    assert not causal_reasons(evidence(line("a1", "named", interchange_cut_down=GOOD, attention=BAD)))
    assert causal_reasons(evidence(replace(idle, attention_cut_down=GOOD), edited=NOT_APPLICABLE)) == [
        "nothing shows that the lines that were replaced are true"
    ]


def test_without_the_model_cut_down_a_replaced_line_must_pass_in_the_model():
    good, bad = (replace(evidence(line("s1", "named", interchange=m)), has_cut_down=False) for m in (GOOD, BAD))
    assert not causal_reasons(good)
    assert causal_reasons(bad)


def test_what_makes_it_complete():
    assert not completeness_reasons(evidence(line()))
    assert completeness_reasons(evidence(line(interchange=BAD)))
    assert completeness_reasons(evidence(line(), complement=BAD))
    assert completeness_reasons(evidence(line(), complement=FEW))
    assert not completeness_reasons(evidence(line(), complement=NOT_APPLICABLE))
    assert not completeness_reasons(evidence(line(), line("a2", interchange=FEW), line("a3", interchange=IDLE)))
    assert completeness_reasons(evidence(line(), line("a2", interchange=FEW), line("a3", interchange=FEW)))
    assert completeness_reasons(evidence(line(interchange=IDLE)))


def test_a_named_select_is_judged_by_interchange():
    """A primitive in place of a tensor is named; whether it is true is measured."""
    transformer = lively(7, 1, 1)
    program = simplify(exact(transformer))
    chosen = next(
        s for s in program.statements if isinstance(s, Select) and {s.query.variable, s.key.variable} == {"pos"}
    )
    named = replace(chosen, op=PrimitiveTensor("diagonal"))
    wrong = replace(program, statements=tuple(named if s is chosen else s for s in program.statements))
    found = evaluate(wrong, transformer, ANSWERS, program, SMALL)
    assert found.line(chosen.name).origin == "named"
    assert found.line(chosen.name).interchange_cut_down is not None
    assert {found.line(s.name).origin for s in program.readers(chosen.name)} == {"named"}
    assert not found.causal


# ---------------------------------------------------------------------------------------------- command line


def saved(folder, program, pruned=None):
    folder.mkdir()
    for name, content in program_files(program).items():
        (folder / name).write_bytes(content)
    if pruned is not None:
        for suffix in ("drasp", "safetensors"):
            (folder / f"pruned.{suffix}").write_bytes(program_files(pruned)[f"program.{suffix}"])
    return folder


BIN_MAJORITY = """vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 154
a1 = aggregate(s=[], v=token)  # layer 0 head 0
logits1 = project(inp=a1, op={})  # layer 0 head 0 -> out
prediction = softmax(logits1)  # out"""


def test_verify_causal(tmp_path):
    good = parse(BIN_MAJORITY.format("(inp==out)"))
    shown = drasp("verify", saved(tmp_path / "good", good, good), "bin_majority", "--causal").out
    assert "layer 0 head 0" in shown
    assert "edited inputs" in shown
    assert "agreement, rest at its means" in shown
    assert "causal, sufficient" in shown or "causal, complete" in shown
    wrong = parse(BIN_MAJORITY.format("(0: 1=1; 1: 0=1)"))
    shown = drasp("verify", saved(tmp_path / "wrong", wrong, good), "bin_majority", "--causal").out
    assert "not causal" in shown
    assert "taken from" in shown
    assert "the model says" in shown
    found = json.loads(drasp("verify", tmp_path / "wrong", "bin_majority", "--causal", "--json").out)
    assert found["causal"]["has_cut_down"]
    assert not found["causal"]["causal"]
    assert known(Evidence.from_json(found["causal"]).line("logits1").interchange_cut_down).failed


def test_verify_causal_says_what_it_cannot_do(tmp_path):
    plain = parse(
        BIN_MAJORITY.format("(inp==out)").replace("  # layer 0 head 0 -> out", "").replace("  # layer 0 head 0", "")
    )
    shown = drasp("verify", saved(tmp_path / "plain", plain), "bin_majority", "--causal").out
    assert "do not say what of the model they stand for: a1, logits1" in shown
    assert "edited inputs" in shown
    elsewhere = parse(BIN_MAJORITY.format("(inp==out)").replace("layer 0 head 0", "layer 7 head 0"))
    failed = fails("verify", saved(tmp_path / "elsewhere", elsewhere), "bin_majority", "--causal")
    assert "line a1: the model has no layer 7 head 0" in failed


def test_a_dormant_path_is_a_note_on_its_line():
    dormant = PartEffect(part=0.4, component=0.01, pairs=200, dormant=True)
    found = evidence(line("a1", part=dormant), line("a2", part=replace(dormant, dormant=False)))
    assert Evidence.from_json(json.loads(json.dumps(found.to_json()))).line("a1").part == dormant
    console = Console(file=(out := io.StringIO()), width=200)
    print_evidence(console, parse(BIN_MAJORITY.format("(inp==out)")), found)
    [note] = [text for text in out.getvalue().splitlines() if "dormant" in text]
    assert note.startswith("a1 may be a dormant path")
    assert "40% of the answers, all of its component 1%" in note


def test_the_task_of_every_model_can_be_edited():
    """Whatever a task is, its trials can be drawn, and bases and sources are of one size."""
    for name in ("count", "addition", "unique_bigram_copy", "aaaastar"):
        task = TASKS[name]
        shape = (len(task.vocabulary), task.n_positions)
        model = lively_gpt2(0, 1, 1, task)
        trials = Trials.draw(load_model(model), task, Amount(4, 4), np.random.default_rng(0))
        assert len(trials) >= 4, (name, shape)
