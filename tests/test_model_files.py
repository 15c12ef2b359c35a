"""GPT-2 folders: read as Hugging Face reads them, or refused in one line."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model, OPTConfig, OPTForCausalLM

from drasp.errors import DraspError
from drasp.model_files import load_model, model_files, read_folder
from drasp.output_folder import write_files
from drasp.transformer import Shape, initial_weights
from effort import examples
from random_models import logits_of, random_gpt2


@examples(60)
@given(
    seed=st.integers(0, 2**32),
    layers=st.integers(1, 3),
    heads=st.integers(1, 3),
    activation=st.sampled_from(["gelu_new", "gelu", "relu", "silu", "gelu_pytorch_tanh", "gelu_fast"]),
    tied=st.booleans(),
    scaled=st.booleans(),
    by_layer=st.booleans(),
)
def test_forward_pass_is_that_of_hugging_face(seed, layers, heads, activation, tied, scaled, by_layer):
    model = random_gpt2(
        seed,
        layers,
        heads,
        activation=activation,
        tie_word_embeddings=tied,
        scale_attn_weights=scaled,
        scale_attn_by_inverse_layer_idx=by_layer,
    ).float()
    transformer = load_model(model)
    ids = torch.randint(5, (3, 6), generator=torch.Generator().manual_seed(seed))
    positions = torch.arange(6) + torch.tensor([[0], [1], [2]])
    torch.testing.assert_close(transformer(ids, positions), logits_of(model, ids, positions), rtol=1e-5, atol=1e-5)


@pytest.fixture
def folder(tmp_path) -> Path:
    random_gpt2(1, layers=1, heads=2).float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_folder_is_the_model_in_memory(tied, tmp_path):
    model = random_gpt2(1, layers=2, heads=2, tie_word_embeddings=tied).float()
    model.save_pretrained(tmp_path)
    ids, positions = torch.tensor([[0, 4, 2]]), torch.tensor([[3, 4, 5]])
    assert torch.equal(load_model(tmp_path)(ids, positions), load_model(model)(ids, positions))


def test_a_bare_gpt2_is_read_without_the_prefix(folder, tmp_path):
    GPT2Model.from_pretrained(folder).save_pretrained(tmp_path / "bare")
    ids, positions = torch.tensor([[0, 4, 2]]), torch.tensor([[3, 4, 5]])
    assert torch.equal(load_model(tmp_path / "bare")(ids, positions), load_model(folder)(ids, positions))


def test_a_model_in_several_files_is_the_same(tmp_path):
    model = random_gpt2(1, layers=2, heads=2).float()
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    assert not (tmp_path / "model.safetensors").exists()
    ids, positions = torch.tensor([[0, 4, 2]]), torch.tensor([[3, 4, 5]])
    assert torch.equal(load_model(tmp_path)(ids, positions), load_model(model)(ids, positions))


INDEX = "model.safetensors.index.json"


def edit_index(folder: Path, change) -> None:
    content = json.loads((folder / INDEX).read_text())
    change(content["weight_map"])
    (folder / INDEX).write_text(json.dumps(content))


SHARD_DAMAGES = {
    "a part is missing": (lambda f: next(f.glob("model-00002-*")).unlink(), "is missing, a part of the model"),
    "a tensor is missing": (
        lambda f: edit_index(f, lambda places: places.update({"transformer.x": places["transformer.wte.weight"]})),
        "tensor transformer.x is missing, which is there by model.safetensors.index.json",
    ),
    "a file elsewhere": (
        lambda f: edit_index(f, lambda places: places.update({"transformer.x": "../model.safetensors"})),
        "'../model.safetensors' is no file of this folder",
    ),
    "no places": (lambda f: (f / INDEX).write_text("{}"), "expected weight_map to give the file of each tensor"),
    "no index": (lambda f: (f / INDEX).write_text("["), "not readable as JSON"),
}


@pytest.mark.parametrize("damage", SHARD_DAMAGES)
def test_damaged_models_in_several_files_are_refused_in_one_line(damage, tmp_path):
    random_gpt2(1, layers=1, heads=2).float().save_pretrained(tmp_path, max_shard_size="1KB")
    change, message = SHARD_DAMAGES[damage]
    change(tmp_path)
    with pytest.raises(DraspError) as caught:
        load_model(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_every_precision(dtype, tmp_path):
    model = random_gpt2(1, layers=1, heads=2).to(dtype)
    model.save_pretrained(tmp_path)
    ids, positions = torch.tensor([[0, 4, 2]]), torch.tensor([[3, 4, 5]])
    expected = logits_of(model.double(), ids, positions)
    for found in (load_model(tmp_path), load_model(GPT2LMHeadModel.from_pretrained(tmp_path, dtype=dtype))):
        assert found.token_embedding.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(found(ids, positions).double(), expected, rtol=1e-4, atol=1e-4)


def test_weights_of_several_precisions_become_one(folder):
    edit_weights(folder, lambda tensors: tensors.update({WTE: tensors[WTE].double(), LN: tensors[LN].bfloat16()}))
    ids, positions = torch.tensor([[0, 4, 2]]), torch.tensor([[3, 4, 5]])
    assert load_model(folder)(ids, positions).dtype == torch.float64


def test_what_we_write_hugging_face_reads(tmp_path):
    shape = Shape(n_vocab=7, n_positions=9, d_model=8, n_layers=2, n_heads=2, d_hidden=12, activation="relu")
    weights = {name: tensor + 0.1 for name, tensor in initial_weights(shape, seed=3).items()}
    write_files(tmp_path, model_files(shape, weights))
    assert read_folder(tmp_path)[0] == shape
    ids, positions = torch.tensor([[0, 6, 2]]), torch.tensor([[3, 4, 5]])
    model = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(load_model(tmp_path)(ids, positions), logits_of(model, ids, positions))


def test_initial_weights_are_spread_as_hugging_faces():
    shape = Shape(n_vocab=50, n_positions=60, d_model=64, n_layers=2, n_heads=2, d_hidden=256)
    ours = initial_weights(shape, seed=0)
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=60, n_embd=64, n_layer=2, n_head=2)).state_dict()
    for name, tensor in ours.items():
        assert tensor.std().item() == pytest.approx(theirs[name].std().item(), rel=0.1, abs=1e-9), name
        assert tensor.mean().item() == pytest.approx(theirs[name].mean().item(), abs=0.002), name


def edit_config(folder: Path, **changes) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def edit_weights(folder: Path, change) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


WTE, LN = "transformer.wte.weight", "transformer.ln_f.weight"

DAMAGES = {
    "another architecture": (lambda f: edit_config(f, model_type="opt"), "'gpt2' or 'drasp', found 'opt'"),
    "rotary positions": (lambda f: edit_config(f, model_type="llama"), "found 'llama': its positions are rotary"),
    "cross-attention": (lambda f: edit_config(f, add_cross_attention=True), "the model has cross-attention"),
    "heads": (lambda f: edit_config(f, n_head=3), "n_embd 8 is not divisible by n_head 3"),
    "activation": (lambda f: edit_config(f, activation_function="tanh"), "found 'tanh'"),
    "no size": (lambda f: edit_config(f, n_embd=...), "expected a positive whole number for n_embd, found None"),
    "size of another kind": (lambda f: edit_config(f, n_layer="1"), "whole number for n_layer, found '1'"),
    "flag": (lambda f: edit_config(f, scale_attn_weights=1), "expected true or false for scale_attn_weights, found 1"),
    "eps": (lambda f: edit_config(f, layer_norm_epsilon="x"), "layer_norm_epsilon, found 'x'"),
    "more layers than tensors": (lambda f: edit_config(f, n_layer=2), "tensor transformer.h.1.ln_1.weight is missing"),
    "fewer layers than tensors": (lambda f: edit_config(f, n_layer=0), "unexpected tensor transformer.h.0"),
    "shape": (lambda f: edit_config(f, vocab_size=6), "wte.weight has shape (5, 8), expected (6, 8)"),
    "own unembedding": (lambda f: edit_config(f, tie_word_embeddings=False), "tensor lm_head.weight is missing"),
    "no config": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "broken config": (lambda f: (f / "config.json").write_text("{"), "not readable as JSON"),
    "config of another kind": (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object, found a list"),
    "missing tensor": (lambda f: edit_weights(f, lambda t: t.pop(LN)), f"tensor {LN} is missing"),
    "nan": (lambda f: edit_weights(f, lambda t: t[WTE].mul_(float("nan"))), f"{WTE} holds NaN or infinite numbers"),
    "whole numbers": (lambda f: edit_weights(f, lambda t: t.update({WTE: t[WTE].int()})), "holds torch.int32"),
    "another tensor": (
        lambda f: edit_weights(f, lambda t: t.update({"x": t[LN] + 1})),
        "unexpected tensor transformer.x",
    ),
    "truncated": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]),
        "not a whole safetensors file",
    ),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a whole safetensors file"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no model.safetensors"),
    "a pickle": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "found pytorch_model.bin, a pickle, which could run code when read",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_refused_in_one_line(damage, folder):
    change, message = DAMAGES[damage]
    change(folder)
    with pytest.raises(DraspError) as caught:
        load_model(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_other_things_are_refused(tmp_path):
    with pytest.raises(DraspError, match="expected a model's folder, found nothing"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(DraspError, match="expected a model's folder, found a file"):
        load_model(tmp_path / "file")
    with pytest.raises(DraspError, match="a GPT2LMHeadModel or a HookedTransformer, found int"):
        load_model(cast(Any, 3))
    other = OPTForCausalLM(
        OPTConfig(
            vocab_size=5, hidden_size=8, ffn_dim=8, num_hidden_layers=1, num_attention_heads=1, word_embed_proj_dim=8
        )
    )
    with pytest.raises(DraspError, match="OPTForCausalLM: expected model_type 'gpt2' or 'drasp', found 'opt'"):
        load_model(cast(Any, other))
