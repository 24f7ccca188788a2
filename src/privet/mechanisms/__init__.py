"""Mechanisms: the only things that turn a bounded value into a release."""

from privet.mechanisms.base import Charges, Mechanism
from privet.mechanisms.gaussian import DiscreteGaussian, Gaussian
from privet.mechanisms.laplace import DiscreteLaplace, Laplace
from privet.mechanisms.randomised_response import RandomisedResponse

__all__ = [
    "Charges",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "RandomisedResponse",
]
