"""What every mechanism, sampler, sum, step and method must pass; point it at your own.

A subject describes what is checked; `check` runs all of it. Checks look at components, because
whole-training audits miss what these find (docs/guide/conformance.md).
"""

from __future__ import annotations

from privet.audit.conformance.estimators import EstimatorSubject
from privet.audit.conformance.mechanisms import MechanismSubject, gaussian_cdf, laplace_cdf
from privet.audit.conformance.noise_independence import (
    noise_in_every_coordinate,
    noise_of_every_release,
    streams_drawn_once,
)
from privet.audit.conformance.report import Outcome, Report
from privet.audit.conformance.training_steps import NoiseSubject, PoissonSubject, SumSubject
from privet.noise import Source, seeded

Subject = MechanismSubject | PoissonSubject | SumSubject | NoiseSubject | EstimatorSubject

__all__ = [
    "EstimatorSubject",
    "MechanismSubject",
    "NoiseSubject",
    "Outcome",
    "PoissonSubject",
    "Report",
    "Subject",
    "SumSubject",
    "check",
    "gaussian_cdf",
    "laplace_cdf",
    "noise_in_every_coordinate",
    "noise_of_every_release",
    "streams_drawn_once",
]


def check(subject: Subject, rng: Source | None = None) -> Report:
    """All checks of a subject; a report that says what did not hold.

    >>> from privet.sensitivity import clip_l1
    >>> from privet.mechanisms import LaplaceMechanism
    >>> mine = MechanismSubject(
    ...     name="Laplace", make=lambda s: LaplaceMechanism(scale=s), norm=1, cdf=laplace_cdf,
    ...     bound=lambda rows: clip_l1(rows, 1.0).sum(),
    ...     epsilon=lambda s, b, delta: s / b + 2 * __import__("math").log1p(-delta))
    >>> print(check(mine))
    Laplace: 8 checks held
    """
    return subject.check(seeded(20) if rng is None else rng)
