"""Models of other libraries, spelt out from their definitions: what importing is compared with.

Nothing of drasp is used here. A model of TransformerLens is its state dict and its configuration; a nanoGPT is a plain
PyTorch module whose state dict has nanoGPT's layout.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from typed import of_kind

State = dict[str, Tensor]

LENS_ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * torch.sigmoid(x),
}


def lens_config(**changes: Any) -> dict[str, Any]:
    """A configuration by TransformerLens's names."""
    plain = {
        "n_layers": 2,
        "d_model": 8,
        "n_ctx": 8,
        "d_head": 3,
        "n_heads": 2,
        "d_mlp": 12,
        "d_vocab": 5,
        "d_vocab_out": 5,
        "act_fn": "relu",
        "attn_only": False,
        "normalization_type": "LN",
        "eps": 1e-5,
        "use_attn_scale": True,
        "scale_attn_by_inverse_layer_idx": False,
        "positional_embedding_type": "standard",
        "attention_dir": "causal",
    }
    config = plain | changes
    if "d_vocab_out" not in changes:
        config["d_vocab_out"] = config["d_vocab"]
    return config


def lens_state(config: dict[str, Any], seed: int, dtype: torch.dtype = torch.float64) -> State:
    """Random tensors, by TransformerLens's names, far from their initial calm."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*size: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(size, generator=generator, dtype=torch.float64) * scale).to(dtype)

    d, heads, width, hidden = (config[key] for key in ("d_model", "n_heads", "d_head", "d_mlp"))
    state = {"embed.W_E": drawn(config["d_vocab"], d), "pos_embed.W_pos": drawn(config["n_ctx"], d)}

    def norm(name: str) -> None:
        if config["normalization_type"] in ("LN", "RMS"):
            state[f"{name}.w"] = 1 + drawn(d, scale=0.3)
        if config["normalization_type"] == "LN":
            state[f"{name}.b"] = drawn(d, scale=0.5)

    for i in range(config["n_layers"]):
        norm(f"blocks.{i}.ln1")
        for side in "QKV":
            state[f"blocks.{i}.attn.W_{side}"] = drawn(heads, d, width, scale=d**-0.5)
            state[f"blocks.{i}.attn.b_{side}"] = drawn(heads, width, scale=0.5)
        state[f"blocks.{i}.attn.W_O"] = drawn(heads, width, d, scale=width**-0.5)
        state[f"blocks.{i}.attn.b_O"] = drawn(d, scale=0.5)
        state[f"blocks.{i}.attn.mask"] = torch.ones(config["n_ctx"], config["n_ctx"]).tril().bool()
        state[f"blocks.{i}.attn.IGNORE"] = torch.tensor(-torch.inf)
        if not config["attn_only"]:
            norm(f"blocks.{i}.ln2")
            state[f"blocks.{i}.mlp.W_in"] = drawn(d, hidden, scale=d**-0.5)
            state[f"blocks.{i}.mlp.b_in"] = drawn(hidden, scale=0.5)
            state[f"blocks.{i}.mlp.W_out"] = drawn(hidden, d, scale=hidden**-0.5)
            state[f"blocks.{i}.mlp.b_out"] = drawn(d, scale=0.5)
    norm("ln_final")
    state["unembed.W_U"] = drawn(d, config["d_vocab_out"], scale=d**-0.5)
    state["unembed.b_U"] = drawn(config["d_vocab_out"], scale=0.5)
    return state


@torch.no_grad()
def lens_logits(state: State, config: dict[str, Any], ids: Tensor) -> Tensor:
    """What TransformerLens's documentation says such a model computes, head by head, from position 0 on."""

    def normed(name: str, x: Tensor) -> Tensor:
        kind = config["normalization_type"]
        if kind in ("LN", "LNPre"):
            x = x - x.mean(-1, keepdim=True)
        if kind is not None:
            x = x / (x.pow(2).mean(-1, keepdim=True) + config["eps"]).sqrt()
        return x * state.get(f"{name}.w", torch.tensor(1.0)) + state.get(f"{name}.b", torch.tensor(0.0))

    length = ids.shape[1]
    x = state["embed.W_E"][ids] + state["pos_embed.W_pos"][:length]
    future = torch.ones(length, length).triu(1).bool()
    for i in range(config["n_layers"]):
        read, written = normed(f"blocks.{i}.ln1", x), torch.zeros_like(x)
        divisor = config.get("attn_scale", math.sqrt(config["d_head"])) if config["use_attn_scale"] else 1.0
        divisor = divisor * (i + 1) if config["scale_attn_by_inverse_layer_idx"] else divisor
        for h in range(config["n_heads"]):
            q, k, v = (
                read @ state[f"blocks.{i}.attn.W_{side}"][h] + state[f"blocks.{i}.attn.b_{side}"][h] for side in "QKV"
            )
            weights = (q @ k.transpose(1, 2) / divisor).masked_fill(future, -torch.inf).softmax(-1)
            written = written + weights @ v @ state[f"blocks.{i}.attn.W_O"][h]
        x = x + written + state[f"blocks.{i}.attn.b_O"]
        if not config["attn_only"]:
            hidden = normed(f"blocks.{i}.ln2", x) @ state[f"blocks.{i}.mlp.W_in"] + state[f"blocks.{i}.mlp.b_in"]
            act = LENS_ACTIVATIONS[config["act_fn"]]
            x = x + act(hidden) @ state[f"blocks.{i}.mlp.W_out"] + state[f"blocks.{i}.mlp.b_out"]
    return normed("ln_final", x) @ state["unembed.W_U"] + state["unembed.b_U"]


