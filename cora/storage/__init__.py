"""Storage of ragged tensors: layouts, the dimension graph, offsets in O(1), and arrays."""
