"""On how many threads the commands run."""

import torch


def one_thread() -> None:
    """Makes torch use one thread: small tensors gain nothing by more, and sums would differ between machines."""
    torch.set_num_threads(1)
