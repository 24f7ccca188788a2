"""Mechanisms: the only things that turn a bounded value into a release."""

from privet.mechanisms.base import Charges, Mechanism
from privet.mechanisms.functional import Coefficients, Noise, mechanism_for, release_moments
from privet.mechanisms.gaussian import DiscreteGaussian, Gaussian
from privet.mechanisms.k_norm import KNorm
from privet.mechanisms.laplace import DiscreteLaplace, Laplace
from privet.mechanisms.randomised_response import RandomisedResponse

__all__ = [
    "Charges",
    "Coefficients",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "KNorm",
    "Laplace",
    "Mechanism",
    "Noise",
    "RandomisedResponse",
    "mechanism_for",
    "release_moments",
]
