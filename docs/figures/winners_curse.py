"""The two figures of docs/tuning.md, simulated with a fixed seed: writes winners_curse.png next to itself.

    python docs/figures/winners_curse.py

Left: how far the reported cost of the winner is from its true cost, by how it was estimated.
Right: how often a prefix of `seeded_order` holds one of the best candidates, against 1 - (1 - q)^B.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cora.tune import BuiltCandidate, Score, score_samples, seeded_order, select_best

SEED = 20_250_101

#: Relative standard deviations: of one measurement, and of a candidate's cost from shape to shape.
NOISE, SHAPE_EFFECT = 0.05, 0.03
FINALISTS, CONFIRMATION_SAMPLES, HOLDOUT_SHAPES = 10, 9, 5

SPACE_SIDE = 10
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"


@dataclass(frozen=True)
class Winner:
    """One replay of a search: costs relative to the true cost of their candidate, or to the least one.

    selected: the minimum of one measurement each / true cost of the candidate that has it.
    again: fresh measurements of this candidate on the same shape / its true cost on that shape.
    confirmed: the best confirmed score of the finalists / true cost of the candidate that has it.
    holdout: the confirmed winner's cost on shapes that did not select it / its true cost.
    minimum: the minimum of one measurement each / the least true cost.
    regret_selected, regret_confirmed: true costs of the two winners / the least true cost.
    """

    selected: float
    again: float
    confirmed: float
    holdout: float
    minimum: float
    regret_selected: float
    regret_confirmed: float


def replay(candidates: int, rng: np.random.Generator) -> Winner:
    """Search among candidates whose true costs (means over all shapes) are uniform in [1, 1.3].

    The cost on a shape is cost * (1 + SHAPE_EFFECT * N), a measurement is that * (1 + NOISE * N'), with
    independent standard normal N, N'. All candidates are measured on one shape.
    """
    true = rng.uniform(1.0, 1.3, candidates)
    on_shape = true * (1 + SHAPE_EFFECT * rng.standard_normal(candidates))

    def measure(cost: float, count: int) -> float:
        samples = cost * (1 + NOISE * rng.standard_normal(count))
        return score_samples(samples.tolist(), id="").primary

    measured = on_shape * (1 + NOISE * rng.standard_normal(candidates))
    scores = [Score(cost, 0.0, f"{number:04}") for number, cost in enumerate(measured.tolist())]
    selected = best(scores)
    finalists = sorted(scores, key=lambda score: (score.primary, score.id))[:FINALISTS]
    confirmed = best(
        [Score(measure(on_shape[int(score.id)], CONFIRMATION_SAMPLES), 0.0, score.id) for score in finalists]
    )
    first, winner = int(selected.id), int(confirmed.id)
    elsewhere = true[winner] * (1 + SHAPE_EFFECT * rng.standard_normal(HOLDOUT_SHAPES))
    holdout = np.mean([measure(cost, CONFIRMATION_SAMPLES) for cost in elsewhere])
    return Winner(
        selected=selected.primary / true[first],
        again=measure(on_shape[first], CONFIRMATION_SAMPLES) / on_shape[first],
        confirmed=confirmed.primary / true[winner],
        holdout=float(holdout) / true[winner],
        minimum=selected.primary / true.min(),
        regret_selected=true[first] / true.min(),
        regret_confirmed=true[winner] / true.min(),
    )


def best(scores: list[Score]) -> Score:
    """The winner without a tie threshold."""
    found = select_best(scores, 0.0)
    assert found is not None
    return found


def replays(candidates: int, count: int, seed: int = SEED) -> dict[str, np.ndarray]:
    """The fields of `count` winners, each as an array [count]."""
    rng = np.random.default_rng([seed, candidates])
    winners = [replay(candidates, rng) for _ in range(count)]
    return {name: np.array([getattr(w, name) for w in winners]) for name in Winner.__dataclass_fields__}


def first_hits(fractions: tuple[float, ...], orders: int) -> dict[float, np.ndarray]:
    """For each q: how many candidates of each `seeded_order` it takes to reach one of the best q, [orders].

    The space is a grid of three parameters, and the best candidates are neighbours in it: the hard case for
    a hash of ids, since their ids are alike.
    """
    points = list(product(range(SPACE_SIDE), repeat=3))
    space = [BuiltCandidate(f"tile={i},unroll={j},pack={k}", None) for i, j, k in points]
    cost = {c.id: sum((x - 6.2) ** 2 for x in point) for c, point in zip(space, points, strict=True)}
    ranking = sorted(cost, key=lambda id: (cost[id], id))
    rank = {id: place for place, id in enumerate(ranking)}
    ranks = np.array([[rank[c.id] for c in seeded_order(space, seed)] for seed in range(orders)])
    return {q: 1 + np.argmax(ranks < q * len(space), axis=1) for q in fractions}


def draw(
    path: Path,
    counts: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000),
    runs: int = 300,
    orders: int = 400,
) -> None:
    """Simulate, and write both figures to `path`: `runs` replays for each of `counts`, `orders` seeds."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)

    found = {n: replays(n, runs) for n in counts}
    for name, colour, label in (
        ("selected", ORANGE, "selected: the least of one sample each"),
        ("confirmed", BLUE, f"confirmed: {CONFIRMATION_SAMPLES} fresh samples of {FINALISTS} finalists"),
        ("holdout", GREEN, f"holdout: {HOLDOUT_SHAPES} shapes that did not select"),
    ):
        errors = [100 * (found[n][name] - 1) for n in counts]
        left.errorbar(
            counts,
            [e.mean() for e in errors],
            [2 * e.std() / runs**0.5 for e in errors],
            color=colour,
            label=label,
            marker="o",
            markersize=4,
            capsize=2,
        )
    left.axhline(0, color="black", linewidth=0.8)
    left.set(xscale="log", xlabel="candidates", ylabel="reported over true cost of the winner, %")
    left.set_title("The winner's curse")
    left.legend(fontsize=8, loc="lower left")

    budgets = np.arange(1, 101)
    for (q, hits), colour in zip(
        first_hits((0.2, 0.05, 0.01), orders).items(), (GREEN, BLUE, ORANGE), strict=True
    ):
        right.plot(budgets, 1 - (1 - q) ** budgets, color=colour, label=f"q = {100 * q:g} %")
        shown = budgets[4::10]
        right.plot(shown, [(hits <= b).mean() for b in shown], "o", color=colour, markersize=4)
    right.set(xlabel="B, length of the prefix", ylabel="P(one of the best q is in it)", ylim=(0, 1.02))
    right.set_title("1 - (1 - q)^B (lines), seeded_order (points)")
    right.legend(fontsize=8, loc="lower right")

    figure.savefig(path, dpi=90, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(__file__).with_suffix(".png"))
