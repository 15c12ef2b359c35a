"""`python -m drasp`: the command, where `drasp` is not on the path."""

from drasp.cli import main

if __name__ == "__main__":
    main()
