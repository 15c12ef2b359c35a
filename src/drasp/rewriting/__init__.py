"""From programs to programs: what pruning and naming both do to lines and tensors."""
