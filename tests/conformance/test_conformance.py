"""What every method must pass; a method joins by one line in methods.py."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from privet.audit import conformance
from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Adjacency, Backing, Guarantee, Premise, Standing
from tests.conformance.methods import METHODS, two_clouds

ROOT = Path(__file__).parents[2]
every_method = pytest.mark.parametrize("case", METHODS, ids=lambda case: case.name)


@pytest.mark.slow
@every_method
def test_conforms(case):
    """Twenty trainings each: promise, ledger, secrecy, bad rows and budgets."""
    report = conformance.check(case)
    assert report.held, str(report)


@pytest.mark.slow
@every_method
def test_the_ledger_is_charged_for_what_is_promised(case):
    assert case._charged() is None


@every_method
def test_a_refused_budget_releases_nothing(case):
    assert case._refused() is None


@every_method
def test_can_be_cloned(case):
    model = case.make(epsilon=2.0, random_state=0)
    assert clone(model).get_params().keys() == model.get_params().keys()


class Forgetful:
    """A method with every fault that can be seen from outside."""

    def __init__(self, epsilon=1.0, random_state=None, ledger=None):
        self.epsilon = epsilon

    def fit(self, x, y):
        self.mean = np.array([x[y == k].mean(axis=0) for k in (0, 1)])
        self.claim_ = None
        self.guarantee_ = Guarantee(
            epsilon=float(np.abs(x).max()), delta=0.0, adjacency=Adjacency.ADD_REMOVE,
            standing=Standing.PROVED, theorem="by hope",
            premises=(Premise(about="bound", text="luck", backing=Backing.ASSUMED),),
        )  # fmt: skip
        return self

    def predict_proba(self, x):
        far = ((x[:, None] - self.mean) ** 2).sum(axis=2)
        return np.exp(-far) / np.exp(-far).sum(axis=1, keepdims=True)

    def predict(self, x):
        return self.predict_proba(x).argmax(axis=1)

    def score(self, x, y):
        return float((self.predict(x) == y).mean())


def test_a_method_with_every_fault_fails():
    subject = conformance.EstimatorSubject(name="hope", make=Forgetful, data=two_clouds)
    with np.errstate(all="ignore"):
        report = conformance.check(subject)
    failed = {o.name for o in report.problems}
    assert failed >= {
        "noise is secret by default",
        "a tiny budget teaches nothing",
        "the ledger is charged for what is promised",
        "a refused budget releases nothing",
        "the promise does not look at the data",
        "bad rows neither fail nor spread",
        "bad budgets are refused",
    }


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


@pytest.mark.parametrize("case", [c for c in METHODS if c.name != "pate"], ids=lambda c: c.name)
def test_no_declared_number_of_records_is_taken_from_the_data(case):
    """0 is not "read it from the records", which would go unsaid in the promise."""
    made = case.make(epsilon=1.0, delta=1e-5, random_state=0).set_params(n_public=0)
    with pytest.raises(InvalidArgument, match="n_public"):
        made.fit(*two_clouds())


def test_methods_do_not_import_each_other():
    names = [case.name for case in METHODS]
    for name in names:
        for file in (ROOT / "src/privet/methods" / name).rglob("*.py"):
            text = file.read_text()
            assert not [n for n in names if n != name and f"privet.methods.{n}" in text], file


def test_errors_are_ours():
    assert issubclass(InvalidArgument, PrivetError) and issubclass(BudgetExceeded, PrivetError)
