"""Which schedules a tuner may choose from.

`space_of` gives the space of a program: that of the module `cora.autotune.spaces.<name>`, if there is one for its
name, else the generic one, which is made from the definition alone.
"""

from cora.autotune.spaces.candidate import DEFAULT, Candidate, Space
from cora.autotune.spaces.lookup import space_of

__all__ = ["DEFAULT", "Candidate", "Space", "space_of"]
