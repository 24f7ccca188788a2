"""Values with a known sensitivity: clip first, then add up, then release."""

from privet.bounds.clip import Rows, clip_l1, clip_l2, clip_range
from privet.bounds.counts import Categories, categories, count
from privet.bounds.value import Bounded, Sensitivity

__all__ = [
    "Bounded",
    "Categories",
    "Rows",
    "Sensitivity",
    "categories",
    "clip_l1",
    "clip_l2",
    "clip_range",
    "count",
]
