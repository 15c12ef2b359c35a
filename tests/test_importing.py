"""Checkpoints of TransformerLens and nanoGPT: imported as they compute, or refused in one line."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor
from transformers import GPT2LMHeadModel

from command import drasp, fails
from drasp.errors import DraspError
from drasp.importing import import_checkpoint
from drasp.lens import NEVER_SAID
from drasp.loading import fitted_task
from drasp.model_files import load_model
from drasp.tasks import TASKS
from drasp.transformer import Shape, assemble, initial_weights
from effort import examples
from other_libraries import HookedTransformer, NanoGpt, lens_config, lens_logits, lens_majority, lens_state
from random_models import logits_of, random_gpt2
from typed import known, of_kind

options = st.fixed_dictionaries(
    {
        "n_layers": st.integers(0, 3),
        "n_heads": st.integers(1, 3),
        "d_head": st.integers(1, 6),
        "d_model": st.sampled_from([4, 6, 8]),
        "d_vocab": st.integers(3, 7),
        "attn_only": st.booleans(),
        "act_fn": st.sampled_from(["relu", "gelu", "gelu_new", "silu"]),
        "normalization_type": st.sampled_from(["LN", "LNPre", "RMS", "RMSPre", None]),
        "use_attn_scale": st.booleans(),
        "scale_attn_by_inverse_layer_idx": st.booleans(),
        "eps": st.sampled_from([1e-5, 0.1]),
    }
)
seeds = st.integers(0, 2**32)


def some_ids(vocab: int, seed: int, length: int = 6) -> tuple[Tensor, Tensor]:
    ids = torch.randint(vocab, (3, length), generator=torch.Generator().manual_seed(seed))
    return ids, torch.arange(length).expand(3, length)


@examples(50)
@given(seed=seeds, options=options, outputs=st.sampled_from([None, 3, 8]))
def test_a_lens_model_computes_what_its_definition_says(seed, options, outputs):
    config = lens_config(**options, **({"d_vocab_out": outputs} if outputs else {}))
    state = lens_state(config, seed)
    transformer = load_model(HookedTransformer(state, config))
    ids, positions = some_ids(config["d_vocab"], seed)
    expected, found = lens_logits(state, config, ids), transformer(ids, positions)
    said = config["d_vocab_out"]
    torch.testing.assert_close(found[..., :said], expected, rtol=1e-9, atol=1e-9)
    assert (found[..., said:] == NEVER_SAID).all(), "what is never said has no other logit"


@pytest.mark.long
def test_fifty_models_of_transformer_lens_itself(tmp_path):
    """In a process of its own, with TransformerLens in a folder of its own: what it requires is much, and not used."""
    packages = ("transformer-lens<4", "einops", "fancy_einsum", "better_abc")
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "packages")
    subprocess.run([*install, *packages], check=True, timeout=600)
    path = os.pathsep.join([str(tmp_path / "packages"), *sys.path])
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("lens_models.py"), tmp_path],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) <= 1e-4


@examples(50)
@given(seed=seeds, layers=st.integers(0, 3), heads=st.integers(1, 3), bias=st.booleans())
def test_a_nanogpt_computes_what_it_did(tmp_path_factory, seed, layers, heads, bias):
    model = NanoGpt(seed, layers, heads, bias).eval()
    file = tmp_path_factory.mktemp("nanogpt") / "ckpt.pt"
    torch.save(model.checkpoint(), file)
    imported = import_checkpoint(file)
    ids, positions = some_ids(5, seed)
    found = assemble(imported.shape, dict(imported.weights))(ids, positions)
    torch.testing.assert_close(found, model(ids), rtol=1e-4, atol=1e-4)
    assert imported.shape.is_gpt2


def test_a_compiled_nanogpt_with_masks_and_an_unembedding_of_its_own(tmp_path):
    model = NanoGpt(3, layers=1, heads=2, bias=True).eval()
    state = {f"_orig_mod.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    state["_orig_mod.transformer.h.0.attn.bias"] = torch.ones(1, 1, 8, 8).tril()
    state["_orig_mod.lm_head.weight"] += 1
    torch.save(state, tmp_path / "model.pth")
    imported = import_checkpoint(tmp_path / "model.pth", heads=2)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 1)
    of_kind(torch.nn.Embedding, model.transformer["wte"]).weight = torch.nn.Parameter(model.lm_head.weight - 1)
    ids, positions = some_ids(5, 0)
    found = assemble(imported.shape, dict(imported.weights))(ids, positions)
    torch.testing.assert_close(found, model(ids), rtol=1e-4, atol=1e-4)
    assert not imported.shape.tied


# Configurations, and whether a GPT-2 folder can say them.
FORMS = {
    "folded layer norms": ({"normalization_type": "LNPre", "d_head": 4}, True),
    "silu": ({"act_fn": "silu", "d_head": 4}, True),
    "narrow heads": ({"d_head": 3}, False),
    "rms": ({"normalization_type": "RMS", "d_head": 4}, False),
    "no norm": ({"normalization_type": None, "d_head": 4}, False),
    "attention alone": ({"attn_only": True, "d_head": 4}, False),
    "fewer outputs": ({"d_vocab_out": 4, "d_head": 4}, False),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_command_writes_a_folder_that_computes_the_same(form, tmp_path):
    changes, is_gpt2 = FORMS[form]
    config = lens_config(**changes)
    state = lens_state(config, 5, torch.float32)
    if is_gpt2:
        state["unembed.b_U"].zero_()
    # `HookedTransformerConfig.to_dict` holds numbers of NumPy and a dtype.
    said = config | {"initializer_range": np.float64(0.28), "seed": np.int64(3), "dtype": torch.float32}
    torch.save({"state_dict": state, "cfg": said}, tmp_path / "model.pt")
    result = drasp("import", tmp_path / "model.pt", "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert "TransformerLens: 2 layers with 2 heads" in result.out
    assert f"wrote {'a GPT-2' if is_gpt2 else 'a model of drasp' + chr(39) + 's own form'} to" in result.out
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == ("gpt2" if is_gpt2 else "drasp")
    ids, positions = some_ids(5, 0)
    expected = lens_logits(state, config, ids)
    found = load_model(tmp_path / "out")(ids, positions)[..., : expected.shape[-1]]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if is_gpt2:
        model = GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
        torch.testing.assert_close(logits_of(model, ids, positions), expected, rtol=1e-4, atol=1e-4)


def test_what_a_bare_state_dict_does_not_say_is_asked_for(tmp_path):
    config = lens_config(normalization_type="LNPre", d_head=4)
    state = lens_state(config, 5, torch.float32)
    tensors = {name: tensor for name, tensor in state.items() if ".attn.mask" not in name}
    save_file(tensors, tmp_path / "model.safetensors")
    command = ["import", tmp_path / "model.safetensors", "--out", tmp_path / "out"]
    assert "does not say which norm it has, if any; give --norm layer, rms or none" in fails(*command)
    assert "does not say which activation its MLPs have; give --activation" in fails(*command, "--norm", "layer")
    result = drasp(*command, "--norm", "layer", "--activation", "relu")
    assert "assumed, since the file does not say: causal attention" in result.out
    ids, positions = some_ids(5, 0)
    torch.testing.assert_close(load_model(tmp_path / "out")(ids, positions), lens_logits(state, config, ids))
    torch.save(NanoGpt(0, 1, 2, True).state_dict(), tmp_path / "nano.pt")
    nano = ["import", tmp_path / "nano.pt", "--out", tmp_path / "nano"]
    assert "does not say how many heads a layer has; give --heads" in fails(*nano)
    assert "expected n_head to divide the 8 dimensions, found 3" in fails(*nano, "--heads", "3")
    assert "a nanoGPT, whose norm is layer" in fails(*nano, "--heads", "2", "--norm", "rms")
    assert drasp(*nano, "--heads", "2", "--quiet").out == ""


def test_options_do_not_contradict_a_file(tmp_path):
    config = lens_config(normalization_type="LN", d_head=4, act_fn="gelu_new")
    torch.save({"state_dict": lens_state(config, 5, torch.float32), "cfg": config}, tmp_path / "lens.pt")
    lens = ["import", tmp_path / "lens.pt", "--out", tmp_path / "out"]
    assert "--activation relu: " in (said := fails(*lens, "--activation", "relu"))
    assert said.endswith("lens.pt says act_fn 'gelu_new'")
    assert "lens.pt says normalization_type 'LN'" in fails(*lens, "--norm", "rms")
    assert "of TransformerLens, whose tensors say how many there are" in fails(*lens, "--heads", "2")
    assert drasp(*lens, "--norm", "layer", "--activation", "gelu_new").code == 0
    torch.save({"model": NanoGpt(0, 1, 2, True).state_dict(), "model_args": {"n_head": 2}}, tmp_path / "nano.pt")
    nano = ["import", tmp_path / "nano.pt", "--out", tmp_path / "nano"]
    assert "nano.pt says n_head 2" in fails(*nano, "--heads", "4")


def test_options_are_checked_before_files(tmp_path):
    command = ["import", tmp_path / "nothing.pt", "--out", tmp_path / "out"]
    assert "--activation tanh: no such activation; there are gelu_new, gelu, relu, silu" in fails(
        *command, "--activation", "tanh"
    )
    assert "--norm batch: no such norm; there are layer, rms and none" in fails(*command, "--norm", "batch")
    assert "nothing.pt: no such file; expected a checkpoint" in fails(*command)
    assert "expected a checkpoint, found a folder" in fails("import", tmp_path, "--out", tmp_path / "out")
    assert "exists already" in fails("import", tmp_path / "nothing.pt", "--out", tmp_path)


class Code:
    """What a pickle can hold: a call of anything."""

    def __reduce__(self):
        return eval, ("open('ran', 'w')",)


def without(name: str):
    return lambda state, config: state.pop(name)


DAMAGES = {
    "missing tensor": (without("blocks.1.attn.b_Q"), "tensor blocks.1.attn.b_Q is missing"),
    "missing norm": (without("blocks.1.ln2.w"), "tensor blocks.1.ln2.w is missing"),
    "missing MLP": (
        lambda s, c: [s.pop(name) for name in list(s) if ".0.mlp." in name],
        "tensor blocks.0.mlp.W_in is missing",
    ),
    "missing layer": (
        lambda s, c: [s.pop(name) for name in list(s) if name.startswith("blocks.0.")],
        "layer 0 is missing",
    ),
    "no positions": (without("pos_embed.W_pos"), "tensor pos_embed.W_pos is missing"),
    "shape": (
        lambda s, c: s.update({"blocks.0.attn.W_K": torch.zeros(2, 8, 4)}),
        "tensor blocks.0.attn.W_K has shape (2, 8, 4), expected (2, 8, 3)",
    ),
    "dimensions": (lambda s, c: s.update({"embed.W_E": torch.zeros(5)}), "has shape (5,), expected (any, any)"),
    "another tensor": (lambda s, c: s.update({"x.y": torch.zeros(2)}), "unexpected tensor x.y"),
    "nan": (lambda s, c: s["embed.W_E"].mul_(torch.nan), "holds NaN or infinite numbers"),
    "whole numbers": (lambda s, c: s.update({"unembed.W_U": torch.zeros(8, 5).int()}), "holds torch.int32"),
    "rotary": (
        lambda s, c: c.update(positional_embedding_type="rotary"),
        "its positions are rotary; only learnt ones, added to the embedding, can be read",
    ),
    "rotary by its tensors": (
        lambda s, c: s.update({"blocks.0.attn.rotary_sin": torch.zeros(2)}),
        "its positions are rotary",
    ),
    "other positions": (lambda s, c: c.update(positional_embedding_type="alibi"), "its positions are alibi"),
    "activation": (lambda s, c: c.update(act_fn="solu_ln"), "act_fn to be one of gelu_new, gelu, relu, silu, found"),
    "norm": (lambda s, c: c.update(normalization_type="BN"), "one of None, LN, LNPre, RMS, RMSPre, found 'BN'"),
    "another norm": (
        lambda s, c: c.update(normalization_type=None),
        "normalization_type is None, but there is",
    ),
    "both norms": (lambda s, c: c.update(final_rms=True), "final_rms is True"),
    "sizes": (lambda s, c: c.update(n_heads=4), "n_heads is 4, but by its tensors it is 2"),
    "direction": (lambda s, c: c.update(attention_dir="bidirectional"), "attention_dir is 'bidirectional'"),
    "parallel": (lambda s, c: c.update(parallel_attn_mlp=True), "parallel_attn_mlp is True"),
    "soft cap": (lambda s, c: c.update(attn_scores_soft_cap=30.0), "attn_scores_soft_cap is 30.0"),
    "gates": (lambda s, c: s.update({"blocks.0.mlp.W_gate": torch.zeros(2)}), "belongs to gated MLPs"),
    "scale": (lambda s, c: c.update(attn_scale="x"), "expected a positive number for attn_scale, found 'x'"),
    "eps": (lambda s, c: c.update(eps=None), "expected a small number for eps, found None"),
    "code": (lambda s, c: c.update(x=Code()), "a pickle that asks for"),
    "no tensors": (lambda s, c: s.clear(), "expected the tensors of a TransformerLens model"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_imported_is_refused_in_one_line(damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, message = DAMAGES[damage]
    config = lens_config()
    state = lens_state(config, 0, torch.float32)
    change(state, config)
    torch.save({"state_dict": state, "cfg": config}, tmp_path / "model.pt")
    line = fails("import", tmp_path / "model.pt", "--out", tmp_path / "out")
    assert message in line
    assert str(tmp_path / "model.pt") in line
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "ran").exists()


FILES = {
    "a list": (lambda file: torch.save([1, 2], file), "expected tensors by name (a state_dict), found list"),
    "a text": (lambda file: file.write_text("hello"), "torch cannot read it"),
    "nothing": (lambda file: file.write_bytes(b""), "torch cannot read it"),
    "half a file": (
        lambda file: (torch.save(lens_state(lens_config(), 0), file), file.write_bytes(file.read_bytes()[:3000])),
        "torch cannot read it",
    ),
    "a plain pickle": (lambda file: file.write_bytes(pickle.dumps({"x": Code()})), "model.pt: "),
    "a model": (lambda file: torch.save(NanoGpt(0, 1, 1, True), file), "a pickle that asks for"),
    "a GPT-2 of Hugging Face": (
        lambda file: torch.save(random_gpt2(0, layers=1, heads=2).state_dict(), file),
        "a GPT-2 of Hugging Face, and no nanoGPT",
    ),
    "a nanoGPT without positions": (
        lambda file: torch.save({k: v for k, v in NanoGpt(0, 1, 2, True).state_dict().items() if "wpe" not in k}, file),
        "only learnt positions can be read, no rotary or other ones",
    ),
    "a nanoGPT without a bias": (
        lambda file: torch.save(
            {k: v for k, v in NanoGpt(0, 1, 2, True).state_dict().items() if "c_fc.bias" not in k}, file
        ),
        "tensor transformer.h.0.mlp.c_fc.bias is missing",
    ),
    "a nanoGPT of another size": (
        lambda file: torch.save(
            NanoGpt(0, 1, 2, True).checkpoint() | {"model_args": {"n_layer": 2, "n_head": 2}}, file
        ),
        "n_layer is 2, but by its tensors it is 1",
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_other_files_are_refused_in_one_line(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write, message = FILES[kind]
    file = tmp_path / "model.pt"
    write(file)
    line = fails("import", file, "--out", tmp_path / "out", "--heads", "2")
    assert message in line
    assert str(file) in line
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "ran").exists()


KINDS = {
    "RMSNorm": {"normalization_type": "RMS"},
    "no norm": {"normalization_type": None},
    "attention alone": {"attn_only": True},
    "neither norm nor MLPs": {"attn_only": True, "normalization_type": None},
    "folded layer norms": {"normalization_type": "LNPre"},
}
MAJORITY = TASKS["bin_majority"]


def majority_config(**changes) -> dict:
    sizes = {"d_vocab": len(MAJORITY.vocabulary), "n_ctx": MAJORITY.n_positions, "d_model": 16}
    return lens_config(n_layers=1, n_heads=1, **sizes, **changes)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_an_imported_model_is_decompiled(kind, tmp_path):
    """One that counts, of every kind: from the checkpoint to the verdict."""
    config = majority_config(**KINDS[kind])
    state = lens_majority(config, MAJORITY.vocabulary.tokens)
    torch.save({"state_dict": state, "cfg": config}, tmp_path / "model.pt")
    assert drasp("import", tmp_path / "model.pt", "--out", tmp_path / "model").code == 0
    command = ["decompile", tmp_path / "model", "--task", "bin_majority", "--quick", "--json"]
    result = drasp(*command, "--out", tmp_path / "result")
    assert result.code == 0, result.err
    record = json.loads(result.out)
    assert record["verdict"] == "decompiled"
    assert record["match_accuracy"] >= 0.99
    assert record["lines"] <= 6
    assert (tmp_path / "result/report.html").is_file()


def test_only_importing_unpickles():
    """Nothing else of the package reads a pickle."""
    import drasp

    sources = Path(drasp.__file__).parent.rglob("*.py")
    readers = [file.name for file in sources if "torch.load(" in file.read_text() or "pickle.load" in file.read_text()]
    assert readers == ["importing.py"]


def test_models_in_memory_that_cannot_be_read_are_refused():
    config = lens_config(positional_embedding_type="rotary")
    with pytest.raises(DraspError, match="HookedTransformer: its positions are rotary"):
        load_model(HookedTransformer(lens_state(config, 0), config))


def test_decompile_takes_a_folder_and_models_in_memory(tmp_path):
    """What is read shows in what is refused: the task needs more positions than these models have."""
    from drasp.decompiler.pipeline import decompile

    gpt2 = random_gpt2(0, layers=1, heads=2, vocab=7)
    gpt2.float().save_pretrained(tmp_path)
    config = lens_config(d_vocab=7)
    for model in (tmp_path, str(tmp_path), gpt2, HookedTransformer(lens_state(config, 0), config), load_model(gpt2)):
        with pytest.raises(DraspError, match=r"bin_majority: needs 154 positions \(.*\), but the model has 8"):
            decompile(model, MAJORITY)


def test_a_language_on_a_model_with_more_tokens():
    """Answers are sets of tokens there, and those that only the model has are in none."""
    from drasp.measure import task_accuracy

    task, shape_of = TASKS["tomita1"], Shape(9, TASKS["tomita1"].n_positions, 4, 1, 1, 0, unembedding_bias=True)
    wide = fitted_task(task, assemble(shape_of, initial_weights(shape_of, 0)), "the model")
    inputs, narrow = (t.pool(20, np.random.default_rng(0)) for t in (wide, task))
    targets = known(inputs.targets)
    assert targets.shape[2] == 9
    assert torch.equal(targets[..., : len(task.vocabulary)], known(narrow.targets))
    assert not targets[..., len(task.vocabulary) :].any()
    assert torch.equal(inputs.ids, narrow.ids)
    weights = initial_weights(shape_of, 0)
    assert task_accuracy(assemble(shape_of, weights), inputs, task.output).total == 20
