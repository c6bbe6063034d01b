"""The Pareto frontier of two metrics, both minimized."""

from __future__ import annotations

from collections.abc import Iterable

from cora.tune.score import Score

__all__ = ["dominates", "pareto_frontier"]


def dominates(o: Score, c: Score) -> bool:
    """Whether `o` is no worse than `c` in both metrics and better in one:

    p_o <= p_c  and  s_o <= s_c  and  (p_o, s_o) != (p_c, s_c)        p: primary, s: secondary

    A strict partial order on usable scores.
    """
    return (
        o.primary <= c.primary
        and o.secondary <= c.secondary
        and (o.primary, o.secondary) != (c.primary, c.secondary)
    )


def pareto_frontier(scores: Iterable[Score]) -> tuple[Score, ...]:
    """The usable scores that no usable score dominates, sorted by primary, secondary, id.

    From one cost to the next the secondary metric strictly decreases; scores of equal cost are equal in
    both metrics. Every usable score off the frontier is dominated by one on it. O(n log n).
    """
    frontier: list[Score] = []
    ascending = sorted((s for s in scores if s.usable), key=lambda s: (s.primary, s.secondary, s.id))
    for score in ascending:
        # All that could dominate `score` came before it, and the last one kept has the least secondary
        # metric of them: earlier scores are on the frontier or dominated by one that is.
        if not (frontier and dominates(frontier[-1], score)):
            frontier.append(score)
    return tuple(frontier)
