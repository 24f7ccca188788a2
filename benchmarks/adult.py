"""Adult (census income) under small budgets: ours beside other libraries' private models.

    python -m venv peers && peers/bin/pip install interpret-core diffprivlib "scikit-learn==1.6.*"
    python -m benchmarks.adult --peers peers/bin/python [--epsilon .07 .25 1] [--seeds 5] [--json]

All train on the same 32,561 records with their defaults, are given the same declared ranges and
categories, and are tested on the same 16,281. DP-EBM is interpret's, with Gaussian DP and delta
1e-5 as ours; diffprivlib's models are pure epsilon. Both run in an interpreter of their own, since
diffprivlib asks for an older scikit-learn than we do; without `--peers` they are left out. Accuracy
(with its deviation), balanced accuracy and AUROC in percent, means over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Fit = Callable[[float, int], Array]
"""From a budget and a seed to probabilities of the test records."""
DELTA = 1e-5


def ours(found: Any) -> Iterator[tuple[str, Fit]]:
    """Linear models on the declared box, by one-shot moments and by DP-SGD."""
    import privet

    def fit(kind: type[Any]) -> Fit:
        def made(epsilon: float, seed: int) -> Array:
            clf = kind(epsilon=epsilon, delta=DELTA, classes=[0, 1], random_state=seed,
                       bounds=(found["low"], found["high"]))  # fmt: skip
            clf.fit(found["x_train"], found["y_train"])
            return np.asarray(clf.predict_proba(found["x_test"]))

        return made

    yield "privet one-shot moments", fit(privet.AdaptiveLaplaceClassifier)
    yield "privet DP-SGD", fit(privet.DPSGDClassifier)


def peers(found: Any) -> Iterator[tuple[str, Fit]]:
    """Those of other libraries; imports nothing of ours."""
    from diffprivlib.models import GaussianNB, LogisticRegression
    from interpret.privacy import DPExplainableBoostingClassifier

    low, high, names = found["low"], found["high"], [str(n) for n in found["feature_names"]]
    numbers = [i for i, name in enumerate(names) if "=" not in name]
    words: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if "=" in name:
            words.setdefault(name.partition("=")[0], []).append(i)

    def attributes(x: Array) -> Array:
        """The fourteen attributes as they were before words were coded."""
        coded = [np.array([f"v{k}" for k in x[:, part].argmax(1)]) for part in words.values()]
        return np.column_stack([*(x[:, i].astype(object) for i in numbers), *coded])

    whole = [attributes(found[f"x_{part}"]) for part in ("train", "test")]
    box = [np.clip((found[f"x_{part}"] - low) / (high - low), 0, 1) for part in ("train", "test")]
    y = found["y_train"]

    def boosting(epsilon: float, seed: int) -> Array:
        clf = DPExplainableBoostingClassifier(
            epsilon=epsilon, delta=DELTA, random_state=seed, n_jobs=1,
            privacy_bounds={i: (low[k], high[k]) for i, k in enumerate(numbers)},
            feature_types=["continuous"] * len(numbers) + ["nominal"] * len(words),
        )  # fmt: skip
        return np.asarray(clf.fit(whole[0], y).predict_proba(whole[1]))

    def regression(epsilon: float, seed: int) -> Array:
        # the longest row of the box: every attribute at most 1
        clf = LogisticRegression(
            epsilon=epsilon, data_norm=float(np.sqrt(len(numbers) + len(words))), random_state=seed
        )
        return np.asarray(clf.fit(box[0], y).predict_proba(box[1]))

    def bayes(epsilon: float, seed: int) -> Array:
        clf = GaussianNB(epsilon=epsilon, bounds=(0.0, 1.0), random_state=seed)
        return np.asarray(np.nan_to_num(clf.fit(box[0], y).predict_proba(box[1]), nan=0.5))

    yield "interpret DP-EBM", boosting
    yield "diffprivlib logistic regression", regression
    yield "diffprivlib naive Bayes", bayes


def answers(models: Iterator[tuple[str, Fit]], epsilons: list[float], seeds: int) -> dict[str, Any]:
    """Probabilities of every model, budget and seed, and the seconds of each."""
    found = {}
    for name, fit in models:
        for epsilon in epsilons:
            for seed in range(seeds):
                start = time.perf_counter()
                found[f"{name}|{epsilon:g}|{seed}"] = fit(epsilon, seed)
                found[f"{name}|{epsilon:g}|{seed}|seconds"] = time.perf_counter() - start
    return found


def of_peers(python: Path, records: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The same of other libraries, in their interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "in.npz", **records)
        words = ["--epsilon", *map(str, asked.epsilon), "--seeds", str(asked.seeds)]
        command = [str(python), str(Path(__file__)), "--in", folder, *words]
        subprocess.run(command, check=True, stdout=sys.stderr)
        with np.load(Path(folder) / "out.npz") as file:
            return {name: file[name] for name in file.files}


def measure(found: dict[str, Any], y: Array, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each budget and model."""
    from privet.report.metrics import class_metrics

    rows = []
    for epsilon in asked.epsilon:
        for name in dict.fromkeys(key.split("|")[0] for key in found):
            each = [f"{name}|{epsilon:g}|{seed}" for seed in range(asked.seeds)]
            seconds = [float(found[f"{key}|seconds"]) for key in each]
            measured = [class_metrics(found[key], y, ("no", "yes")) for key in each]
            table = {
                k: [100.0 * m[k] for m in measured]
                for k in ("test_accuracy", "balanced_accuracy", "auroc")
            }
            means = {k: float(np.mean(v)) for k, v in table.items()}
            deviation = float(np.std(table["test_accuracy"]))
            rows.append({"epsilon": epsilon, "model": name, **means, "deviation": deviation,
                         "seconds": float(np.mean(seconds))})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.07, 0.25, 1.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", type=Path, help="Python with interpret-core and diffprivlib.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.folder is not None:
        with np.load(asked.folder / "in.npz") as file:
            records = {name: file[name] for name in file.files}
        found = answers(peers(records), asked.epsilon, asked.seeds)
        np.savez(asked.folder / "out.npz", **found)
        return
    from privet.data import load

    data = load("adult")
    records = {
        name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "low", "high")
    }
    records["feature_names"] = np.array(data.feature_names)
    found = answers(ours(records), asked.epsilon, asked.seeds)
    if asked.peers is not None:
        found |= of_peers(asked.peers, records, asked)
    rows, counts = measure(found, data.y_test, asked), np.bincount(data.y_test)
    if asked.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    print(f"always the most frequent class: {counts.max() / counts.sum():.2%}")
    print("epsilon model accuracy deviation balanced auroc seconds")
    for row in rows:
        keys = ("test_accuracy", "deviation", "balanced_accuracy", "auroc", "seconds")
        print(f"{row['epsilon']:g}", row["model"], *(f"{row[k]:.2f}" for k in keys))


if __name__ == "__main__":
    main()
