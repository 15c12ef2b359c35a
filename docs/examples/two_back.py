"""The token two before, over four letters: no special tokens, answers from the third position on."""

from drasp.tasks import sequence_task


def draw(rng, count):
    for _ in range(count):
        tokens = rng.integers(0, 4, rng.integers(3, 20)).tolist()
        yield tokens, range(2, len(tokens)), tokens[:-2]


two_back = sequence_task("two_back", ["a", "b", "c", "d"], draw, about="the token two before")
