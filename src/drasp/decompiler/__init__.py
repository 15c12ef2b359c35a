"""From a trained model to the smallest program that still answers like it."""
