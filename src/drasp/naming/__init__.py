"""Naming: from a pruned program to one that a person reads."""
