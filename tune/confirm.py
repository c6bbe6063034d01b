"""How many fresh samples a finalist gets before it may win."""

from __future__ import annotations

from cora.errors import UserError

__all__ = ["confirmation_count"]

#: Relative uncertainties at which the count doubles and triples.
_NOISY, _VERY_NOISY = 0.05, 0.20


def confirmation_count(base: int, relative_uncertainty: float, budget: int) -> int:
    """The number of confirmation samples of one finalist:

        min(budget, base * k)        k = 1 for u < 5 %,  2 for 5 % <= u < 20 %,  3 for u >= 20 %

    base: samples for a quiet finalist.
    relative_uncertainty: u, a fraction (0.05 is 5 %): the half-width of an interval for the finalist's
        score, over the score. NaN, an uncertainty that is not known, counts as large.
    budget: samples that are left.

    Returns a count in [0, budget].

    Raises:
        UserError: an argument is negative.
    """
    for name, value in (("base", base), ("relative_uncertainty", relative_uncertainty), ("budget", budget)):
        if value < 0:
            raise UserError(f"confirmation_count: {name}: expected a number >= 0, got {value}")
    if relative_uncertainty < _NOISY:
        factor = 1
    elif relative_uncertainty < _VERY_NOISY:
        factor = 2
    else:
        factor = 3
    return min(budget, base * factor)
