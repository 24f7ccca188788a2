"""The deep private auto-encoder under a proof: moments released once a layer."""

from privet.methods.autoencoder.layers import Activation, Frozen, Layer, Learner
from privet.methods.autoencoder.method import AutoencoderStack, StackPlan
from privet.methods.autoencoder.records import Stream, StreamedRecords
from privet.methods.autoencoder.stack import OutputLayer, StackModel

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
