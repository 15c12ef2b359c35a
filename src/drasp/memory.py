"""How the process gets and gives back memory."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of glibc's `mallopt`, and numbers for them: the threshold is the largest that it takes.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_NEVER, _AT_ONCE, _LARGE = 2**31 - 1, 2**26, 2**25


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keeps the memory that tensors no longer need for the next ones, and gives it back in the end.

    By default glibc returns large blocks at once: getting their pages anew takes up to a sixth of a decompilation.
    Blocks of more than 32 MB still go back: models of usual size have hardly any, and kept ones leave gaps as large.
    Other C libraries are left as they are.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for parameter, number in ((_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _AT_ONCE), (_MMAP_THRESHOLD, _LARGE)):
            libc.mallopt(parameter, number)
    try:
        yield
    finally:
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
