"""How good predictions are: by class, by rank and by confidence; exact, so for the owner's eyes.

None of these numbers is private: they are computed from test records without noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import rankdata

Array = NDArray[Any]
BINS = 10
"""Of confidence, equally wide, for the calibration error."""


def measures_of(
    outputs: Array,
    y: Array,
    *,
    classes: Sequence[str] = (),
    target_bounds: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """What metrics.json says of a model's outputs: of its numbers, or of its classes."""
    if target_bounds is not None:
        return of_numbers(from_unit(outputs, target_bounds), y)
    if y.ndim > 1:
        return of_maps(outputs.argmax(axis=1), y, classes)
    return of_classes(softmax(outputs, axis=1), y, classes)


def from_unit(outputs: Array, target_bounds: Sequence[float]) -> Array:
    """Numbers in [-1, 1] in the units of the target; what lies outside is held at the bounds."""
    low, high = target_bounds
    return np.asarray(low + (np.clip(outputs, -1.0, 1.0) + 1.0) / 2.0 * (high - low))


def of_classes(p: Array, y: Array, classes: Sequence[str]) -> dict[str, Any]:
    """Accuracy, its mean over classes, AUROC, confusion and calibration of probabilities p.

    Means over classes leave out a class without test records; `auroc` is the mean over classes of
    the chance that a record of the class is ranked before another one (ties count half).

    >>> found = of_classes(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]), np.array([0, 0, 1]),
    ...                    ("no", "yes"))
    >>> round(found["test_accuracy"], 3), found["balanced_accuracy"], found["auroc"]
    (0.667, 0.5, 0.5)
    >>> found["confusion"]
    [[2, 0], [1, 0]]
    """
    k, said = len(classes), p.argmax(axis=1)
    confusion = np.zeros((k, k), dtype=int)
    np.add.at(confusion, (y, said), 1)
    held, told = confusion.sum(axis=1), confusion.sum(axis=0)
    right = np.diag(confusion)
    areas = [_area(p[:, c], y == c) for c in range(k)]
    return {
        "test_accuracy": float((said == y).mean()),
        "balanced_accuracy": float((right[held > 0] / held[held > 0]).mean()),
        "auroc": _mean([a for a in areas if a is not None]),
        "confusion": confusion.tolist(),
        "per_class": {
            str(name): {
                "records": int(held[c]),
                "recall": _share(right[c], held[c]),
                "precision": _share(right[c], told[c]),
                "auroc": areas[c],
            }
            for c, name in enumerate(classes)
        },
        "calibration": _calibration(p.max(axis=1), said == y)
        | {"log_loss": float(-np.log(p[np.arange(len(y)), y].clip(1e-12)).mean())},
    }


def of_maps(said: Array, y: Array, classes: Sequence[str]) -> dict[str, Any]:
    """The share of voxels that are right, and Dice of every class but the first, the background.

    >>> of_maps(np.array([[[0, 1]]]), np.array([[[1, 1]]]), ("ground", "organ"))["dice"]
    {'organ': 0.6666666666666666}
    """
    from privet.nets.segmentation import dice

    found = dice(said, y, len(classes)).mean(axis=0)
    return {
        "test_accuracy": float((said == y).mean()), "mean_dice": float(found.mean()),
        "dice": {str(name): float(d) for name, d in zip(classes[1:], found, strict=True)},
    }  # fmt: skip


def of_numbers(predicted: Array, y: Array) -> dict[str, Any]:
    """Errors of a regression in the target's own units, and R^2, the share of variance explained.

    >>> of_numbers(np.array([1.0, 2.0]), np.array([1.0, 4.0]))["mean_absolute_error"]
    1.0
    """
    errors = np.asarray(predicted, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    spread = float(np.var(y))
    return {
        "mean_absolute_error": float(np.abs(errors).mean()),
        "root_mean_squared_error": float(np.sqrt(np.square(errors).mean())),
        "r2": None if spread == 0.0 else 1.0 - float(np.square(errors).mean()) / spread,
    }


def in_words(metrics: Mapping[str, Any]) -> str:
    """One line of the most telling numbers, for a terminal; empty where nothing was measured."""
    if "r2" in metrics:
        r2 = "" if metrics["r2"] is None else f", R2 {metrics['r2']:.3f}"
        return f"test error {metrics['mean_absolute_error']:.4g} (mean absolute){r2}"
    if "test_accuracy" not in metrics:
        return ""
    if "mean_dice" in metrics:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in metrics["dice"].items())
        return f"test Dice {metrics['mean_dice']:.3f} ({parts})"
    told = f"test accuracy {metrics['test_accuracy']:.2%}"
    if "balanced_accuracy" in metrics:
        told += f", balanced {metrics['balanced_accuracy']:.2%}"
    if metrics.get("auroc") is not None:
        told += f", AUROC {metrics['auroc']:.3f}"
    return told + _guessing(metrics)


