"""The step that lets a maximum and sums run together, in one pass over what they reduce."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Online:
    """Compute `maximum` and the operators `sums` block by block inside `loop` of `op`, a sum itself (online softmax).

    before: T = max over c of x(c); S = sum over c of exp(x(c) - T); O = (sum over c of exp(x(c) - T) * v(c)) / S
    after:  T = -inf; S = 0; acc = 0
            for block: T_before = T; S_before = S
                       T = max(T_before, max over c in block of x(c)); T_factor = exp(T_before - T)
                       S = S_before * T_factor + sum over c in block of exp(x(c) - T)
                       acc = acc * T_factor;  for c in block: acc += exp(x(c) - T) * v(c)
            O = acc / S

    `loop` is the outer part of the one reduction loop of `op`, outermost of its reduction loops. T_before, S_before and
    T_factor are operators like any other; all of these are computed inside `loop`, each for one block. What the terms
    read that depends on T, or that is to be computed for one block only, is put there by compute_at afterwards.

    Checked: every sum has one factor exp(x(c) * k - shift * k), or 0 where not seen, with a constant k > 0 and
    shift = where(T > -inf, T, 0), and T is the maximum of the same x(c) over the same c. Where T_before is -inf,
    T_factor is 0. Results are rounded otherwise than in two passes; they depend on their own row alone.
    """

    op: str
    loop: str
    maximum: str
    sums: tuple[str, ...]
