"""What the cells say together: means over seeds, the paper's t-tests, and Lemma 7."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from privet.bounds.polynomial import taylor_error
from privet.papers.adaptive_laplace.cells import PROVED

Row = dict[str, Any]
T_TESTS = (("AdLM", "pSGD", "p < .01"), ("AdLM", "ILM", "p < .05"))
"""Which method the paper finds above which, and how surely."""


def summary(rows: list[Row]) -> list[Row]:
    """One row for each method and budget: mean and standard deviation over seeds, in per cent."""
    keys = dict.fromkeys((r["method"], r["epsilon"]) for r in rows)
    out = []
    for method, epsilon in keys:
        some = [r for r in rows if (r["method"], r["epsilon"]) == (method, epsilon)]
        accuracies = [100.0 * r["accuracy"] for r in some]
        out.append({
            "method": method, "epsilon": epsilon,
            "standing": "proved" if method in PROVED else "claimed",
            "claimed": some[0]["claimed"], "proved": some[0]["proved"], "seeds": len(some),
            "accuracy": round(float(np.mean(accuracies)), 2),
            "std": round(float(np.std(accuracies, ddof=1)), 2) if len(some) > 1 else None,
            "seconds": round(float(np.mean([r["seconds"] for r in some])), 1),
        })  # fmt: skip
    return out


def t_tests(rows: list[Row]) -> list[Row]:
    """Paired over seeds, one-sided, at each budget where both were run with two seeds or more.

    The p-value is None where the differences do not vary at all.
    """
    from scipy import stats

    found = []
    for better, worse, printed in T_TESTS:
        for epsilon in dict.fromkeys(r["epsilon"] for r in rows):
            one, two = (
                {
                    r["seed"]: 100.0 * r["accuracy"]
                    for r in rows
                    if (r["method"], r["epsilon"]) == (method, epsilon)
                }
                for method in (better, worse)
            )
            seeds = sorted(set(one) & set(two))
            gaps = np.array([one[s] - two[s] for s in seeds])
            if len(gaps) < 2:
                continue
            test = partial(stats.ttest_1samp, gaps, 0.0, alternative="greater")
            p = float(test().pvalue) if np.ptp(gaps) > 0.0 else None
            found.append({
                "better": better, "worse": worse, "epsilon": epsilon, "seeds": len(gaps),
                "difference": float(gaps.mean()), "p": p, "printed": printed,
            })  # fmt: skip
    return found


def lemma_seven(classes: int) -> dict[str, float]:
    """The error of the order-2 loss for |z| <= 1: M (e^2 + 2e - 1) / (e (1 + e)^2), and M / 192.

    >>> {k: round(v, 4) for k, v in lemma_seven(10).items()}
    {'printed': 3.1466, 'right': 0.0521}
    """
    e = math.e
    printed = classes * (e * e + 2.0 * e - 1.0) / (e * (1.0 + e) ** 2)
    return {"printed": printed, "right": classes * taylor_error(1.0)}
