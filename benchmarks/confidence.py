"""How far a linear DP-SGD model's confidence can be believed, on generated tables only.

    python -m benchmarks.confidence --minutes 2

The temperature that each model would have needed (chosen.CONFIDENCE_PRIOR rests on their mean
and spread, as logarithms), and the calibration error without any and with the one that is released.
"""

from __future__ import annotations

import argparse
import time
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import privet
from privet.methods.dpsgd import linear_dpsgd
from privet.report.metrics import measure_outputs

Array = NDArray[np.float64]


def table(draw: np.random.Generator) -> tuple[dict[str, float], Array, NDArray[np.int64]]:
    """Gaussian classes of many shapes: sizes, widths, distances, shares and wrong labels."""
    n, d = int(np.exp(draw.uniform(5.7, 9.4))), int(np.exp(draw.uniform(1.4, 5.0)))
    classes, flipped = int(draw.choice([2, 2, 2, 2, 3, 5, 10])), draw.choice([0, 0, 0, 0.2, 0.4])
    first = 1.0 / classes if draw.random() < 0.6 else draw.uniform(0.5, 0.95)
    shares = [first, *[(1.0 - first) / (classes - 1)] * (classes - 1)]
    y = draw.choice(classes, n + 2000, p=shares)
    means = draw.normal(size=(classes, d))
    means *= np.exp(draw.uniform(-1.6, 1.4)) / np.linalg.norm(means, axis=1, keepdims=True)
    spread = draw.normal(size=(d, d)) / np.sqrt(d)
    x = means[y] + draw.normal(size=(len(y), d)) @ spread
    y = np.where(draw.random(len(y)) < flipped, draw.integers(classes, size=len(y)), y)
    bound, epsilon = np.exp(draw.uniform(0.0, 1.4)), np.exp(draw.uniform(-1.2, 2.1))
    return (
        {"n": n, "classes": classes, "bound": bound, "epsilon": epsilon},
        x.clip(-bound, bound),
        y,
    )


def trained(facts: dict[str, float], x: Array, y: NDArray[np.int64], seed: int) -> Array:
    """Logits of the 2,000 records that were kept."""
    clf = privet.DPSGDClassifier(
        epsilon=facts["epsilon"], classes=range(int(facts["classes"])), random_state=seed,
        bounds=(-facts["bound"], facts["bound"]),
    )  # fmt: skip
    clf.fit(x[:-2000], y[:-2000])
    return np.log(np.maximum(clf.predict_proba(x[-2000:]), 1e-300))


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def needed(z: Array, y: NDArray[np.int64]) -> float:
    """The log temperature of the least log loss."""
    grid = np.linspace(-3.0, 4.0, 71)
    losses = [-np.log(softmax(z / np.exp(t))[np.arange(len(y)), y] + 1e-12).mean() for t in grid]
    return float(grid[int(np.argmin(losses))])


def error(z: Array, y: NDArray[np.int64]) -> float:
    names = [str(k) for k in range(z.shape[1])]
    return float(measure_outputs(z, y, classes=names)["calibration"]["error"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw, rows = np.random.default_rng(asked.seed), []
    end = time.monotonic() + 60.0 * asked.minutes
    while time.monotonic() < end:
        facts, x, y = table(draw)
        kept = y[-2000:]
        with patch.object(linear_dpsgd, "temperature", lambda *_, **__: 1.0):
            plain = trained(facts, x, y, len(rows))
        rows.append(
            (needed(plain, kept), error(plain, kept), error(trained(facts, x, y, len(rows)), kept))
        )
    t, before, after = np.array(rows).T
    inside = t[np.abs(t) < 2.5]  # beyond: no better than guessing, or never wrong
    print(
        f"{len(rows)} tables; log temperature needed {inside.mean():.2f}, spread {inside.std():.2f}"
    )
    print(f"calibration error without {before.mean():.3f}, with {after.mean():.3f}")


if __name__ == "__main__":
    main()
