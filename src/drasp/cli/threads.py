"""On how many threads the commands run."""

import torch


def one_thread() -> None:
    """Small tensors gain nothing by more, and sums, so results, would differ with the number of a machine's cores."""
    torch.set_num_threads(1)
