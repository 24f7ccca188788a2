"""What the cells say together: means over seeds, t-tests, Lemma 7, and noise against signal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet_papers.adaptive_laplace.noise import PolynomialLoss
from privet_papers.adaptive_laplace.training_runs import WITH_PROOF

Row = dict[str, Any]
T_TESTS = (("AdLM", "pSGD", "p < .01"), ("AdLM", "ILM", "p < .05"))
"""Which method the paper finds above which, and how surely."""


def summarise(rows: list[Row]) -> list[Row]:
    """One row for each method and budget: mean and standard deviation over seeds, in per cent."""
    keys = dict.fromkeys((r["method"], r["epsilon"]) for r in rows)
    out = []
    for method, epsilon in keys:
        some = [r for r in rows if (r["method"], r["epsilon"]) == (method, epsilon)]
        accuracies = [100.0 * r["accuracy"] for r in some]
        out.append({
            "method": method, "epsilon": epsilon,
            "standing": "proved" if method in WITH_PROOF else "claimed",
            "claimed": some[0]["claimed"], "proved": some[0]["proved"], "seeds": len(some),
            "accuracy": round(float(np.mean(accuracies)), 2), "each": accuracies,
            "std": round(float(np.std(accuracies, ddof=1)), 2) if len(some) > 1 else None,
            "seconds": round(float(np.mean([r["seconds"] for r in some])), 1),
        })  # fmt: skip
    return out


def paired_t_tests(rows: list[Row], budgets: Sequence[float] = ()) -> list[Row]:
    """One-sided paired t-tests: over seeds at each budget, and over seeds and all `budgets`.

    The latter is the paper's, which speaks of means over budgets; its `epsilon` is None. A test
    needs two pairs. The p-value is None where the differences do not vary at all.
    """
    found = []
    for better, worse, printed in T_TESTS:
        gaps = _gaps(rows, better, worse)
        each: list[tuple[float | None, list[float]]] = [
            (epsilon, [gap for at, gap in gaps if at == epsilon])
            for epsilon in dict.fromkeys(at for at, _ in gaps)
        ]
        if len(budgets) > 1:
            each.append((None, [gap for at, gap in gaps if at in budgets]))
        found += [
            {"better": better, "worse": worse, "epsilon": epsilon, "seeds": len(some),
             "difference": float(np.mean(some)), "p": _one_sided(some), "printed": printed}
            for epsilon, some in each if len(some) > 1
        ]  # fmt: skip
    return found


def _gaps(rows: list[Row], better: str, worse: str) -> list[tuple[float, float]]:
    """(budget, points by which one is above the other), where both were run with one seed."""
    one, two = (
        {(r["epsilon"], r["seed"]): 100.0 * r["accuracy"] for r in rows if r["method"] == method}
        for method in (better, worse)
    )
    return [(key[0], one[key] - two[key]) for key in one if key in two]


def _one_sided(gaps: list[float]) -> float | None:
    from scipy import stats

    if np.ptp(gaps) == 0.0:
        return None
    return float(stats.ttest_1samp(gaps, 0.0, alternative="greater").pvalue)


def noise_against_signal(
    rows: NDArray[Any], labels: NDArray[Any], *, classes: int, loss: PolynomialLoss,
    feature_scale: float, label_scale: float,
) -> Row:  # fmt: skip
    """How much of what Algorithm 1 trains on is signal: a ratio of lengths, computed exactly.

    All that a first step of any linear reader takes from the noisy records x + Lap(b) and
    coefficients phi + Lap(s) are their covariances, one for each class and feature,
        C_kj = 1/n sum_i (phi_ik - mean) (x_ij - mean),
    whose noise has mean 0 and, summed over k and j, the variance
        1/n sum_kj (2 b^2 (phi^2 + 2 s^2) + 2 s^2 x^2), means over records, x and phi centred.
    `ratio` is the length of C over the root of that; the cosine of the noisy covariances to the
    true ones is about ratio / sqrt(1 + ratio^2). `records_needed` have a ratio of 1.

    The numbers read the records: they are for the owner of the data, not for release.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 4000); x = rng.uniform(size=(4000, 3)) * 0.5 + 0.5 * y[:, None]
    >>> from privet_papers.adaptive_laplace.noise import CROSS_ENTROPY
    >>> rest = {"classes": 2, "loss": CROSS_ENTROPY, "label_scale": 1.0}
    >>> [round(noise_against_signal(x, y, feature_scale=b, **rest)["ratio"], 2) for b in (1, 30)]
    [3.66, 0.12]
    """
    n, (b, s) = len(rows), (feature_scale, label_scale)
    phi = loss.coefficients(np.asarray(labels, dtype=np.int64), classes)[:, :, 1]
    phi = phi - phi.mean(axis=0)
    x = np.asarray(rows, dtype=np.float64)
    mean = x.mean(axis=0)
    covariances = phi.T @ x / n  # phi is centred, so x need not be
    spread = float(((x**2).mean(axis=0) - mean**2).sum())
    features = x.shape[1]
    phi_squared = float((phi**2).mean(axis=0).sum())
    variance = (
        2.0 * b * b * features * (phi_squared + 2.0 * s * s * classes)
        + 2.0 * s * s * classes * spread
    ) / n
    ratio = float(np.linalg.norm(covariances)) / math.sqrt(variance)
    return {
        "feature_scale": b, "label_scale": s, "ratio": ratio, "records": n,
        "records_needed": n / ratio**2 if ratio > 0.0 else None,
    }  # fmt: skip
