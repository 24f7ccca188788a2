"""Relevance-shaped training of networks against identical noise, at the same proven epsilon.

    python -m benchmarks.shaped_training --data adult --epsilon .1 .5 2
    python -m benchmarks.shaped_training --data mnist --epsilon .5 2 --seeds 5 --json
    python -m benchmarks.shaped_training --data mnist --network dense

Three ways to spend one budget (add-remove, delta 1e-5), every seed with the same start and noise:
all on training (identical noise), the private mean and training (mean only), the private mean and
relevance and training (adaptive, one column for each exponent). Paired t-tests over seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import nn

from privet import data
from privet.estimators import PrivateClassifier
from privet.methods.dpsgd import NetworkDPSGD
from privet.methods.moments import RelevanceShapedTraining
from privet.networks.architectures import SmallCNN

DELTA = 1e-5
WAYS: dict[str, float | None] = {
    "identical": None, "mean only": 0.0, "adaptive .25": 0.25, "adaptive 1": 1.0,
}  # fmt: skip


def network(kind: str, dataset: data.Dataset, seed: int) -> nn.Module:
    """Where training starts: public, the same for all ways."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == "convolutions":
            return SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
        wide = dataset.n_features
        return nn.Sequential(nn.Linear(wide, 64), nn.Tanh(), nn.Linear(64, dataset.n_classes))


def fit(
    dataset: data.Dataset, kind: str, epsilon: float, exponent: float | None, seed: int, steps: int
) -> tuple[float, float]:
    """Test accuracy in per cent and the proved epsilon."""
    trainer = NetworkDPSGD(network=network(kind, dataset, seed), steps=steps or None)
    clf = PrivateClassifier(
        RelevanceShapedTraining(trainer=trainer, exponent=exponent),
        epsilon=epsilon, delta=DELTA, bounds=(0.0, 1.0), classes=range(dataset.n_classes),
        n_public=len(dataset.x_train), random_state=seed,
    ).fit(dataset.train_rows(), dataset.y_train)  # fmt: skip
    return 100.0 * float(clf.score(dataset.test_rows(), dataset.y_test)), clf.guarantee_.epsilon


def measure(name: str, kind: str, epsilon: float, seeds: int, steps: int) -> dict[str, Any]:
    """One row: the accuracies of every way, and the gains."""
    dataset, begun = data.load(name), time.perf_counter()
    found, proved = {}, 0.0
    for way, exponent in WAYS.items():
        runs = [fit(dataset, kind, epsilon, exponent, seed, steps) for seed in range(seeds)]
        found[way] = [a for a, _ in runs]
        proved = max(proved, *(e for _, e in runs))
    row: dict[str, Any] = {
        "data": name, "network": kind, "epsilon": epsilon, "proved_epsilon": proved,
        "delta": DELTA, "seconds": round(time.perf_counter() - begun, 1),
    }  # fmt: skip
    for way, accuracies in found.items():
        cell: dict[str, Any] = {
            "accuracies": [round(a, 2) for a in accuracies],
            "mean": round(float(np.mean(accuracies)), 3),
        }
        for other in ("identical", "mean only"):
            if way != other and seeds > 1:
                p = float(stats.ttest_rel(accuracies, found[other]).pvalue)
                gain = float(np.mean(accuracies) - np.mean(found[other]))
                cell[f"over {other}"] = {"gain": round(gain, 3), "p": round(p, 4)}
        row[way] = cell
    return row


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", choices=("mnist", "adult"), default="adult")
    parser.add_argument("--network", choices=("convolutions", "dense"))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="0: by rule")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    kind = a.network or ("convolutions" if a.data == "mnist" else "dense")
    rows = []
    for epsilon in a.epsilon:
        row = measure(a.data, kind, epsilon, a.seeds, a.steps)
        rows.append(row)
        if a.json:
            continue
        print(f"{a.data}, {kind}, epsilon {row['proved_epsilon']:.4f} proved, {row['seconds']} s")
        for way in WAYS:
            gains = "; ".join(
                f"{k} {v['gain']:+.2f} (p = {v['p']})"
                for k, v in row[way].items()
                if k.startswith("over")
            )
            print(f"  {way:<13} {row[way]['mean']:.2f}%  {gains}", flush=True)
    if a.json:
        print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
