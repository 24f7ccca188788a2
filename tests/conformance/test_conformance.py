"""What every method must pass; a method joins by one line in methods.py."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Guarantee, Standing
from tests.conformance.methods import METHODS

ROOT = Path(__file__).parents[2]
every_method = pytest.mark.parametrize("case", METHODS, ids=lambda case: case.name)


def fit(case, x=None, y=None, **kw):
    if x is None:
        x, y = case.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.make(**{"epsilon": 2.0, "random_state": 0, **kw}).fit(x, y)


@every_method
def test_states_what_it_promises(case):
    model = fit(case)
    g = model.guarantee_
    assert isinstance(g, Guarantee) and g.theorem and g.assumptions
    assert (g.standing is Standing.NONE) == math.isinf(g.epsilon)
    assert model.claim_ is None or isinstance(model.claim_, Guarantee)
    if g.standing is Standing.PROVED:
        assert g.epsilon <= 2.0


@every_method
def test_guarantee_survives_json(case):
    g = fit(case).guarantee_
    assert Guarantee.from_dict(g.to_dict()) == g


@pytest.mark.slow
@every_method
def test_seeded_runs_repeat(case):
    x, _ = case.data()
    assert np.array_equal(fit(case).predict(x), fit(case).predict(x))
    assert fit(case).guarantee_ == fit(case).guarantee_


@every_method
def test_noise_is_secret_by_default(case):
    x, _ = case.data()
    first, second = (fit(case, random_state=None).predict_proba(x) for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.slow
@every_method
def test_less_budget_means_more_noise(case):
    """At a tiny budget the answer is noise: agreement with the labels is near chance on average."""
    x, y = case.data()
    good = np.mean([fit(case, epsilon=8.0, random_state=s).score(x, y) for s in range(3)])
    bad = np.mean([fit(case, epsilon=1e-4, random_state=s).score(x, y) for s in range(12)])
    assert good > 0.8 and abs(bad - 0.5) < 0.3 and good > bad + 0.1


@every_method
def test_the_ledger_is_charged_for_what_is_promised(case):
    ledger = case.ledger(cap_epsilon=50.0, cap_delta=1e-5)
    model = fit(case, ledger=ledger)
    assert len(ledger) >= 1
    assert ledger.spent() == pytest.approx(model.guarantee_.epsilon, rel=1e-6)


@every_method
def test_a_refused_budget_releases_nothing(case):
    ledger = case.ledger(cap_epsilon=0.5, cap_delta=1e-5)
    x, y = case.data()
    model = case.make(epsilon=2.0, random_state=0, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        model.fit(x, y)
    assert len(ledger) == 0
    assert not [name for name in vars(model) if name in ("guarantee_", "model_", "claim_")]


@every_method
def test_the_promise_does_not_look_at_the_data(case):
    """Other values, other labels, one record fewer: the same guarantee to the last digit."""
    x, y = case.data()
    g = fit(case).guarantee_
    assert fit(case, 1.0 - x, y).guarantee_ == g
    assert fit(case, 1e6 * x, 1 - y).guarantee_ == g
    assert fit(case, x[:-1], y[:-1]).guarantee_ == g


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_bad_row_neither_fails_nor_spreads(case, bad):
    x, y = case.data()
    x = x.copy()
    x[5] = bad
    model = fit(case, x, y)
    assert np.isfinite(model.predict_proba(case.data()[0])).all()


@every_method
@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": math.nan}])
def test_bad_budgets_are_refused(case, bad):
    x, y = case.data()
    with pytest.raises(InvalidArgument):
        case.make(random_state=0, **{"epsilon": 1.0, **bad}).fit(x, y)


@every_method
def test_can_be_cloned(case):
    model = case.make(epsilon=2.0, random_state=0)
    assert clone(model).get_params().keys() == model.get_params().keys()


def test_every_folder_is_complete():
    """A method is a folder, tests, a page and a line in methods.py; says what is missing."""
    listed = {case.name for case in METHODS}
    missing = []
    for folder in sorted(
        p for p in (ROOT / "src/privet/methods").iterdir() if (p / "__init__.py").exists()
    ):
        name = folder.name
        if not (ROOT / "tests/methods" / name).is_dir():
            missing.append(f"tests/methods/{name}/")
        if not (ROOT / "docs/methods" / f"{name}.md").exists():
            missing.append(f"docs/methods/{name}.md")
        if name not in listed:
            missing.append(f"a line for {name} in tests/conformance/methods.py")
    assert not missing, "missing: " + ", ".join(missing)


def test_methods_do_not_import_each_other():
    names = [case.name for case in METHODS]
    for name in names:
        for file in (ROOT / "src/privet/methods" / name).rglob("*.py"):
            text = file.read_text()
            assert not [n for n in names if n != name and f"privet.methods.{n}" in text], file


def test_errors_are_ours():
    assert issubclass(InvalidArgument, PrivetError) and issubclass(BudgetExceeded, PrivetError)
