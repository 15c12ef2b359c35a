"""Memory that is kept needs no new pages."""

import ctypes
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from drasp.memory import kept_memory

with kept_memory({largest}):
    for _ in range(10):
        torch.ones(8, 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(8, 2**20)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc's malloc is told to keep memory")
def test_what_was_freed_is_used_again():
    def faults(largest: int) -> int:
        code = FAULTS.format(largest=largest)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    assert 5 * faults(300**2) < faults(5000**2)  # memory of large tables goes back
