"""Length classes: which batches may share a tuned schedule.

For each length function: the number of entries, their total and their maximum in powers of two, and how skewed they
are: the mean over the maximum, in four buckets. For each size: its power of two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cora.autotune.batches import Batch
from cora.errors import UserError

__all__ = ["LengthClass", "class_of", "distance", "parse_class"]

#: Lower ends of the skew buckets 1 to 3 of mean / maximum; bucket 3 is uniform, bucket 0 one giant among tiny ones.
_SKEW = (0.25, 0.5, 0.9)
#: How much one bucket of skew counts against one power of two.
_SKEW_WEIGHT = 1
_ENTRY = re.compile(r"(\w+):c(\d+)t(\d+)m(\d+)s(\d)$|(\w+)=(\d+)$")


@dataclass(frozen=True, slots=True)
class LengthClass:
    """functions: name, bits of count, total and maximum, bucket of skew. sizes: name, bits of the value."""

    functions: tuple[tuple[str, int, int, int, int], ...]
    sizes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        parts = [f"{n}:c{c}t{t}m{m}s{s}" for n, c, t, m, s in self.functions]
        return ",".join([*parts, *(f"{n}={b}" for n, b in self.sizes)]) or "any"


def class_of(batch: Batch) -> LengthClass:
    """The class of a batch."""
    functions = []
    for name, values in batch.lengths:
        count, total, longest = len(values), sum(values), max(values, default=0)
        share = total / (count * longest) if longest else 1.0
        skew = sum(share >= edge for edge in _SKEW)
        functions.append((name, count.bit_length(), total.bit_length(), longest.bit_length(), skew))
    return LengthClass(tuple(functions), tuple((n, v.bit_length()) for n, v in batch.sizes))


def parse_class(text: str) -> LengthClass:
    """The class that prints as `text`. Raises UserError if there is none."""
    functions, sizes = [], []
    for entry in text.split(",") if text != "any" else ():
        found = _ENTRY.match(entry)
        if found is None:
            raise UserError(f"length class: expected name:c..t..m..s.. or name=..; got {entry!r}")
        if found[6]:
            sizes.append((found[6], int(found[7])))
        else:
            functions.append((found[1], int(found[2]), int(found[3]), int(found[4]), int(found[5])))
    return LengthClass(tuple(functions), tuple(sizes))


def distance(a: LengthClass, b: LengthClass) -> float:
    """How far apart two classes are, in powers of two; infinite for classes of different programs."""
    if [f[0] for f in a.functions] != [f[0] for f in b.functions] or [s[0] for s in a.sizes] != [
        s[0] for s in b.sizes
    ]:
        return float("inf")
    far = 0
    for mine, other in zip(a.functions, b.functions, strict=True):
        far += sum(abs(x - y) for x, y in zip(mine[1:4], other[1:4], strict=True))
        far += _SKEW_WEIGHT * abs(mine[4] - other[4])
    return float(far + sum(abs(x[1] - y[1]) for x, y in zip(a.sizes, b.sizes, strict=True)))
