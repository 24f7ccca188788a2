"""What `privet plan` reads: accuracies over several data sets, written as a table by one command.

    python -m benchmarks.plan            # writes src/privet/compare/measured.json, some minutes

Every method of the catalogue that takes part in comparisons and is quick enough, on every data set
of a kind that is here, at several numbers of records. Settings are the methods' own; features of
pictures are those that `privet train` takes; minutes are of one thread of this machine, of features
and of training.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privet import data
from privet.data.records import Records
from privet.errors import MissingFile, PrivetError
from privet.methods.catalogue import method_type
from privet.methods.train_method import make_plan, train
from privet.noise import seeded
from privet.report.metrics import measure_outputs
from privet.runs.training_task import domain_of

WHERE = Path(__file__).parents[1] / "src/privet/compare/measured.json"
DATA = {
    "pictures": {
        "mnist": 4_000,
        "breastmnist": 624,
        "cifar10": 3_000,
        "digits": 1_438,
        "mnist-even": 4_000,
        "cifar10-animals": 3_000,
    },
    "table": {"adult": 32_561, "breast_cancer": 456, "blobs": 2_000},
}
"""How many records of each are used at most."""
TWO_CLASSES = {
    "mnist-even": ("odd", "even", (0, 2, 4, 6, 8)),
    "cifar10-animals": ("machine", "animal", (2, 3, 4, 5, 6, 7)),
}
"""Data sets whose classes are taken together in two: as many people have, and few sets here do."""
METHODS = ("dpsgd", "adaptive-laplace", "autoencoder")
SIZES = (400, 1500)
EPSILONS = (0.25, 1.0, 4.0)
DELTA, SEEDS = 1e-5, 2


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="*", help="only these")
    parser.add_argument("--out", type=Path, default=WHERE)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = json.loads(asked.out.read_text()) if asked.data and asked.out.exists() else []
    for kind, sets in DATA.items():
        for name, most in sets.items():
            if asked.data and name not in asked.data:
                continue
            rows = [row for row in rows if row["data"] != name]
            try:
                for row in measured(kind, name, most):
                    rows.append(row)
                    print(*row.values(), flush=True)
            except MissingFile as e:
                print(f"{name}: {e}")
            text = ",\n ".join(json.dumps(row) for row in rows)
            asked.out.write_text(f"[\n {text}\n]\n")


def load(name: str) -> data.Dataset:
    """A data set by its name, with two classes where that is a name of `TWO_CLASSES`."""
    if name not in TWO_CLASSES:
        return data.load(name)
    other, one, members = TWO_CLASSES[name]
    whole = data.load(name.partition("-")[0])
    return dataclasses.replace(
        whole, name=name, classes=(other, one), y_train=np.isin(whole.y_train, members).astype(int),
        y_test=np.isin(whole.y_test, members).astype(int),
    )  # fmt: skip


def measured(kind: str, name: str, most: int) -> Iterator[dict[str, Any]]:
    """Every method, at every size and budget."""
    whole = load(name)
    most = min(most, len(whole.x_train))
    order = np.random.default_rng(0).permutation(len(whole.x_train))[:most]
    tests = np.random.default_rng(1).permutation(len(whole.x_test))[:1000]
    y, y_test = whole.y_train[order], whole.y_test[tests]
    for method_name in METHODS:
        front = method_type(method_name).input_features
        domain = domain_of(whole, front, features="auto")
        began = time.process_time()
        rows = domain.rows(whole.x_train[order])
        features = (time.process_time() - began) / 60.0 / most
        asked = domain.rows(whole.x_test[tests])
        for n in sorted({*(n for n in SIZES if n < most), most}):
            for epsilon in EPSILONS if n == most else (1.0,):
                found, began = [], time.process_time()
                for seed in range(SEEDS):
                    records = Records(
                        rows=rows.part(slice(0, n)), targets=y[:n], outputs=whole.n_classes
                    )
                    method = method_type(method_name)()
                    try:
                        plan = make_plan(method, records.facts(epsilon=epsilon, delta=DELTA))
                        model = train(method, records, plan, rng=seeded(seed)).model
                    except PrivetError as e:
                        print(f"{name} {method_name} {n} {epsilon}: {e}")
                        continue
                    outputs = model.outputs(asked)
                    found.append(measure_outputs(outputs, y_test, classes=whole.classes))
                if not found:
                    continue
                yield {
                    "method": method_name,
                    "kind": kind,
                    "data": name,
                    "classes": whole.n_classes,
                    "records": n,
                    "epsilon": epsilon,
                    "delta": DELTA,
                    "accuracy": round(float(np.mean([m["test_accuracy"] for m in found])), 4),
                    "balanced": round(float(np.mean([m["balanced_accuracy"] for m in found])), 4),
                    "guessing": round(float(np.bincount(y_test).max() / len(y_test)), 4),
                    "feature_minutes": round(features * n, 5),
                    "minutes": round((time.process_time() - began) / 60.0 / SEEDS, 5),
                }


if __name__ == "__main__":
    main()
