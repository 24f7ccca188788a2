"""How good a model of few users is, against the length of all of them over that of the noise.

    python -m benchmarks.small_data      # two minutes; what `methods.feasibility.expectation` says

Tables are generated: columns around the middle of their range, a linear signal, four rows a user.
Without privacy R2 is .61, and 86% of the classes are right.
"""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

import privet
from privet.accounting import gaussian_mu

USERS, COLUMNS, EPSILONS, SEEDS, ROWS = (40, 70, 150, 400, 1500), (5, 20), (1.0, 4.0), 6, 4
DELTA, SPREAD = 1e-5, 0.2
LARGEST = 4.0
"""The declared bound of the number to predict, whose standard deviation is about 1.3."""


def table(
    weights: NDArray[Any], rows: int, rng: np.random.Generator, *, noise: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows in [0, 1], and a signal with noise on it."""
    x = np.clip(0.5 + SPREAD * rng.normal(size=(rows, len(weights))), 0.0, 1.0)
    return x, (x - 0.5) @ weights / SPREAD + noise * rng.normal(size=rows)


def score(kind: str, users: int, columns: int, epsilon: float, seed: int) -> float:
    """R2, or the share of right answers, of one model on 2,000 new rows."""
    rng = np.random.default_rng([seed, users, columns])
    weights = rng.normal(size=columns)
    weights /= np.linalg.norm(weights)
    number = kind.endswith("Regressor")
    noise = 0.8 if number else 0.5
    (x, y), (x_test, y_test) = (table(weights, n, rng, noise=noise) for n in (users * ROWS, 2000))
    given: dict[str, Any] = {"target_bounds": (-LARGEST, LARGEST)}
    if not number:
        given, y, y_test = {"classes": [False, True]}, y > 0, y_test > 0
    made = getattr(privet, kind)(
        epsilon=epsilon, delta=DELTA, bounds=(0, 1), random_state=seed, **given
    )
    made.fit(x, y, groups=np.repeat(np.arange(users), ROWS))
    return float(made.score(x_test, y_test))


def main() -> None:
    """Print a line for every kind, number of columns, of users, and budget."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    warnings.simplefilter("ignore")
    print("estimator columns users epsilon times median least most")
    for kind in ("DPSGDRegressor", "AdaptiveLaplaceClassifier", "DPSGDClassifier"):
        numbers = 1 if kind.endswith("Regressor") else 2
        for columns in COLUMNS:
            for users in USERS:
                for epsilon in EPSILONS:
                    found = [score(kind, users, columns, epsilon, s) for s in range(SEEDS)]
                    length = math.sqrt(numbers * (columns + 1))
                    times = users * gaussian_mu(epsilon, DELTA) / length
                    shown = " ".join(f"{v:.3f}" for v in (np.median(found), min(found), max(found)))
                    print(f"{kind} {columns} {users} {epsilon:g} {times:.1f} {shown}", flush=True)


if __name__ == "__main__":
    main()
