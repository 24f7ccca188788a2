"""Attacks that need nothing but the target: by its loss, and by its labels alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.audit.membership import input_checks
from privet.audit.membership.input_checks import Floats
from privet.errors import InvalidArgument
from privet.noise import Source

Predict = Callable[[Any], Any]
"""Records to class numbers."""
Perturb = Callable[[NDArray[Any], Source], NDArray[Any]]
"""Records to changed copies of them: noise, shifts, whatever should not change the label."""


def yeom(probabilities: Any, labels: Any) -> Floats:
    """The loss attack: a record scores log p_y, minus its cross-entropy.

    Yeom, Giacomelli, Fredrikson and Jha, *Privacy risk in machine learning* (2018), adversary 2.
    They say "member" where the loss is at most the mean loss of training; an attacker knows that
    of shadow models: `yeom_threshold`.

    >>> yeom([[0.5, 0.5], [0.0, 1.0]], [0, 1]).round(3).tolist()
    [-0.693, 0.0]
    """
    p = input_checks.probabilities("probabilities", probabilities)
    y = input_checks.labels("labels", labels, *p.shape)
    with np.errstate(divide="ignore"):  # a probability of 0 is a loss of infinity
        scores: Floats = np.log(p[np.arange(len(p)), y])
    return scores


def yeom_threshold(scores_of_shadow_members: Any) -> float:
    """Yeom's threshold: the mean score (minus the mean loss) of the members of a shadow model.

    >>> yeom_threshold([-0.1, -0.3])
    -0.2
    """
    s = input_checks.scores("scores_of_shadow_members", scores_of_shadow_members)
    return float(s.mean())


def gap(predicted: Any, labels: Any) -> Floats:
    """The gap attack: 1 where the predicted label is right, 0 elsewhere.

    Its AUC is 1/2 plus half the generalisation gap (training accuracy minus test accuracy): what
    any model that overfits gives away (Yeom et al. 2018; Choquette-Choo et al. 2021).

    >>> gap([0, 1, 1], [0, 1, 2]).tolist()
    [1.0, 1.0, 0.0]
    """
    found, true = np.asarray(predicted), np.asarray(labels)
    if found.ndim != 1 or found.shape != true.shape or not len(found):
        raise InvalidArgument("predicted", found.shape, f"one label a record, {true.shape}")
    right: Floats = (found == true).astype(np.float64)
    return right


def gaussian_perturbation(scale: float) -> Perturb:
    """Adds normal noise of standard deviation `scale` to every feature."""
    scale = _check.positive("scale", scale)

    def perturb(x: NDArray[Any], rng: Source) -> NDArray[Any]:
        changed: NDArray[Any] = x + rng.gaussian(x.shape, scale).astype(x.dtype)
        return changed

    return perturb


def label_only(
    predict: Predict,
    X: NDArray[Any],
    labels: Any,
    *,
    perturb: Perturb,
    queries: int,
    rng: Source,
) -> Floats:
    """How often changed copies of a record still get its label: members lie deeper in their class.

    One plain query and `queries` changed ones a record; only labels are asked for, so hiding the
    probabilities is no defence. The size of the change is for shadow models to choose.

    Choquette-Choo, Tramer, Carlini and Papernot, *Label-only membership inference attacks* (2021),
    the variant with random noise.

    >>> from privet.noise import seeded
    >>> above = lambda x: (x[:, 0] > 0).astype(int)
    >>> label_only(above, np.array([[9.0], [0.1], [-5.0]]), [1, 1, 1],
    ...            perturb=gaussian_perturbation(1.0), queries=20, rng=seeded(0)).round(2).tolist()
    [1.0, 0.48, 0.0]
    """
    x = np.asarray(X)
    rounds = _check.count("queries", queries)
    right = gap(predict(x), labels)
    for k in range(rounds):
        right = right + gap(predict(perturb(x, rng.child("query", k))), labels)
    return right / (rounds + 1)
