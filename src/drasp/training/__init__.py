"""Trains small GPT-2s on tasks: the recipe, the loop, and what is kept on disk."""
