"""The names of a model's tokens, and which of them are special, such as BOS, SEP, EOS and PAD."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from drasp.errors import DraspError

# What turns logits into answers: the likeliest token, or the set of those that may come next.
Output: TypeAlias = Literal["softmax", "sigmoid"]

SPECIAL_TOKENS = ("BOS", "SEP", "EOS", "PAD")


@dataclass(frozen=True)
class Vocabulary:
    """Token `tokens[i]` has id i. Special tokens are treated apart by `special_op=`."""

    tokens: tuple[str, ...]
    special: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tokens:
            raise DraspError("a vocabulary needs at least one token")
        repeated = [token for token, times in Counter(self.tokens).items() if times > 1]
        if repeated:
            raise DraspError(f"the vocabulary names token {repeated[0]!r} more than once")
        broken = [token for token in self.tokens if any("\ud800" <= letter <= "\udfff" for letter in token)]
        if broken:
            raise DraspError(
                f"the vocabulary names token {broken[0]!r}, which holds half of a letter: no file can hold it"
            )
        unknown = [token for token in self.special if token not in self.ids]
        if unknown:
            raise DraspError(f"special token {unknown[0]!r} is not in the vocabulary")

    @classmethod
    def with_specials(cls, ordinary: tuple[str, ...]) -> "Vocabulary":
        """The convention of drasp's own tasks: ordinary tokens, then BOS, SEP, EOS, PAD."""
        return cls((*ordinary, *SPECIAL_TOKENS), SPECIAL_TOKENS)

    @classmethod
    def unnamed(cls, size: int) -> "Vocabulary":
        """A vocabulary for a model that comes without names: a token is called by its id."""
        return cls(tuple(str(index) for index in range(size)))

    def widened(self, size: int) -> "Vocabulary":
        """The same tokens, and special ones behind them that a model has beside these: `spare7` is the one of id 7."""
        spare = [f"spare{index}" for index in range(len(self), size)]
        names = tuple(name if name not in self.tokens else f"{name}_" for name in spare)
        return Vocabulary((*self.tokens, *names), (*self.special, *names))

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    @cached_property
    def ordinary(self) -> tuple[int, ...]:
        """The ids of the tokens that are not special."""
        return tuple(index for index, token in enumerate(self.tokens) if token not in self.special)

    @property
    def padding(self) -> int:
        """The id that stands where an input has ended: which one is all the same, since nothing looks there."""
        return self.ids.get("PAD", 0)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: list[str]) -> list[int]:
        """Ids of an input typed by a user."""
        unknown = [token for token in tokens if token not in self.ids]
        if unknown:
            known = ", ".join(self.tokens[:12]) + (", …" if len(self) > 12 else "")
            raise DraspError(f"token {unknown[0]!r} is not in the vocabulary; expected one of: {known}")
        return [self.ids[token] for token in tokens]
