"""Privacy losses: what releases cost, exactly and additively. Needs numpy and scipy only."""

from privet.loss.base import Composed, Direction, Part, PrivacyLoss, compose, from_dict
from privet.loss.fixed_size import FixedSizeGaussian
from privet.loss.gaussian import Gaussian, gaussian_delta, gaussian_epsilon, gaussian_mu
from privet.loss.pure import ZCDP, ApproximateDP, Laplace, Pure
from privet.loss.sampled import SampledGaussian, SampledLaplace

KINDS: tuple[type[Part], ...] = (
    Pure,
    Laplace,
    ApproximateDP,
    ZCDP,
    Gaussian,
    SampledGaussian,
    SampledLaplace,
    FixedSizeGaussian,
)

__all__ = [
    "KINDS",
    "ZCDP",
    "ApproximateDP",
    "Composed",
    "Direction",
    "FixedSizeGaussian",
    "Gaussian",
    "Laplace",
    "Part",
    "PrivacyLoss",
    "Pure",
    "SampledGaussian",
    "SampledLaplace",
    "compose",
    "from_dict",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
]
