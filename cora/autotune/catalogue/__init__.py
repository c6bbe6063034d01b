"""Programs by name, for the command line: operators of the library, or of the user's own modules.

Each module here is one entry: `outputs()` gives the program, `batches(outputs)` batches to tune it on.
"""

from cora.autotune.catalogue.find import Entry, find, names

__all__ = ["Entry", "find", "names"]
