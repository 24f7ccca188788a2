"""Networks and what private training needs of them."""

from privet.nets.per_example import (
    AutomaticClipping,
    ClippedSum,
    Clipping,
    FlatClipping,
    PerExampleGradients,
    PerLayerClipping,
    company_difference,
)
from privet.nets.ready import make_private_ready

__all__ = [
    "AutomaticClipping",
    "ClippedSum",
    "Clipping",
    "FlatClipping",
    "PerExampleGradients",
    "PerLayerClipping",
    "company_difference",
    "make_private_ready",
]
