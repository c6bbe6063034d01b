"""Attention of ragged sequences: definition, schedules, and the function to call."""

from cora.kernels.attention.call import attention, kernel_of
from cora.kernels.attention.definition import Attention, Place

__all__ = ["Attention", "Place", "attention", "kernel_of"]
