"""The translation is exact: against Hugging Face's own forward pass, on models of every form."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drasp.decompiler.pipeline import decompile
from drasp.edits import Edit, Replaced
from drasp.errors import DraspError
from drasp.language import Interpreter, check, to_python
from drasp.model_files import load_model
from drasp.program_writer import MAX_NUMBERS, TooLargeError
from drasp.running import run
from drasp.sequences import Sequences
from drasp.settings import QUICK
from drasp.sites import OUT, NormSite, Receiver, Site
from drasp.tasks import TASKS
from drasp.transformer import Shape, assemble, initial_weights
from drasp.translation import MAX_LINES, theorem_lines, translate, translation_size
from drasp.vocabulary import Vocabulary
from drasp.wiring import write_program
from drasp.zoo import ZOO_FOLDER
from effort import examples, in_both, part
from published import MODELS, needs_published_models
from random_models import linearise, logits_of, random_gpt2

# Layers and heads, and how many models of that size: 325 in all. The largest programs have 6,000 lines.
SIZES = {(1, 1): 50, (1, 2): 50, (1, 3): 50, (2, 1): 45, (2, 2): 45, (2, 3): 45, (3, 1): 30, (3, 2): 8, (3, 3): 2}
every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]} layers {size[1]} heads")


def inputs(vocab: int, positions: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    length = positions - 2
    ids = torch.randint(vocab, (3, length), generator=generator)
    return ids, torch.arange(length) + torch.tensor([[0], [1], [2]])


options = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "d_head": st.sampled_from([1, 2, 4, 8, 10]),
        "activation": st.sampled_from(["gelu_new", "gelu", "relu"]),
        "tie_word_embeddings": st.booleans(),
        "scale_attn_weights": st.booleans(),
        "scale_attn_by_inverse_layer_idx": st.booleans(),
        "n_inner": st.sampled_from([None, 5]),
        "layer_norm_epsilon": st.sampled_from([1e-5, 0.1]),
    }
)


def constant_norms(layers: int, constants: Sequence[float | None]) -> dict[Site, Edit]:
    """Edits of the norms, in the order of the forward pass; None for those that stay."""
    norms = [NormSite(Receiver(layer, kind)) for layer in range(layers) for kind in ("attention", "mlp")]
    pairs = zip([*norms, NormSite(OUT)], constants, strict=True)
    return {site: Replaced(constant) for site, constant in pairs if constant is not None}


@in_both
@every_size
def test_random_models_have_the_logits_of_hugging_face(size):
    @settings(max_examples=part(SIZES[size]))
    @given(options=options)
    def check_one(options):
        model = random_gpt2(layers=size[0], heads=size[1], **options)
        transformer = load_model(model)
        program = translate(transformer)
        assert program.lines == translation_size(transformer).total
        assert sum(tensor.numel() for tensor in program.tensors.values()) == translation_size(transformer).numbers
        ids, positions = inputs(5, 8, options["seed"])
        difference = Interpreter(program, torch.float64)(ids, positions) - logits_of(model, ids, positions)
        assert difference.abs().max() <= 1e-4

    check_one()


@in_both
@every_size
def test_linear_norms_have_the_logits_of_a_model_with_linear_norms(size):
    @settings(max_examples=part(SIZES[size]))
    @given(options=options, constants=st.lists(st.floats(0.5, 20), min_size=7, max_size=7))
    def check_one(options, constants):
        model = random_gpt2(layers=size[0], heads=size[1], **options)
        constants = constants[: 2 * size[0] + 1]
        transformer, edits = load_model(model), constant_norms(size[0], constants)
        linearise(model, constants)
        program = translate(transformer, edits=edits)
        assert translation_size(transformer, edits).norms == 0
        assert program.lines == translation_size(transformer, edits).total
        ids, positions = inputs(5, 8, options["seed"])
        expected = logits_of(model, ids, positions)
        difference = Interpreter(program, torch.float64)(ids, positions) - expected
        assert difference.abs().max() <= 1e-4 * max(1.0, float(expected.abs().max()))

    check_one()


@examples(30)
@given(seed=st.integers(0, 2**32), which=st.lists(st.booleans(), min_size=5, max_size=5))
def test_exact_and_linear_norms_can_be_mixed(seed, which):
    transformer = load_model(random_gpt2(seed, layers=2, heads=2))
    edits = constant_norms(2, [1.5 if linear else None for linear in which])
    program = translate(transformer, edits=edits)
    assert program.lines == translation_size(transformer, edits).total
    ids, positions = inputs(5, 8, seed)
    expected = run(transformer, Sequences(ids, positions), edits).logits
    torch.testing.assert_close(Interpreter(program, torch.float64)(ids, positions), expected)


def test_line_counts_of_the_papers_formula():
    assert theorem_lines(1, 4, split_mlps=True) == 56
    assert theorem_lines(4, 4, split_mlps=True) == 16_201_616
    assert theorem_lines(1, 4) == 38
    assert theorem_lines(4, 4) == 331_700


def test_biases_and_exact_norms_are_counted_apart():
    size = translation_size(load_model(random_gpt2(0, layers=1, heads=4)))
    # A key-only select for each of two variables and four heads; two norms, and the constant's own project.
    assert (size.theorem, size.biases, size.norms) == (38, 8, 3)


def test_a_program_that_is_too_long_is_refused_with_its_size():
    shape = Shape(n_vocab=5, n_positions=6, d_model=8, n_layers=4, n_heads=4, d_hidden=8)
    transformer = assemble(shape, initial_weights(shape, seed=0))
    size = translation_size(transformer)
    assert size.theorem == 331_700
    with pytest.raises(DraspError, match=rf"would have {size.total:,} lines .*at most {MAX_LINES:,} lines are built"):
        translate(transformer)


def test_a_program_whose_tensors_are_too_large_is_refused_with_their_size():
    shape = Shape(n_vocab=5000, n_positions=2000, d_model=4, n_layers=2, n_heads=1, d_hidden=4)
    transformer = assemble(shape, initial_weights(shape, seed=0))
    size = translation_size(transformer)
    assert size.numbers > 7000**2 + 14_000**2 + 28_000 * 5000
    said = rf"tensors of {size.numbers:,} numbers \(1\.\d GB\); programs of at most {MAX_NUMBERS:,} are built"
    with pytest.raises(DraspError, match=said):
        translate(transformer)


def test_a_model_is_decompiled_whose_translation_would_be_too_large(monkeypatch):
    """Where heads look from positions to positions is the largest table, and not in the program that is left."""
    monkeypatch.setattr("drasp.program_writer.MAX_NUMBERS", 20_000)
    with pytest.raises(TooLargeError, match="more than 20,000 numbers, one of them of 154 by 154"):
        write_program(load_model(ZOO_FOLDER / "bin_majority"), {}, TASKS["bin_majority"].vocabulary, "softmax")
    found = decompile(ZOO_FOLDER / "bin_majority", TASKS["bin_majority"], settings=QUICK)
    assert (found.verdict, found.program.lines) == ("decompiled", 3)


def test_a_model_without_layers_is_one_project():
    shape = Shape(n_vocab=5, n_positions=6, d_model=8, n_layers=0, n_heads=2, d_hidden=8)
    transformer = assemble(shape, initial_weights(shape, seed=0))
    program = translate(transformer)
    ids, positions = inputs(5, 6, 0)
    assert program.lines == translation_size(transformer).total == theorem_lines(0, 2) + 1
    torch.testing.assert_close(Interpreter(program)(ids, positions), transformer(ids, positions))


def test_a_vocabulary_of_another_size_is_refused():
    with pytest.raises(DraspError, match="the vocabulary has 2 tokens, but the model has 5"):
        translate(load_model(random_gpt2(0, layers=1, heads=1)), Vocabulary(("a", "b")))


@pytest.mark.long
@needs_published_models
@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_published_models_as_standalone_python(folder, tmp_path):
    """In another interpreter, where nothing but NumPy can be imported; at random offsets."""
    from transformers import GPT2LMHeadModel

    transformer = load_model(folder)
    program = translate(transformer)
    assert check(program) == []
    (tmp_path / "program.py").write_text(to_python(program))
    rng = np.random.default_rng(7)
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    rows, expected = [], []
    for _ in range(3):
        length = int(rng.integers(2, min(101, transformer.n_positions)))
        ids = rng.integers(transformer.n_vocab, size=length)
        offset = int(rng.integers(transformer.n_positions - length + 1))
        rows.append((ids.tolist(), offset))
        positions = torch.arange(offset, offset + length)[None]
        expected.append(logits_of(model, torch.tensor(ids)[None], positions)[0].numpy())
    for (ids, offset), wanted, found in zip(rows, expected, run_standalone(tmp_path, rows), strict=True):
        assert np.abs(found - wanted).max() <= 1e-3, (ids, offset)


def run_standalone(folder: Path, rows: list[tuple[list[int], int]]) -> list[np.ndarray]:
    script = f"""
import sys
for name in ("torch", "safetensors", "drasp", "lark"):
    sys.modules[name] = None  # importing it would fail
import numpy, program
numpy.savez("logits.npz", *[program.logits(ids, offset) for ids, offset in {rows!r}])
"""
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)
    with np.load(folder / "logits.npz") as saved:
        return [saved[name] for name in saved.files]