def _guessing(metrics: Mapping[str, Any]) -> str:
    """What to do where classes are found no better than by chance, within two standard errors.

    >>> half = {"records": 50, "recall": 0.5}
    >>> bad = {"balanced_accuracy": 0.5, "per_class": {"a": half, "b": half}, "auroc": 0.5}
    >>> _guessing(bad)
    ' (no better than guessing: noise outweighs the records; more of them, or a larger epsilon)'
    >>> _guessing({**bad, "auroc": 0.9})
    ' (no better than guessing, yet AUROC tells classes apart: --class-weights moves the threshold)'
    """
    held = [c for c in metrics.get("per_class", {}).values() if c["records"]]
    if len(held) < 2:
        return ""
    smooth = [((c["recall"] * c["records"] + 1) / (c["records"] + 2), c["records"]) for c in held]
    error = sum(r * (1.0 - r) / n for r, n in smooth) ** 0.5 / len(held)
    if metrics["balanced_accuracy"] > 1.0 / len(held) + 2.0 * error:
        return ""
    if (metrics.get("auroc") or 0.5) > 0.6:
        what = ", yet AUROC tells classes apart: --class-weights moves the threshold"
    else:
        what = ": noise outweighs the records; more of them, or a larger epsilon"
    return f" (no better than guessing{what})"


def in_markdown(metrics: Mapping[str, Any]) -> str:
    """The same for a card, with a table by class and how far confidence can be believed."""
    told = in_words(metrics)
    if not told:
        return ""
    parts = [f"T{told[1:]}."]
    if (c := metrics.get("calibration")) is not None:
        parts[0] += (
            f" Its confidence is {c['confidence']:.2f} on average where {c['accuracy']:.2f} are "
            f"right (calibration error {c['error']:.3f})."
        )
    rows = metrics.get("per_class") or {}
    if rows and len(rows) <= 20:
        confusion = metrics["confusion"]
        head = ["class", "test records", "found (recall)", "right when said (precision)",
                *(f"said {name}" for name in rows)]  # fmt: skip
        lines = [
            [name, str(r["records"]), _percent(r["recall"]), _percent(r["precision"]),
             *map(str, said)]
            for (name, r), said in zip(rows.items(), confusion, strict=True)
        ]  # fmt: skip
        table = [head, ["---"] * len(head), *lines]
        parts.append("\n".join("| " + " | ".join(cells) + " |" for cells in table))
    return "\n\n".join(parts)


def _area(score: Array, mine: NDArray[np.bool_]) -> float | None:
    """Mann-Whitney's statistic; None where there is nobody to tell apart."""
    a, b = int(mine.sum()), int((~mine).sum())
    if a == 0 or b == 0:
        return None
    return float((rankdata(score)[mine].sum() - a * (a + 1) / 2) / (a * b))


def _calibration(confidence: Array, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Mean gap between confidence and accuracy over bins of confidence, and the bins."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = [
        {"confidence": float(confidence[place == b].mean()),
         "accuracy": float(right[place == b].mean()), "records": int((place == b).sum())}
        for b in range(BINS)
        if (place == b).any()
    ]  # fmt: skip
    gaps = [abs(b["confidence"] - b["accuracy"]) * b["records"] for b in bins]
    return {
        "error": float(sum(gaps) / len(right)),
        "confidence": float(confidence.mean()),
        "accuracy": float(right.mean()),
        "bins": bins,
    }


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
