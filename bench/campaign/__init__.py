"""What `faults.py` tries: bad inputs, signals and bad surroundings."""
