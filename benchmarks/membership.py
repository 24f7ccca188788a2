"""Membership attacks: what they cost beside training their reference models, and what they find.

    python -m benchmarks.membership --json                 30,000 examples, 4 references, a network
    python -m benchmarks.membership --net cnn              a convolutional one
    python -m benchmarks.membership --data random          without MNIST: generated pictures
    python -m benchmarks.membership --data digits --examples 1797 --epochs 200 --references 16

One target and the references are trained on random halves of 30,000 MNIST pictures, a tenth of the
labels random, so that there is something to memorise. `time_ratio` is the whole audit (training the
references, asking them and the target about every example, scoring, limits) over the training of
the references alone, both from this run; the target's own training counts for neither.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from privet import data
from privet.audit import membership
from privet.audit.membership.reference_models import Train
from privet.networks.architectures import SmallCNN

Array = NDArray[Any]
WIDTH = 256


def records(name: str, n: int, wrong: float) -> tuple[Array, Array]:
    """Pictures and labels, a share of which is random."""
    rng = np.random.default_rng(0)
    if name in ("mnist", "digits"):
        found = data.load(name)
        x = np.concatenate([found.train_rows(), found.test_rows()])[:n]
        y = np.concatenate([found.y_train, found.y_test])[:n]
        if len(x) < n:
            raise SystemExit(f"{name} has {len(x):,} examples: --examples {len(x)} or fewer")
    else:
        y = rng.integers(0, 10, n)
        centres = rng.random((10, 784), dtype=np.float32)
        x = centres[y] + 2.0 * rng.standard_normal((n, 784), dtype=np.float32)
    return x, np.where(rng.random(n) < wrong, rng.integers(0, 10, n), y)


def trainer(net: str, epochs: int, seconds: list[float]) -> Train:
    """A recipe that notes how long training alone takes."""

    def train(x: Array, y: Array, seed: int) -> Callable[[Array], Array]:
        torch.manual_seed(seed)
        model = (
            SmallCNN(shape=(28, 28), classes=10)
            if net == "cnn"
            else nn.Sequential(nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        rows, labels = torch.from_numpy(x), torch.from_numpy(y)
        begun = time.perf_counter()
        for _ in range(epochs):
            for part in torch.randperm(len(rows)).split(128):
                optimizer.zero_grad()
                functional.cross_entropy(model(rows[part]), labels[part]).backward()
                optimizer.step()
        seconds.append(time.perf_counter() - begun)

        @torch.no_grad()
        def logits(asked: Array) -> Array:
            return torch.cat(
                [model(torch.from_numpy(p)) for p in np.array_split(asked, 30)]
            ).numpy()

        return logits

    return train


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """One audit, timed, with every attack that its references allow."""
    x, y = records(a.data, a.examples, a.wrong)
    inside = membership.random_halves(a.examples, a.references + 2, seed=1)
    target = trainer(a.net, a.epochs, [])(x[inside[-1]], y[inside[-1]], 1)
    members = inside[-1]
    seconds: list[float] = []
    begun = time.perf_counter()
    references = membership.train_references(
        trainer(a.net, a.epochs, seconds), x, y, a.references, seed=1,
        read=membership.confidence_of_logits,
    )  # fmt: skip
    phi = membership.confidence_of_logits(target(x), y)
    scoring = time.perf_counter()
    found = membership.evaluate(
        membership.RMIA().score(phi, references), members, attack="RMIA", classes=y
    )
    ended = time.perf_counter()
    others = [
        membership.evaluate(phi, members, attack="loss"),
        membership.evaluate(
            membership.OfflineRMIA().tune(references).score(phi, references),
            members,
            attack="RMIA offline",
        ),
    ]
    if a.references >= 4:
        scores = membership.LiRA().score(phi, references)
        others.append(membership.evaluate(scores, members, attack="LiRA"))
        scores = membership.OfflineLiRA().score(phi, references)
        others.append(membership.evaluate(scores, members, attack="LiRA offline"))
    return {
        "data": a.data,
        "net": a.net,
        "examples": a.examples,
        "references": a.references,
        "epochs": a.epochs,
        "seconds_training_references": round(sum(seconds), 3),
        "seconds_audit": round(ended - begun, 3),
        "seconds_scoring": round(ended - scoring, 4),
        "time_ratio": round((ended - begun) / sum(seconds), 4),
        "at_most": 1.2,
        "attacks": [f.to_dict(points=0) | {"by_class": {}} for f in (found, *others)],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", choices=("mnist", "digits", "random"), default="mnist")
    parser.add_argument("--net", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--examples", type=int, default=30_000)
    parser.add_argument("--references", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--wrong", type=float, default=0.1, help="share of random labels")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    row = measure(a)
    if a.json:
        print(json.dumps({"rows": [row]}, indent=2))
        return
    print(
        f"{row['net']}, {row['examples']:,} examples, {row['references']} references: "
        f"audit {row['seconds_audit']:.1f} s, "
        f"training the references {row['seconds_training_references']:.1f} s, "
        f"ratio {row['time_ratio']:.3f} (at most {row['at_most']}); "
        f"scoring {row['seconds_scoring']:.3f} s"
    )
    for f in row["attacks"]:
        low, high = f["auc_interval"]
        print(
            f"  {f['attack']:13} AUC {f['auc']:.3f} [{low:.3f}, {high:.3f}], "
            f"TPR at 1% FPR {f['tpr_at_1pct_fpr']:.3f}, at 0.1% {f['tpr_at_0.1pct_fpr']:.4f}"
        )


if __name__ == "__main__":
    main()
