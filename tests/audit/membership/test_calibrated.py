"""BaVarIA and quantile regression: they find what is there, and nothing where nothing is."""

from __future__ import annotations

import numpy as np

from privet.audit.membership import (
    BaVarIA,
    LiRA,
    References,
    by_regression,
    evaluate,
    random_halves,
)


def made(shift: float, *, models: int = 8, records: int = 2000) -> tuple[np.ndarray, ...]:
    """Records of their own means and widths; training on one raises its confidence by `shift`."""
    rng = np.random.default_rng(3)
    inside = np.vstack([rng.random(records) < 0.5, random_halves(records, models, seed=0)])
    mean, width = rng.normal(0, 2, records), rng.uniform(0.3, 2.0, records)
    phi = mean + width * (shift * inside + rng.normal(size=inside.shape))
    return phi, inside


def area(attack: BaVarIA | LiRA, shift: float) -> float:
    phi, inside = made(shift)
    references = References(confidence=phi[1:], members=inside[1:])
    return evaluate(attack.score(phi[0], references), inside[0]).auc.value


def test_a_prior_finds_what_one_variance_for_all_finds_and_nothing_where_nothing_is() -> None:
    assert area(BaVarIA(), 2.5) > area(LiRA(), 2.5) > 0.9
    assert abs(area(BaVarIA(), 0.0) - 0.5) < 0.05  # 4 standard errors


def test_regression_on_strangers_takes_the_difficulty_of_records_away() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(600, 3)), rng.normal(size=(400, 3))
    members = np.arange(600) < 300
    phi = 4.0 * x[:, 0] + rng.normal(size=600) + 1.5 * members
    strangers = 4.0 * z[:, 0] + rng.normal(size=400)
    labels = np.zeros(600, dtype=np.int64)
    score = by_regression(phi, x, labels, strangers, z, labels[:400])
    found, loss = evaluate(score, members).auc.value, evaluate(phi, members).auc.value
    assert found > loss + 0.05
