"""The deep private auto-encoder under a proof: moments released once a layer.

What trains is imported on first use: a saved model is loaded without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privet.methods.autoencoder.private_layer import Activation, Layer, LayerLearner, PublicEncoder
from privet.methods.autoencoder.stack_model import OutputLayer, StackModel
from privet.methods.autoencoder.streamed_records import Stream, StreamedRecords

if TYPE_CHECKING:
    from privet.methods.autoencoder.autoencoder_stack import AutoencoderStack, StackPlan

__all__ = [
    "Activation",
    "AutoencoderStack",
    "Layer",
    "LayerLearner",
    "OutputLayer",
    "PublicEncoder",
    "StackModel",
    "StackPlan",
    "Stream",
    "StreamedRecords",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from privet.methods.autoencoder import autoencoder_stack

    return getattr(autoencoder_stack, name)
