"""`python -m cora`."""

import sys

try:
    from cora.cli.app import main
except ModuleNotFoundError as error:
    if error.name not in ("typer", "rich"):
        raise
    sys.exit(f"cora: the command line needs {error.name}: pip install 'cora-ragged[cli]'")

if __name__ == "__main__":
    main()
