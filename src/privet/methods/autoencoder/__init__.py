"""The deep private auto-encoder: moments released once a layer, and as published."""

from privet.methods.autoencoder.estimator import PrivateAutoencoder, PrivateAutoencoderClassifier
from privet.methods.autoencoder.layers import Activation, Frozen, Layer, Learner
from privet.methods.autoencoder.records import Stream
from privet.methods.autoencoder.sound import SoundStack, StackPlan
from privet.methods.autoencoder.stack import ClassifierStack, OutputLayer, Stack

__all__ = [
    "Activation",
    "ClassifierStack",
    "Frozen",
    "Layer",
    "Learner",
    "OutputLayer",
    "PrivateAutoencoder",
    "PrivateAutoencoderClassifier",
    "SoundStack",
    "Stack",
    "StackPlan",
    "Stream",
]