class HookedTransformer:
    """As drasp sees one in memory: `cfg` and a state dict."""

    class Config:
        def __init__(self, config: dict[str, Any]) -> None:
            self.__dict__.update(config)

    def __init__(self, state: State, config: dict[str, Any]) -> None:
        self.state, self.cfg = state, self.Config(config)

    def state_dict(self) -> State:
        return self.state


class _Block(nn.Module):
    def __init__(self, d: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = (nn.LayerNorm(d, bias=bias) for _ in range(2))
        attention = {"c_attn": nn.Linear(d, 3 * d, bias=bias), "c_proj": nn.Linear(d, d, bias=bias)}
        mlp = {"c_fc": nn.Linear(d, 4 * d, bias=bias), "c_proj": nn.Linear(4 * d, d, bias=bias)}
        self.attn, self.mlp = nn.ModuleDict(attention), nn.ModuleDict(mlp)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, d = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(d, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, length, d))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGpt(nn.Module):
    """A GPT with nanoGPT's names and layout, its unembedding tied to its embedding."""

    def __init__(self, seed: int, layers: int, heads: int, bias: bool, d_head: int = 4, vocab: int = 5, size: int = 8):
        super().__init__()
        d = heads * d_head
        self.arguments = {"n_layer": layers, "n_head": heads, "n_embd": d, "block_size": size, "bias": bias}
        self.arguments |= {"vocab_size": vocab, "dropout": 0.0}
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, d),
                "wpe": nn.Embedding(size, d),
                "h": nn.ModuleList(_Block(d, heads, bias) for _ in range(layers)),
                "ln_f": nn.LayerNorm(d, bias=bias),
            }
        )
        self.lm_head = nn.Linear(d, vocab, bias=False)
        of_kind(nn.Embedding, self.transformer["wte"]).weight = self.lm_head.weight
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.parameters():
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))

    @torch.no_grad()
    def forward(self, ids: Tensor) -> Tensor:
        body = self.transformer
        x = body["wte"](ids) + body["wpe"](torch.arange(ids.shape[1]))
        for block in of_kind(nn.ModuleList, body["h"]):
            x = block(x)
        return self.lm_head(body["ln_f"](x))

    def checkpoint(self) -> dict[str, Any]:
        """What nanoGPT's training writes, but for the optimizer's state."""
        return {"model": self.state_dict(), "model_args": self.arguments, "iter_num": 3, "config": {"device": "cpu"}}


def lens_majority(config: dict[str, Any], tokens: tuple[str, ...], noise: float = 0.003) -> State:
    """A model of TransformerLens that says the more frequent of 0 and 1 after SEP, and EOS after that.

    Each of four features is a pair of dimensions of which one is the negative of the other, so that norms scale it and
    do no more: which of the two a token is, whether it is SEP, and what uniform attention makes of both.
    """
    state = {
        name: tensor * noise for name, tensor in lens_state(config, 0, torch.float32).items() if "attn.I" not in name
    }
    for name in state:
        if name.endswith(".w"):
            state[name] = 1 + state[name]
    ids = {token: i for i, token in enumerate(tokens)}
    kind, is_sep, mean_kind, mean_sep = torch.zeros(4, config["d_model"]).unbind()
    for i, feature in enumerate((kind, is_sep, mean_kind, mean_sep)):
        feature[2 * i], feature[2 * i + 1] = 1.0, -1.0
    state["embed.W_E"][ids["1"]] += kind
    state["embed.W_E"][ids["0"]] -= kind
    state["embed.W_E"][ids["SEP"]] += is_sep
    state["blocks.0.attn.W_V"][0, :, :2] += torch.stack([kind, is_sep], 1) / 2
    state["blocks.0.attn.W_O"][0, :2] += torch.stack([mean_kind, mean_sep])
    state["unembed.W_U"][:, ids["1"]] += 5 * mean_kind
    state["unembed.W_U"][:, ids["0"]] -= 5 * mean_kind
    state["unembed.W_U"][:, ids["EOS"]] += 2000 * mean_sep - 4000 * is_sep
    return state
