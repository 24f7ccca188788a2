"""Values with a known sensitivity: clip first, then add up, then release."""

from privet.sensitivity.bounded_value import BoundedValue, Sensitivity
from privet.sensitivity.clipping import ClippedRows, clip_l1, clip_l2, clip_range
from privet.sensitivity.counts import Categories, categories, count
from privet.sensitivity.polynomial_loss import (
    Quadratic,
    bound_weights,
    cross_entropy,
    softplus,
    softplus_taylor,
    squared_error,
    taylor_error,
)
from privet.sensitivity.second_moments import Moments, MomentSum, moments
from privet.sensitivity.taylor_coefficients import TaylorCoefficients
from privet.sensitivity.user_weights import UserWeights, assign_owners, user_weights

__all__ = [
    "BoundedValue",
    "Categories",
    "ClippedRows",
    "MomentSum",
    "Moments",
    "Quadratic",
    "Sensitivity",
    "TaylorCoefficients",
    "UserWeights",
    "assign_owners",
    "bound_weights",
    "categories",
    "clip_l1",
    "clip_l2",
    "clip_range",
    "count",
    "cross_entropy",
    "moments",
    "softplus",
    "softplus_taylor",
    "squared_error",
    "taylor_error",
    "user_weights",
]
