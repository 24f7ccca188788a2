"""CIFAR-10 under a proof, with no public data: accuracy at a proven epsilon (zero-out).

    python -m benchmarks.cifar --epsilon 3 --seeds 3 --json
    python -m benchmarks.cifar --front scattering      without the prior of drawn scenes

All 50,000 training images (`--records` takes the first so many) and all 10,000 test images. A
linear softmax on public features (nothing learned from pictures: scenes are drawn), full-batch
gradient descent by the library's own rule. Filters and basis were found with training images at
hand, which is not charged; docs/methods/dpsgd.md says how. Features are cached ($PRIVET_CACHE).
"""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.trained import arguments, told, trained
from privet import data
from privet.features import CachedFeatures, photographs, pictures

FRONTS = {"scenes": photographs, "scattering": pictures}


def run(epsilon: float, seeds: int, front: str, records: int) -> dict[str, Any]:
    """Train with each seed; accuracy in percent."""
    whole = data.load("cifar10")
    cifar = whole.subset(min(records, len(whole.x_train)))
    begun = time.perf_counter()
    features = CachedFeatures(FRONTS[front](cifar.shape))
    x, x_test = features.transform(cifar.train_rows()), features.transform(cifar.test_rows())
    prepared = time.perf_counter() - begun
    figures, plan = trained(cifar, lambda _: (x, x_test, {}), epsilon=epsilon, seeds=seeds)
    return {
        **figures,
        "records": len(x),
        "front": front,
        "features": x.shape[1],
        "clipping_bound": float(plan.schedule.bounds[0]),
        "learning_rate": float(plan.learning_rates[0]),
        "seconds_features": round(prepared, 1),
    }


def line(r: dict[str, Any]) -> str:
    """A row as a line of text."""
    return (
        f"epsilon {r['proved_epsilon']:.4f} proved (linear, {r['front']}): {r['mean']:.2f}% "
        f"{r['accuracies']}, {r['steps']} steps, {r['seconds_training']} s a run"
    )


def main() -> None:
    parser = arguments(__doc__, epsilon=3.0)
    parser.add_argument("--front", choices=list(FRONTS), default="scenes")
    parser.add_argument("--records", type=int, default=50_000)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    told(a.epsilon, lambda e: run(e, a.seeds, a.front, a.records), line, as_json=a.json)


if __name__ == "__main__":
    main()
