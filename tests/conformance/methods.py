"""The methods that must conform: one line each."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from privet.audit.conformance import EstimatorSubject
from privet.estimators import (
    AdaptiveLaplaceClassifier,
    DPSGDClassifier,
    PATEClassifier,
    PrivateAutoencoderClassifier,
    ResidualPerturbationClassifier,
)
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger


def two_clouds(n: int = 300, seed: int = 0) -> tuple[Any, Any]:
    """Rows in the unit square and two classes that a line can tell apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = 0.5 + 0.25 * (2 * y[:, None] - 1) * np.array([1.0, -1.0]) + 0.08 * rng.normal(size=(n, 2))
    return np.clip(x, 0.0, 1.0), y


METHODS: tuple[EstimatorSubject, ...] = (
    EstimatorSubject(name="dpsgd", make=lambda **kw: DPSGDClassifier(classes=[0, 1], bounds=(0.0, 1.0), n_public=300, **kw), data=two_clouds),
    EstimatorSubject(name="moments", make=lambda **kw: AdaptiveLaplaceClassifier(classes=[0, 1], bounds=(0.0, 1.0), n_public=300, **kw), data=two_clouds),
    EstimatorSubject(name="noisy_inputs", make=lambda **kw: ResidualPerturbationClassifier(classes=[0, 1], bounds=(0.0, 1.0), n_public=300, epochs=6, **kw), data=two_clouds),
    EstimatorSubject(name="pate", make=lambda **kw: PATEClassifier(classes=[0, 1], bounds=(0.0, 1.0), n_public=300, public_inputs=two_clouds(40, seed=1)[0], teachers=20, **kw), data=two_clouds, ledger=partial(Ledger.in_memory, adjacency=Adjacency.REPLACE_ONE, unit=Unit.SHARD)),
    EstimatorSubject(name="autoencoder", make=lambda **kw: PrivateAutoencoderClassifier(classes=[0, 1], bounds=(0.0, 1.0), layers=(2,), n_public=300, **kw), data=two_clouds),
)  # fmt: skip
