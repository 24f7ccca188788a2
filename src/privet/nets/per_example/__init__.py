"""Per-example gradients: clipped and summed at close to the price of an ordinary step."""

from privet.nets.per_example.clipped_sum import ClippedSum
from privet.nets.per_example.clipping import (
    AutomaticClipping,
    Clipping,
    FlatClipping,
    PerLayerClipping,
)
from privet.nets.per_example.company import company_difference
from privet.nets.per_example.engine import PerExampleGradients

__all__ = [
    "AutomaticClipping",
    "ClippedSum",
    "Clipping",
    "FlatClipping",
    "PerExampleGradients",
    "PerLayerClipping",
    "company_difference",
]
