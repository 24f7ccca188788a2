"""CIFAR-10 under a proof, with no public data: accuracy at a proven epsilon (add-remove).

    python -m benchmarks.cifar --epsilon 3 --seeds 3 --json
    python -m benchmarks.cifar --front mirrored        with the prior that mirror images are alike

The 20,000 training images of the data folder, all 10,000 test images. A linear softmax on public
scattering coefficients (nothing learned from pictures), full-batch gradient descent. The number of
steps, the bound and the learning rate were chosen on held-out training images, which is not
charged; `--by-rule` takes the library's own settings instead. Features are cached ($PRIVET_CACHE).
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

from privet import data
from privet.methods.dpsgd.estimator import DPSGDClassifier
from privet.nets.features import Cached, photographs, pictures

DELTA = 1e-5
FRONTS = {"mirrored": photographs, "scattering": pictures}
CHOSEN = {"steps": 60, "clipping_bound": 0.3, "learning_rate": 47.9}


def run(epsilon: float, seeds: int, front: str, by_rule: bool, threads: int) -> dict[str, Any]:
    """Train with each seed; accuracy in percent."""
    torch.set_num_threads(threads)
    cifar = data.load("cifar10")
    begun = time.perf_counter()
    features = Cached(FRONTS[front](cifar.shape))
    x, x_test = features.transform(cifar.train_rows()), features.transform(cifar.test_rows())
    prepared = time.perf_counter() - begun
    settings: dict[str, Any] = {} if by_rule else CHOSEN
    accuracies, seconds, proved, claimed = [], [], 0.0, None
    for seed in range(seeds):
        begun = time.perf_counter()
        clf = DPSGDClassifier(
            epsilon=epsilon, delta=DELTA, classes=range(10), random_state=seed, **settings
        ).fit(x, cifar.y_train)
        seconds.append(time.perf_counter() - begun)
        accuracies.append(100.0 * clf.score(x_test, cifar.y_test))
        proved, claimed = max(proved, clf.guarantee_.epsilon), clf.claim_
    schedule = clf.plan_.schedule
    return {
        "epsilon": epsilon,
        "proved_epsilon": proved,
        "claimed_epsilon": None if claimed is None else claimed.epsilon,
        "delta": DELTA,
        "adjacency": "add-remove",
        "records": len(x),
        "front": front,
        "features": x.shape[1],
        "steps": schedule.steps,
        "clipping_bound": float(schedule.bounds[0]),
        "learning_rate": float(clf.plan_.learning_rates[0]),
        "accuracies": [round(a, 2) for a in accuracies],
        "mean": round(float(np.mean(accuracies)), 3),
        "std": round(float(np.std(accuracies, ddof=1)), 3) if seeds > 1 else None,
        "seconds_features": round(prepared, 1),
        "seconds_training": round(float(np.mean(seconds)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[3.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--front", choices=list(FRONTS), default="scattering")
    parser.add_argument("--by-rule", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    rows = []
    for epsilon in a.epsilon:
        rows.append(run(epsilon, a.seeds, a.front, a.by_rule, a.threads))
        if not a.json:
            r = rows[-1]
            print(
                f"epsilon {r['proved_epsilon']:.4f} proved (linear, {r['front']}): "
                f"{r['mean']:.2f}% {r['accuracies']}, {r['steps']} steps, "
                f"{r['seconds_training']} s a run",
                flush=True,
            )
    if a.json:
        print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
