"""Studies: many models trained and decompiled as one file says, on any number of machines, and their tables."""
