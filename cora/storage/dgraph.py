"""The dimension graph of a layout (paper, section 5.3 and its appendix on storage access lowering).

The dims here are the axes of the layout, which its dims become in storage. They are numbered by their
position in storage, 0 outermost. There is an edge p -> q where the padded extent of dim q depends on
dim p: padding a dim to the longest of the batch removes its incoming edges.
"""

from __future__ import annotations

from dataclasses import dataclass

from cora.ir.visit import free_dims
from cora.storage.layout import Layout


@dataclass(frozen=True, slots=True)
class DimensionGraph:
    """The graph by its incoming edges: `inputs[d]` is I_G(d), the dims that extent d depends on."""

    inputs: tuple[frozenset[int], ...]

    @property
    def outputs(self) -> tuple[frozenset[int], ...]:
        """O_G(d): the dims whose extent depends on dim d."""
        n = len(self.inputs)
        return tuple(frozenset(e for e in range(n) if d in self.inputs[e]) for d in range(n))

    @property
    def reachable(self) -> tuple[frozenset[int], ...]:
        """O_G*(d): the dims that depend on dim d, directly or not (never d itself)."""
        outputs = self.outputs
        closed: list[frozenset[int]] = [frozenset()] * len(outputs)
        for d in reversed(range(len(outputs))):
            closed[d] = outputs[d].union(*(closed[e] for e in outputs[d]))
        return tuple(closed)

    @property
    def exclusive(self) -> tuple[frozenset[int], ...]:
        """Oex(d) = O_G(d) minus O_G*(e) for all e in O_G(d): the factors of the body of A_d."""
        outputs, reachable = self.outputs, self.reachable
        return tuple(out.difference(*(reachable[e] for e in out)) for out in outputs)

    @property
    def spans(self) -> tuple[frozenset[int], ...]:
        """S(n) = {n}, S(d) = {d} + (S(d + 1) - O_G*(d)): the factors of D_d in Algorithm 1."""
        reachable = self.reachable
        spans: list[frozenset[int]] = []
        for d in reversed(range(len(self.inputs))):
            inner = spans[-1] if spans else frozenset[int]()
            spans.append(frozenset({d}) | (inner - reachable[d]))
        return tuple(reversed(spans))

    def completed(self) -> DimensionGraph:
        """The graph with an edge p -> q whenever a dim that depends on q also depends on p < q.

        "Depends" includes indirectly. The aggregate A_q is then a function of p as well. Without
        these edges Algorithm 1 is right only where every dim depends on at most one other; with
        them it is right for every layout.
        """
        graph = self
        while True:
            reachable = graph.reachable
            inputs = tuple(
                own | {p for e in reachable[q] for p in graph.inputs[e] if p < q}
                for q, own in enumerate(graph.inputs)
            )
            if inputs == graph.inputs:
                return graph
            graph = DimensionGraph(inputs)


def dimension_graph(layout: Layout) -> DimensionGraph:
    """The graph of the padded extents of the axes of `layout`, not completed."""
    layout = layout.stored
    position = {layout.dims[k]: p for p, k in enumerate(layout.order)}
    extents = [layout.extent(k, layout.dims) for k in layout.order]
    return DimensionGraph(tuple(frozenset(position[d] for d in free_dims(e)) for e in extents))
