"""How the process gets and gives back memory."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of glibc's `mallopt`, and numbers for them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_NEVER, _AT_ONCE = 2**31 - 1, 2**26
_LARGE = 2**22  # numbers of a table: the gaps that larger ones leave would fill the memory


@contextmanager
def kept_memory(largest_table: int) -> Iterator[None]:
    """Keeps the memory that tensors no longer need for the next ones, and gives it back in the end.

    By default glibc returns large blocks at once: getting their pages anew takes up to a sixth of a decompilation.
    It still does where tables are large. Other C libraries are left as they are.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and largest_table <= _LARGE:
        for parameter, number in ((_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _AT_ONCE), (_MMAP_MAX, 0)):
            libc.mallopt(parameter, number)
    try:
        yield
    finally:
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
