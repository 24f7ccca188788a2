"""Balanced accuracy where one class is rare, by the three ways to decide: which one to advise.

    python -m benchmarks.unbalanced [--seeds 5] [--data tables breast digits adult]

For each set and budget: the recall of the rare class, of the frequent one, balanced accuracy and
AUROC of linear DP-SGD, in percent, means over seeds. `half`: the most probable class. `divided`:
probabilities over the declared shares of the classes. `measured`: `class_prior=`, which pays for
measuring how far to go. `digits` are eights and threes of MNIST, three quarters of them eights.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import privet
from privet.data import load
from privet.data.data_folder import data_folder
from privet.features import features_by_name
from privet.methods.feasibility import LittleSignal
from privet.report.metrics import class_metrics
from privet.runs.class_weights import class_offsets

Array = NDArray[Any]
Case = tuple[str, Array, Array, Array, Array, Any]
TABLES = ((4000, 0.9, 2.0), (4000, 0.97, 2.5), (600, 0.75, 2.0))
"""Records, the share of the frequent class, and how far apart the classes are."""


def tables() -> Iterator[Case]:
    """Two normal classes in ten columns."""
    for seed, (n, share, apart) in enumerate(TABLES, 1):
        rng = np.random.default_rng(seed)
        y = (rng.random(n + 4000) < share).astype(int)
        means = rng.normal(size=10)
        means *= apart / np.linalg.norm(means)
        x = np.clip(rng.normal(size=(len(y), 10)) + (y[:, None] - 0.5) * means, -4, 4)
        yield f"table {n} {share:g}", x[:n], y[:n], x[n:], y[n:], (-4, 4)


def pictures(name: str, x: Array, y: Array, x_test: Array, y_test: Array) -> Case:
    """Scattering coefficients, made once."""
    front = features_by_name("auto", x.shape[1:])
    assert front is not None
    return name, front.transform(x), y, front.transform(x_test), y_test, 1.0


def breast() -> Iterator[Case]:
    """Ultrasound pictures of MedMNIST, training and validation part."""
    found = np.load(data_folder(None) / "medmnist" / "breastmnist.npz")
    part = {k: found[k] for k in found.files}
    x, y = (
        np.concatenate([part[f"{p}_{w}"] for p in ("train", "val")]) for w in ("images", "labels")
    )
    yield pictures("breast", x, y.ravel(), part["test_images"], part["test_labels"].ravel())


def digits() -> Iterator[Case]:
    """4,700 pictures, and 1,200 for tests."""
    found = load("mnist")

    def pair(x: Array, y: Array, n: int, seed: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        many, few = (rng.permutation(np.flatnonzero(y == k)) for k in (8, 3))
        rows = rng.permutation(np.r_[many[: 3 * n // 4], few[: n // 4]])
        return x[rows].reshape(-1, 28, 28), (y[rows] == 8).astype(int)

    train, test = (
        pair(found.x_train, found.y_train, 4700, 0),
        pair(found.x_test, found.y_test, 1200, 1),
    )
    yield pictures("digits", *train, *test)


def adult() -> Iterator[Case]:
    """Income above 50,000 is the rare class; it is class 1 there, and 0 here."""
    found = load("adult")
    y, y_test = 1 - found.y_train, 1 - found.y_test
    yield "adult", found.x_train, y, found.x_test, y_test, (found.low, found.high)


CASES = {"tables": tables, "breast": breast, "digits": digits, "adult": adult}


def decided(clf: Any, x: Array, y: Array, weights: dict[int, float] | None = None) -> list[float]:
    """Recalls, balanced accuracy and AUROC, in percent."""
    p = clf.predict_proba(x)
    if weights is not None:
        p = p * np.exp(class_offsets(weights, [0, 1]))
        p /= p.sum(axis=1, keepdims=True)
    found = class_metrics(p, y, ("rare", "frequent"))
    recalls = [c["recall"] for c in found["per_class"].values()]
    return [100.0 * v for v in (*recalls, found["balanced_accuracy"], found["auroc"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 8.0])
    asked = parser.parse_args()
    warnings.simplefilter("ignore", LittleSignal)
    print("data epsilon way rare frequent balanced auroc")
    for name, x, y, x_test, y_test, bounds in (c for k in asked.data for c in CASES[k]()):
        # a round figure, as somebody would know it, not the share of these records
        prior = {1: round(float(np.mean(y)), 2)}
        prior[0] = 1.0 - prior[1]
        for epsilon in asked.epsilon:
            found: dict[str, list[list[float]]] = {"half": [], "divided": [], "measured": []}
            for seed in range(asked.seeds):
                common = {"epsilon": epsilon, "classes": [0, 1], "bounds": bounds, "features": None}
                plain = privet.DPSGDClassifier(random_state=seed, **common).fit(x, y)
                served = privet.DPSGDClassifier(random_state=seed, class_prior=prior, **common)
                over = {k: 1.0 / p for k, p in prior.items()}
                found["half"].append(decided(plain, x_test, y_test))
                found["divided"].append(decided(plain, x_test, y_test, over))
                found["measured"].append(decided(served.fit(x, y), x_test, y_test))
            for way, each in found.items():
                print(
                    name, f"{epsilon:g}", way, *(f"{v:.1f}" for v in np.mean(each, 0)), flush=True
                )


if __name__ == "__main__":
    main()
