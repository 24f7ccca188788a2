"""Every published algorithm as a classifier: claims, proofs, ledgers, and one rule for input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privet import premises
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Adjacency, Protects, Standing
from privet.ledger import Ledger
from privet.methods.pate import shard_ledger
from privet_papers.adaptive_laplace import AuthorsAdLM, PublishedAdLM, PublishedILM
from privet_papers.autoencoder import PublishedDPA
from privet_papers.pate import PublishedPATE
from privet_papers.published_classifier import PublishedClassifier
from privet_papers.residual import PublishedResidual

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-4.0, 8.0, size=(n, 3))
    return x, np.where(x[:, 0] > 2.0, "high", "low")


def made(kind: type[PublishedClassifier], **more: object) -> PublishedClassifier:
    quick: dict[type, dict[str, object]] = {
        PublishedAdLM: {"epochs": 1},
        PublishedILM: {"epochs": 1},
        AuthorsAdLM: {"epochs": 1},
        PublishedDPA: {"epochs": 2, "layers": (3,)},
        PublishedPATE: {"n_teachers": 10, "public_inputs": rows(20)[0]},
        PublishedResidual: {"epochs": 1},
    }
    usual = {"bounds": (-4.0, 8.0), "classes": ["low", "high", "none"], "random_state": 0}
    return kind(**usual | quick[kind] | more)


ALL = (PublishedAdLM, PublishedILM, AuthorsAdLM, PublishedDPA, PublishedPATE, PublishedResidual)
UNPROVED = (PublishedAdLM, AuthorsAdLM, PublishedDPA)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_a_claim_a_proof_and_the_same_again(kind: type[PublishedClassifier]) -> None:
    x, y = rows()
    one, two = made(kind).fit(x, y), made(kind).fit(x, y)
    assert one.claim_ is not None and one.claim_.standing is Standing.CLAIMED
    assert (one.guarantee_.epsilon == math.inf) == (kind in UNPROVED)
    assert premises.SECRET_KEY not in one.guarantee_.premises  # it was drawn by a seed
    if kind not in UNPROVED:
        assert premises.SECRET_SEED in one.guarantee_.premises
        assert premises.DRAWN_KEY in made(kind, random_state=None).fit(x, y).guarantee_.premises
    answer = one.predict_proba(x)
    assert answer.shape == (200, 3) and np.allclose(answer.sum(axis=1), 1.0)
    np.testing.assert_array_equal(answer, two.predict_proba(x))
    assert set(one.predict(x)) <= {"low", "high", "none"}


@pytest.mark.parametrize("kind", ALL)
def test_one_rule_for_bad_input(kind: type[PublishedClassifier]) -> None:
    x, y = rows()
    with pytest.raises(InvalidArgument, match="labels among"):
        made(kind, classes=["low", "none"]).fit(x, y)
    with pytest.raises(InvalidArgument, match="pair"):
        made(kind, bounds=3.0).fit(x, y)
    x[0] = np.nan
    assert np.isfinite(made(kind).fit(x, y).predict_proba(x)).all()


@pytest.mark.parametrize("kind", ALL)
def test_a_ledger_is_charged_with_what_is_proved_or_refused(
    kind: type[PublishedClassifier],
) -> None:
    x, y = rows()
    protects = Protects.FEATURES if kind is PublishedResidual else Protects.RECORD
    report = {"adjacency": Adjacency.REPLACE_ONE, "protects": protects}
    ledger = Ledger.in_memory(cap_epsilon=1e5, cap_delta=1e-5, **report)
    small = Ledger.in_memory(cap_epsilon=1e-3, cap_delta=1e-5, **report)
    if kind is PublishedPATE:
        ledger = shard_ledger(epsilon=1e5, delta=1e-5)
        small = shard_ledger(epsilon=1e-3, delta=1e-5)
    if kind in UNPROVED:
        with pytest.raises(InvalidArgument, match="ledger"):
            made(kind, ledger=ledger).fit(x, y)
        assert len(ledger) == 0
        return
    model = made(kind, ledger=ledger).fit(x, y)
    assert ledger.spent() == pytest.approx(model.guarantee_.epsilon, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        made(kind, ledger=small).fit(x, y)


@pytest.mark.slow
def test_without_noise_they_learn() -> None:
    x, y = rows(600)
    report = {"classes": ["low", "high"], "epsilon": 1e9}
    for kind, more in (
        (PublishedILM, {"epochs": 60}),
        (PublishedDPA, {"epochs": 120, "layers": (8,)}),
    ):
        assert made(kind, **report, **more).fit(x, y).score(x, y) > 0.75, kind
