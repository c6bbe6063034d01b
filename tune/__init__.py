"""How a tuner chooses, so that noise cannot fool it: pure policy, which takes scores and runs nothing.

Building, checking and measuring candidates is the application's part; what it measured comes in as numbers.
docs/tuning.md has the mathematics.
"""

from cora.tune.confirm import confirmation_count
from cora.tune.model import (
    BuildEvent,
    BuiltCandidate,
    HoldoutPlan,
    RejectedCandidate,
    TuningBudget,
    TuningObjective,
)
from cora.tune.order import fnv1a_64, seeded_order
from cora.tune.pareto import dominates, pareto_frontier
from cora.tune.policy import DeploymentPolicy, GlobalPolicy, ParetoPolicy, PerShapePolicy, parse_policy
from cora.tune.score import Score, score_samples
from cora.tune.search import SearchResult, exhaustive_scores
from cora.tune.select import select_best, tie_set
from cora.tune.space import CandidateSpace, Identified, grid_neighbors

__all__ = [
    "BuildEvent",
    "BuiltCandidate",
    "CandidateSpace",
    "DeploymentPolicy",
    "GlobalPolicy",
    "HoldoutPlan",
    "Identified",
    "ParetoPolicy",
    "PerShapePolicy",
    "RejectedCandidate",
    "Score",
    "SearchResult",
    "TuningBudget",
    "TuningObjective",
    "confirmation_count",
    "dominates",
    "exhaustive_scores",
    "fnv1a_64",
    "grid_neighbors",
    "pareto_frontier",
    "parse_policy",
    "score_samples",
    "seeded_order",
    "select_best",
    "tie_set",
]
