"""Proofs about all batches: which guards and bounds hold whatever the lengths will be."""

from cora.prove.context import Context, Method, Outcome, Proof, Range
from cora.prove.prover import Effort, Prover

__all__ = ["Context", "Effort", "Method", "Outcome", "Proof", "Prover", "Range"]
