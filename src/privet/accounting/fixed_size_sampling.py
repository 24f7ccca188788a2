"""The loss of releases on batches of fixed size, drawn without replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privet.accounting import moment_generating_functions, schedule_compression
from privet.accounting import privacy_loss_histograms as pld
from privet.accounting.gaussian import log_deltas
from privet.accounting.poisson_sampling import SampledSteps
from privet.accounting.privacy_loss import Array, Direction, VerticalLine
from privet.accounting.privacy_loss_histograms import LossHistogram
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedSizeGaussian(SampledSteps):
    """Gaussian releases, each on a batch of fixed size drawn without replacement. Replace-one only.

    The sample rate is batch / n and the noise multiplier is noise / L2 bound of one contribution;
    replacing a record moves the sum by twice that bound. The profile is H of (1-q) Q + q P against
    Q for alpha >= 1 and its mirror image below 1, with P = N(2), Q = N(0) (Zhu, Dong and Wang 2022,
    proposition 30); the two halves belong to different pairs, so that steps compose through the
    profile on a lattice, not through either pair alone (Lebeda et al. 2024).
    """

    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adjacency is not Adjacency.REPLACE_ONE:
            raise InvalidArgument(
                "adjacency", self.adjacency.value, "replace-one for batches of fixed size"
            )

    def supremum(self, direction: Direction) -> float:
        return math.inf if len(self.groups[0]) else 0.0

    def _moments(
        self, q: Array, z: Array, line: VerticalLine, direction: Direction, cut: float
    ) -> tuple[Array, Array] | None:
        return moment_generating_functions.fixed_size_gaussian(q, z, line)

    @property
    def _cells(self) -> schedule_compression.StepCells:
        return schedule_compression.gaussian_cells(
            *self.groups, round_up=True, meshes=schedule_compression.FINE
        )

    def _unsampled_profile(self, epsilon: Array, z: float) -> Array:
        return np.exp(log_deltas(2.0 / z, epsilon))

    def _one_step_histogram(
        self, q: float, z: float, direction: Direction, ends: Array
    ) -> LossHistogram:
        def half(positive: Array) -> LossHistogram:
            return pld.sampled_gaussian_histogram(q, 0.5 * z, Direction.REMOVE, positive)

        return pld.symmetric_histogram(half, ends, (1.0 - q) * math.erf(1.0 / (z * math.sqrt(2.0))))

    def profile(self, epsilon: Array, direction: Direction) -> Array | None:
        t = np.atleast_1d(np.asarray(epsilon, dtype=float))
        above = super().profile(np.abs(t), Direction.REMOVE)
        if above is None:
            return None
        return np.where(t >= 0, above, -np.expm1(-np.abs(t)) + np.exp(-np.abs(t)) * above)
