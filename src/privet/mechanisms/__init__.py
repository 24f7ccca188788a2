"""Mechanisms: the only things that turn a bounded value into a release."""

from privet.mechanisms.functional import Coefficients, Noise, mechanism_for, release_moments
from privet.mechanisms.gaussian import DiscreteGaussianMechanism, GaussianMechanism
from privet.mechanisms.k_norm import KNormMechanism
from privet.mechanisms.laplace import DiscreteLaplaceMechanism, LaplaceMechanism
from privet.mechanisms.mechanism import Mechanism, SupportsCharge
from privet.mechanisms.randomised_response import RandomisedResponse

__all__ = [
    "Coefficients",
    "DiscreteGaussianMechanism",
    "DiscreteLaplaceMechanism",
    "GaussianMechanism",
    "KNormMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "Noise",
    "RandomisedResponse",
    "SupportsCharge",
    "mechanism_for",
    "release_moments",
]
