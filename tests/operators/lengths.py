"""Hostile lengths: empty, zero, one, around every tile, one giant among many tiny, all equal."""

from __future__ import annotations

from tests.operators.harness import Batch


def hostile(*tiles: int, giant: int = 300) -> tuple[tuple[int, ...], ...]:
    """Length arrays for one ragged dim, with T-1, T and T+1 for each tile T, alone and among others."""
    around = sorted({n for t in tiles for n in (t - 1, t, t + 1)})
    return (
        (),
        (0,),
        (0, 0),
        (0, 3, 0, 0),
        (1,),
        (5, 5, 5, 5),
        (1, 0, 2, 1, 1, giant, 1, 0, 1, 2, 1, 1),
        *((n,) for n in around),
        tuple(around),
        (*reversed(around), 0),
        *((t,) * 3 for t in tiles),
    )


def rows(*tiles: int, giant: int = 300, **sizes: int) -> tuple[Batch, ...]:
    """`hostile` as batches of one length function `lens`."""
    return tuple(Batch({"lens": lens}, {"M": len(lens), **sizes}) for lens in hostile(*tiles, giant=giant))


def pairs(first: str, second: str, *tiles: int, giant: int = 40, **sizes: int) -> tuple[Batch, ...]:
    """`hostile` for two length functions over the same batch, of different lengths."""
    batches = []
    for number, lens in enumerate(hostile(*tiles, giant=giant)):
        turned = (*lens[1:], *lens[:1])
        shorter = tuple(max(n - 1, 0) for n in lens)
        others = [shorter if turned == lens else turned]
        others += [(1,) * len(lens)] if number % 3 == 0 else [shorter] if number % 3 == 1 else []
        for other in dict.fromkeys(others):
            batches.append(Batch({first: lens, second: other}, {"M": len(lens), **sizes}))
    return tuple(batches)
