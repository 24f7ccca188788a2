"""What the regression models share: their columns, and logistic regression with weights.

FM, DPME and FP are regressions on a table. They get the columns that carry the most (the target
today and before, events, the calendar) in that public order, all of them functions of a user's own
records: with all 122 columns, as a naive reading of the comparison would have it, none of them does
better than a coin at any budget here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Unit
from privet.ledger import Ledger
from privet.mechanisms import LaplaceMechanism
from privet.noise import Source
from privet.noise.source import source_of
from privet.sensitivity import BoundedValue, user_weights
from privet_papers.argument_checks import check_positive
from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.predictor import BehaviourModel

Array = NDArray[np.float64]


class PrivateRegression(BehaviourModel):
    """What FM, DPME and FP share: a pure budget, for users or for tuples."""

    guarantee_: Guarantee

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        unit: str = "user",
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        check_positive(epsilon=epsilon)
        self.epsilon = epsilon
        self.unit = unit_by_name(unit)
        self.ledger = ledger
        self.random_state = random_state
        self.claim_ = None

    def released(
        self, sums: BoundedValue, what: str, *, share: float = 1.0
    ) -> tuple[Array, float, Source]:
        """Sums with Laplace noise for this share of the budget, its scale, and its source."""
        mechanism = LaplaceMechanism.for_budget(sums, epsilon=share * self.epsilon)
        rng = source_of(self.random_state)
        noisy = mechanism.release(sums, rng=rng, ledger=self.ledger, what=what)
        self.guarantee_ = mechanism.loss(sums).guarantee(
            0.0, theorem=mechanism.theorem, unit=self.unit
        )
        return noisy, mechanism.scale, rng


def columns(examples: Examples) -> Array:
    """Target today, target before, today's events, calendar: entries in [-1, 1]."""
    return np.hstack(
        [
            examples.now[:, [examples.target]],
            examples.past[:, :, examples.target],
            examples.now[:, list(examples.events)],
            examples.calendar,
        ]
    )


def unit_by_name(name: str) -> Unit:
    """The unit of protection by its name."""
    if name not in (Unit.USER.value, Unit.RECORD.value):
        raise InvalidArgument("unit", name, "user or record")
    return Unit(name)


def check_examples(examples: Examples, unit: Unit, ledger: Ledger | None) -> None:
    """Refuse rows without a status, which would count thrice, and ledgers of another unit."""
    if not np.isin(examples.status, (0, 1)).all():
        raise InvalidArgument("examples", examples, "examples whose statuses are known")
    wrong = ledger is not None and (
        not Adjacency.ADD_REMOVE.covers(ledger.adjacency) or ledger.unit is not unit
    )
    if ledger is not None and wrong:
        raise InvalidArgument(
            "ledger",
            f"one for {ledger.adjacency.value}, per {ledger.unit.value}",
            f"one for {Adjacency.ADD_REMOVE.value}, per {unit.value}",
        )


def example_weights(examples: Examples, unit: Unit) -> Array:
    """1 for each user together, or 1 for each tuple."""
    return user_weights(examples.user).values if unit is Unit.USER else np.ones(len(examples))


def public_weight(examples: Examples, unit: Unit) -> int:
    """The nominal weight of all examples, from public sizes: users, or users times days."""
    return examples.users if unit is Unit.USER else examples.users * examples.span


def logistic_regression(
    rows: Array, statuses: Array, weights: Array, *, ridge: float, rounds: int = 25
) -> Array:
    """Coefficients (the last is the intercept) by Newton's method, with a ridge on all of them.

    >>> x = np.array([[-1.0], [1.0], [2.0], [-2.0]])
    >>> beta = logistic_regression(x, np.array([0.0, 1.0, 1.0, 0.0]), np.ones(4), ridge=0.1)
    >>> bool(beta[0] > 1.0), round(abs(float(beta[1])), 6)
    (True, 0.0)
    """
    x = np.hstack([rows, np.ones((len(rows), 1))])
    beta = np.zeros(x.shape[1])
    for _ in range(rounds):
        p = 0.5 * (1.0 + np.tanh(x @ beta / 2.0))
        slope = x.T @ (weights * (p - statuses)) + ridge * beta
        curvature = (x * (weights * p * (1.0 - p))[:, None]).T @ x + ridge * np.eye(len(beta))
        step = np.linalg.solve(curvature, slope)
        length = float(np.linalg.norm(step))
        beta -= step * min(1.0, 5.0 / max(length, 1e-12))
        if length < 1e-8:
            break
    return beta
