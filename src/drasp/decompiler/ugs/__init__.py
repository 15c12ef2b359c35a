"""The paper's own pruning: gates on graphs of three granularities, and the search of what an open gate costs."""
