"""What a test knows of the type of a value; where it is not so, the test fails here."""

from typing import TypeVar

from transformers import GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value, which is there."""
    assert value is not None
    return value


def of_kind(kind: type[T], value: object) -> T:
    """The value, which is of this class."""
    assert isinstance(value, kind), f"expected {kind.__name__}, found {value!r}"
    return value


def blocks_of(model: GPT2LMHeadModel) -> list[GPT2Block]:
    """The layers of a Hugging Face model."""
    return [of_kind(GPT2Block, block) for block in model.transformer.h]
