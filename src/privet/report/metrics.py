"""How good predictions are: by class, by rank and by confidence; exact, so for the owner's eyes.

None of these numbers is private: they are computed from test records without noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

Array = NDArray[Any]
BINS = 10
"""Of confidence, equally wide, for the calibration error."""


def measure_outputs(
    outputs: Array,
    y: Array,
    *,
    classes: Sequence[str] = (),
    target_bounds: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """What metrics.json says of a model's outputs: of its numbers, or of its classes."""
    if target_bounds is not None:
        return regression_metrics(to_target_units(outputs, target_bounds), y)
    if y.ndim > 1:
        return segmentation_metrics(outputs.argmax(axis=1), y, classes)
    return class_metrics(softmax(outputs, axis=1), y, classes)


def to_target_units(outputs: Array, target_bounds: Sequence[float]) -> Array:
    """Numbers in [-1, 1] in the units of the target; what lies outside is held at the bounds."""
    low, high = target_bounds
    return np.asarray(low + (np.clip(outputs, -1.0, 1.0) + 1.0) / 2.0 * (high - low))


def class_metrics(p: Array, y: Array, classes: Sequence[str]) -> dict[str, Any]:
    """Accuracy, its mean over classes, AUROC, confusion and calibration of probabilities p.

    Means over classes leave out a class without test records; `auroc` is the mean over classes of
    the chance that a record of the class is ranked before another one (ties count half).

    >>> found = class_metrics(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]), np.array([0, 0, 1]),
    ...                    ("no", "yes"))
    >>> round(found["test_accuracy"], 3), found["balanced_accuracy"], found["auroc"]
    (0.667, 0.5, 0.5)
    >>> found["confusion"]
    [[2, 0], [1, 0]]
    """
    from sklearn import metrics

    k, predicted = len(classes), p.argmax(axis=1)
    confusion = metrics.confusion_matrix(y, predicted, labels=range(k))
    records, calls = confusion.sum(axis=1), confusion.sum(axis=0)
    right = np.diag(confusion)
    areas = [
        float(metrics.roc_auc_score(y == c, p[:, c])) if 0 < records[c] < len(y) else None
        for c in range(k)
    ]
    present = np.flatnonzero(records)
    return {
        "test_accuracy": float(metrics.accuracy_score(y, predicted)),
        "balanced_accuracy": float(
            metrics.recall_score(y, predicted, labels=present, average="macro", zero_division=0)
        ),
        "auroc": _mean([a for a in areas if a is not None]),
        "confusion": confusion.tolist(),
        "per_class": {
            str(name): {
                "records": int(records[c]),
                "recall": _share(right[c], records[c]),
                "precision": _share(right[c], calls[c]),
                "auroc": areas[c],
            }
            for c, name in enumerate(classes)
        },
        "calibration": _calibration(p.max(axis=1), predicted == y)
        | {"log_loss": float(-np.log(p[np.arange(len(y)), y].clip(1e-12)).mean())},
    }


def segmentation_metrics(predicted: Array, y: Array, classes: Sequence[str]) -> dict[str, Any]:
    """The share of voxels that are right, and Dice of every class but the first, the background.

    >>> predicted, y = np.array([[[0, 1]]]), np.array([[[1, 1]]])
    >>> segmentation_metrics(predicted, y, ("ground", "organ"))["dice"]
    {'organ': 0.6666666666666666}
    """
    from privet.networks.segmentation import dice

    found = dice(predicted, y, len(classes)).mean(axis=0)
    return {
        "test_accuracy": float((predicted == y).mean()), "mean_dice": float(found.mean()),
        "dice": {str(name): float(d) for name, d in zip(classes[1:], found, strict=True)},
    }  # fmt: skip


def regression_metrics(predicted: Array, y: Array) -> dict[str, Any]:
    """Errors of a regression in the target's own units, and R^2, the share of variance explained.

    >>> regression_metrics(np.array([1.0, 2.0]), np.array([1.0, 4.0]))["mean_absolute_error"]
    1.0
    """
    from sklearn import metrics

    y = np.asarray(y, dtype=np.float64)
    predicted = np.asarray(predicted, dtype=np.float64)
    constant = float(np.var(y)) == 0.0
    return {
        "mean_absolute_error": float(metrics.mean_absolute_error(y, predicted)),
        "root_mean_squared_error": float(metrics.root_mean_squared_error(y, predicted)),
        "r2": None if constant else float(metrics.r2_score(y, predicted)),
    }


_OUTWEIGHED = ": noise outweighs the records; more of them, or a larger epsilon"


def summarise_metrics(metrics: Mapping[str, Any]) -> str:
    """One line of the most telling numbers, for a terminal; empty where nothing was measured."""
    if "r2" in metrics:
        r2 = "" if metrics["r2"] is None else f", R2 {metrics['r2']:.3f}"
        if metrics["r2"] is not None and metrics["r2"] <= 0.0:
            r2 += f" (no better than a constant{_OUTWEIGHED})"
        return f"test error {metrics['mean_absolute_error']:.4g} (mean absolute){r2}"
    if "test_accuracy" not in metrics:
        return ""
    if "mean_dice" in metrics:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in metrics["dice"].items())
        return f"test Dice {metrics['mean_dice']:.3f} ({parts})"
    line = f"test accuracy {metrics['test_accuracy']:.2%}"
    if "balanced_accuracy" in metrics:
        line += f", balanced {metrics['balanced_accuracy']:.2%}"
    if metrics.get("auroc") is not None:
        line += f", AUROC {metrics['auroc']:.3f}"
    return line + _guessing(metrics)


def _guessing(metrics: Mapping[str, Any]) -> str:
    """What to do where classes are found no better than by chance, within two standard errors.

    >>> half = {"records": 50, "recall": 0.5}
    >>> bad = {"balanced_accuracy": 0.5, "per_class": {"a": half, "b": half}, "auroc": 0.5}
    >>> _guessing(bad)
    ' (no better than guessing: noise outweighs the records; more of them, or a larger epsilon)'
    >>> _guessing({**bad, "auroc": 0.9})
    ' (no better than guessing, yet AUROC tells classes apart: --class-prior moves the threshold)'
    """
    held = [c for c in metrics.get("per_class", {}).values() if c["records"]]
    if len(held) < 2:
        return ""
    smooth = [((c["recall"] * c["records"] + 1) / (c["records"] + 2), c["records"]) for c in held]
    error = sum(r * (1.0 - r) / n for r, n in smooth) ** 0.5 / len(held)
    if metrics["balanced_accuracy"] > 1.0 / len(held) + 2.0 * error:
        return ""
    if (metrics.get("auroc") or 0.5) > 0.6:
        what = ", yet AUROC tells classes apart: --class-prior moves the threshold"
    else:
        what = _OUTWEIGHED
    return f" (no better than guessing{what})"


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
