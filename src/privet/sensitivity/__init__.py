"""Values with a known sensitivity: clip first, then add up, then release."""

from privet.bounds.clip import Bounded, Rows, Sensitivity, clip_l1, clip_l2, clip_range
from privet.bounds.counts import Categories, categories, count
from privet.bounds.moments import Moments, MomentSum, moments
from privet.bounds.polynomial import (
    Quadratic,
    bound_weights,
    cross_entropy,
    softplus,
    softplus_taylor,
    squared_error,
    taylor_error,
)
from privet.bounds.taylor import TaylorCoefficients
from privet.bounds.users import UserWeights, assign_owners, user_weights

__all__ = [
    "Bounded",
    "Categories",
    "MomentSum",
    "Moments",
    "Quadratic",
    "Rows",
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
