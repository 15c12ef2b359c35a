"""What drasp's own tasks draw is fixed: results, checkpoints and trained models depend on it."""

import hashlib

import numpy as np
import pytest

from drasp.tasks import EDITS, TASKS, Inputs
from typed import known

# Of inputs drawn, edited and drawn again with one generator, and of its state afterwards.
DRAWS = {
    "bin_majority": ("9811b6b98e4b5985", "62f406f0bf2c2601"),
    "bin_majority_interleave": ("f4ae3cd79861aa80", "c4506f73c7447e24"),
    "majority": ("8c630b9da33cec5d", "58f1858604d171fb"),
    "sort": ("3a7975c963c4f66c", "39cb787496efba9b"),
    "count": ("8b2e53123caeae67", "777b1c37a3d22529"),
    "unique_copy": ("14fdd2cdb8682e14", "c27ba491a1a5b674"),
    "unique_bigram_copy": ("b72cfa2e9f312f13", "2ce668341fa7af1d"),
    "unique_reverse": ("1b4f815bb21b1845", "474e973325451535"),
    "repeat_copy": ("8ead4f124d865f2f", "21e5117feb933c14"),
    "parity": ("01c8c5927aae6278", "ff4012bf38de9f21"),
    "addition": ("3a0c63f6c1d34e8b", "46d5038eaf5909ad"),
    "tomita1": ("c2be4a3d375c5125", "30cd1ae90a6be206"),
    "tomita2": ("fccfdba05a102c24", "89c224da61a6993e"),
    "tomita3": ("7db5cff71f49e03f", "bdbec89000586dc6"),
    "tomita4": ("9dea8d874e0c1728", "8fdb2383b11ff802"),
    "tomita5": ("0a6e9fb538b629ff", "e2a69f9849662b61"),
    "tomita6": ("257137c391259087", "4d8116aafacb457e"),
    "tomita7": ("253548edc14d1dac", "2376dc67ba30db88"),
    "D2": ("f25130c2b9ef34e5", "38124afd265ee4da"),
    "D3": ("bed11c63735bb422", "2c88ff41bb779029"),
    "D4": ("2cf8a5873e111a85", "135f743f8b9c4cc6"),
    "D12": ("b0e9c1bf6c6ceb58", "84558638aff9dca7"),
    "aastar": ("13ab5141562b5e64", "0586849373855c1c"),
    "aaaastar": ("de21857eac18e54d", "d43909bb106f1ee6"),
    "ababstar": ("12d30162ecfb50a6", "e158940c950b4b5b"),
    "abcde": ("14b70cf096ba33f5", "4112f957cd7f8b18"),
    "ab_d_bc": ("cf03ac3ebba86a16", "fe2dc3bb843e8a2e"),
    "012_0_2": ("97560ab963e59fbe", "fb0431ee3f9e0109"),
}


def digest(inputs: Inputs) -> str:
    made = hashlib.sha256()
    parts = (inputs.ids, inputs.sizes, inputs.lengths, inputs.offsets, inputs.counted, inputs.targets, inputs.positions)
    for part in map(known, parts):
        made.update(f"{part.dtype}{tuple(part.shape)}".encode())
        made.update(part.numpy().tobytes())
    return made.hexdigest()[:16]


@pytest.mark.parametrize("name", TASKS)
def test_draws_stay_what_they_were(name):
    task, rng = TASKS[name], np.random.default_rng(7)
    pool = task.pool(60, rng)
    found = [digest(pool), digest(task.pool(20, rng, *task.bins[0], random_offsets=False))]
    found.append(digest(task.inputs(pool.lengths.numpy()[:30], rng)))
    found += [digest(task.edited(pool, kind, rng)) for kind in EDITS]
    found.append(str(rng.integers(1 << 40)))
    whole = hashlib.sha256("".join(found).encode()).hexdigest()[:16]
    assert (whole, task.digest()[:16]) == DRAWS[name]


@pytest.mark.parametrize("name", ["sort", "D3"])
def test_another_input_for_each_is_one_of_its_length(name):
    """So that pairs for evidence stay what they were: they were drawn by `inputs`."""
    task = TASKS[name]
    pool = task.pool(40, np.random.default_rng(0))
    others = task.like(pool, np.random.default_rng(1))
    assert digest(others) == digest(task.inputs(pool.lengths.numpy(), np.random.default_rng(1)))
