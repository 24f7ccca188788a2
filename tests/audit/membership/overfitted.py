"""A model that overfits, quickly: least squares on as many random features as records, with wrong labels."""

from __future__ import annotations

import numpy as np

CLASSES, WIDTH = 5, 300


def records(n, seed=0, wrong=0.1):
    """Five noisy clouds in ten dimensions; some labels are random."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = np.random.default_rng(99).normal(size=(CLASSES, 10))[y] + rng.normal(size=(n, 10))
    return x, np.where(rng.random(n) < wrong, rng.integers(0, CLASSES, n), y)


def train(X, y, seed):
    """(X, y, seed) to a function from records to logits."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(X.shape[1], WIDTH)) / 3.0, rng.normal(size=WIDTH)

    def features(x):
        return np.maximum(x @ a + b, 0.0)

    f = features(X)
    weights = np.linalg.solve(f.T @ f + 10.0 * np.eye(WIDTH), f.T @ (4.0 * np.eye(CLASSES)[y]))
    return lambda x: features(x) @ weights


def probabilities(logits):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def train_probabilities(X, y, seed):
    """The same, to probabilities."""
    answer = train(X, y, seed)
    return lambda x: probabilities(answer(x))
