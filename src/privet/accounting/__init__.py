"""Privacy losses: what releases cost, exactly and additively. Needs numpy and scipy only."""

from privet.accounting.fixed_size_sampling import FixedSizeGaussian
from privet.accounting.gaussian import Gaussian, gaussian_delta, gaussian_epsilon, gaussian_mu
from privet.accounting.laplace import Laplace
from privet.accounting.poisson_sampling import SampledGaussian, SampledLaplace
from privet.accounting.privacy_loss import (
    ComposedLoss,
    Direction,
    LossPart,
    PrivacyLoss,
    compose,
    from_dict,
)
from privet.accounting.pure_and_approximate_dp import ApproximateDP, Pure
from privet.accounting.zcdp import ZCDP

KINDS: tuple[type[LossPart], ...] = (
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
    "ComposedLoss",
    "Direction",
    "FixedSizeGaussian",
    "Gaussian",
    "Laplace",
    "LossPart",
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
