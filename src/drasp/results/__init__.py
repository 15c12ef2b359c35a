"""Results as one looks at them in Python: printed, indexed by line, run on an input, drawn."""
