"""The command line, `python -m cora`."""
