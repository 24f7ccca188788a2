"""The deep private auto-encoder under a proof: moments released once a layer.

What trains is imported on first use: a saved model is loaded without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privet.methods.autoencoder.layers import Activation, Frozen, Layer, Learner
from privet.methods.autoencoder.records import Stream, StreamedRecords
from privet.methods.autoencoder.stack import OutputLayer, StackModel

if TYPE_CHECKING:
    from privet.methods.autoencoder.method import AutoencoderStack, StackPlan

__all__ = [
    "Activation",
    "AutoencoderStack",
    "Frozen",
    "Layer",
    "Learner",
    "OutputLayer",
    "StackModel",
    "StackPlan",
    "Stream",
    "StreamedRecords",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from privet.methods.autoencoder import method

    return getattr(method, name)
