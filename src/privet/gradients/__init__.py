"""Per-example gradients: clipped and summed at close to the price of an ordinary step.

`engine` runs one forward and one backward pass; each kind of layer has a file of its own, and
`layer_protocol` says what such a file holds.
"""

from privet.gradients.batch_dependent_rounding import batch_invariance_error
from privet.gradients.clipped_sum import ClippedSum
from privet.gradients.clipping_rules import (
    AutomaticClipping,
    Clipping,
    FlatClipping,
    PerLayerClipping,
)
from privet.gradients.custom_layer import LayerRule
from privet.gradients.engine import PerExampleGradients
from privet.gradients.memory_allocator import keep_freed_memory
from privet.gradients.module_validator import make_private_ready

__all__ = [
    "AutomaticClipping",
    "ClippedSum",
    "Clipping",
    "FlatClipping",
    "LayerRule",
    "PerExampleGradients",
    "PerLayerClipping",
    "batch_invariance_error",
    "keep_freed_memory",
    "make_private_ready",
]
