"""Classes served alike by a declared prior: bounded, of each record alone, paid for, and so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet.accounting import Gaussian, compose
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency
from privet.methods.dpsgd.equal_recalls import SHIFTS, rarity, recall_rows
from privet.methods.dpsgd.linear_head import rows_on_grid

PRIOR = {"ill": 0.1, "well": 0.9}


@pytest.mark.parametrize("prior", [(0.1, 0.9), (0.2, 0.3, 0.5), (0.01, 0.04, 0.05, 0.9)])
def test_no_record_is_longer_than_1_and_none_depends_on_the_others(
    prior: tuple[float, ...],
) -> None:
    outputs, draw = len(prior), torch.Generator().manual_seed(len(prior))
    weight = 5.0 * torch.randn(outputs, 7, generator=draw, dtype=torch.float64)
    rows, squares, scales = rows_on_grid(
        torch.nn.functional.normalize(torch.randn(5000, 7, generator=draw))
    )
    y = torch.randint(outputs, (5000,), generator=draw)
    scales[:2] = torch.tensor([0.0, np.nan])
    examples = rows, y, squares, scales
    v = recall_rows(weight, examples, prior)
    assert not v[:2].any() and 0.99 < float(v.norm(dim=1).max()) <= 1.0
    for i in (2, 17, 4095, 4096, 4999):
        assert torch.equal(
            recall_rows(weight, tuple(t[i : i + 1] for t in examples), prior)[0], v[i]
        )
    # in expectation over classes of these shares, like recalls add up to nothing
    assert float(np.dot(prior, rarity(prior))) == pytest.approx(0.0, abs=1e-12)


def unbalanced(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.1
    return np.clip(rng.normal(size=(n, 4)) + 2.0 * y[:, None] * np.eye(4)[0], -4, 4), np.where(
        y, "ill", "well"
    )


@pytest.mark.slow
def test_recalls_are_alike_at_the_price_that_was_asked(tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = unbalanced(4000, 0), unbalanced(4000, 1)
    common = {"classes": ["ill", "well"], "bounds": (-4, 4), "random_state": 0}
    plain = privet.DPSGDClassifier(**common).fit(x, y)
    served = privet.DPSGDClassifier(**common, class_prior=PRIOR, ledger=tmp_path_ledger(tmp_path))
    served.fit(x, y)
    recalls = [
        [(clf.predict(x_test) == y_test)[y_test == name].mean() for name in ("ill", "well")]
        for clf in (plain, served)
    ]
    assert recalls[0][1] - recalls[0][0] > 0.3  # by the most probable class the ill are not found
    assert abs(recalls[1][1] - recalls[1][0]) < 0.1 and np.mean(recalls[1]) > np.mean(recalls[0])
    # paid: what the ledger holds is the whole plan, and the third release is in it
    plan = served.plan_
    assert 0.999 < served.guarantee_.epsilon <= 1.0
    assert plan.recall_scale(len(SHIFTS)) >= 1.0 / plan.shift_mu > 1.0 / plan.facts.mu
    extra = compose([Gaussian(mu=p.mu) for p in plan.extra_losses]).epsilon(1e-5)
    both = Gaussian(mu=math.hypot(plan.centre_mu, plan.shift_mu)).epsilon(1e-5)
    assert extra == pytest.approx(both, rel=1e-9) and len(plan.extra_losses) == 3
    charged = [e.what for e in privet.Ledger.open(tmp_path / "a.ledger").entries()]
    assert "DP-SGD, recalls" in charged
    # it answers alike when it is loaded, and nothing is divided twice
    served.save(tmp_path / "run")
    np.testing.assert_array_equal(privet.load(tmp_path / "run").predict(x), served.predict(x))


def tmp_path_ledger(folder: Path) -> privet.Ledger:
    return privet.Ledger.create(folder / "a.ledger", cap_epsilon=1.0, cap_delta=1e-5,
                                adjacency=Adjacency.ZERO_OUT)  # fmt: skip


@pytest.mark.slow
def test_other_methods_are_divided_by_the_prior(tmp_path: Path) -> None:
    x, y = unbalanced(2000, 0)
    common = {"classes": ["ill", "well"], "bounds": (-4, 4), "random_state": 0}
    plain = privet.AdaptiveLaplaceClassifier(**common).fit(x, y)
    served = privet.AdaptiveLaplaceClassifier(**common, class_prior=PRIOR).fit(x, y)
    gap = served.decision_function(x) - plain.decision_function(x)
    np.testing.assert_allclose(gap, -math.log(9.0))
    served.save(tmp_path / "run")
    np.testing.assert_array_equal(privet.load(tmp_path / "run").predict(x), served.predict(x))
    for wrong in ("balanced", {"ill": 0.1}, {"ill": 0.5, "well": 0.9}, {"ill": 0.0, "well": 1.0}):
        with pytest.raises(InvalidArgument, match="class_prior"):
            privet.DPSGDClassifier(**common, class_prior=wrong).fit(x, y)
