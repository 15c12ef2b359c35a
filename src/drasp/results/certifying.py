"""What can be proved of a result in a little time: its answers on all inputs up to a length."""

from dataclasses import replace

from drasp.certificates import certified
from drasp.decompiler.result import Decompiled
from drasp.tasks import Task
from drasp.transformer import Transformer

_SHARE = 0.2  # of the time that the search took
_LEAST, _MOST = 1.0, 5.0  # seconds


def with_certificate(found: Decompiled, transformer: Transformer, task: Task) -> Decompiled:
    """The result with a certificate for the greatest length that there is time for, where there can be one."""
    seconds = min(max(_LEAST, _SHARE * found.seconds), _MOST)
    made = certified(found.program, transformer, task, seconds)
    return found if made is None else replace(found, certificate=made.record)
