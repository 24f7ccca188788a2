"""A word, nothing or a list in place of a number is refused in one line that names the argument.

Found by calling everything that privet exports with such values: these once let Python's own error
through, or answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet import accounting, audit, premises, sensitivity
from privet.accounting.closed_form import closed_form_claim
from privet.audit.membership import train_references
from privet.errors import InvalidArgument

GRAM, CROSS = np.eye(2), np.ones((2, 1))
ONCE = sensitivity.Sensitivity(l1=1.0, l2=1.0)
GUESSED = {"right": 60, "guesses": 100, "canaries": 1000, "delta": 1e-5, "alpha": 0.05}


def bounded(spacing: Any) -> sensitivity.BoundedValue:
    return sensitivity.BoundedValue(
        value=np.zeros(2), add_remove=ONCE, replace_one=ONCE, premise=premises.EXACT_LAW,
        spacing=spacing,
    )  # fmt: skip


def counted(**rest: Any) -> float:
    return audit.epsilon_bound(9, 1, **rest)


def claimed(delta: Any) -> object:
    return closed_form_claim(accounting.Gaussian(mu=0.5), delta)


def each_open(function: Callable[..., Any] | str, **right: Any) -> list[Any]:
    """The function with each of its arguments left open in turn; a name is imported when called."""

    def call(**given: Any) -> object:
        if not isinstance(function, str):
            return function(**given)
        place, attribute = function.rsplit(".", 1)
        return getattr(pytest.importorskip(f"privet.{place}"), attribute)(**given)

    def leave_open(name: str) -> Any:
        others = {k: v for k, v in right.items() if k != name}
        who = function.split(".")[-1] if isinstance(function, str) else function.__name__
        return pytest.param(name, lambda wrong: call(**others, **{name: wrong}), id=f"{who}-{name}")

    return [leave_open(name) for name in right]


CASES = [
    pytest.param("delta", claimed, id="closed_form_claim"),
    pytest.param("times", accounting.Gaussian(mu=0.5).repeat, id="Gaussian.repeat"),
    pytest.param("times", accounting.Pure(epsilon_each=0.5).repeat, id="Pure.repeat"),
    pytest.param("times", accounting.ZCDP(rho=0.5).repeat, id="ZCDP.repeat"),
    pytest.param("spacing", bounded, id="Bounded"),
    pytest.param("factor", ONCE.scaled, id="Sensitivity.scaled"),
    pytest.param("range", lambda wrong: sensitivity.clip_range([0.5], wrong, 1.0), id="range-lower"),
    pytest.param("range", lambda wrong: sensitivity.clip_range([0.5], 0.0, wrong), id="range-upper"),
    pytest.param(
        "records",
        lambda wrong: sensitivity.cross_entropy(gram=GRAM, cross=CROSS, first=np.ones(2), records=wrong),
        id="cross_entropy",
    ),
    pytest.param(
        "squares",
        lambda wrong: sensitivity.squared_error(gram=GRAM, cross=CROSS, squares=wrong),
        id="squared_error",
    ),
    *each_open(audit.clopper_pearson, hits=3, trials=9, alpha=0.05),
    *each_open(counted, trials=10, delta=1e-5, alpha=0.05),
    *each_open(audit.one_run_bound, **GUESSED),
    *each_open(audit.trade_off_one_run_bound, **GUESSED),
    *each_open(audit.group_epsilon, p1=0.5, p0=0.1, copies=2, delta=1e-5),
    *each_open("methods.pate.unit_noise", teachers=8, queries=9, epsilon=1.0, delta=1e-5),
    *each_open("features.RandomProjection", n_inputs=4, n_features=2, seed=0),
    *each_open("features.StrokeNet", side=28, width=2, seed=0),
    *each_open("networks.residual.DenseResidual", features=4, classes=2, width=4),
    *each_open("networks.residual.ResNet", depth=8, channels=1, classes=2, width=4),
    *each_open("networks.residual.resnet8", gamma=0.0, channels=1, classes=2, seed=0),
    *each_open("methods.noisy_inputs.QueryNet", channels=1, classes=2, bound=8.0, floor=0.5, gamma=2.0, last=4.0, output_noise=1.0),
]  # fmt: skip


@pytest.mark.parametrize("wrong", ["x", None, [1.0]], ids=["word", "nothing", "list"])
@pytest.mark.parametrize(("name", "call"), CASES)
def test_no_number(name: str, call: Callable[[Any], object], wrong: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        call(wrong)
    assert str(refused.value).startswith(name) and "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", ["x", [1.0]], ids=["word", "list"])
def test_no_number_where_nothing_leaves_it_open(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^guesses_in"):
        audit.OneRunAudit(guesses_in=wrong)
    with pytest.raises(InvalidArgument, match=r"^jobs"):
        train_references(
            lambda X, y, seed: None, np.zeros((8, 1)), np.arange(8) % 2, 2, seed=0, jobs=wrong
        )


@pytest.mark.parametrize("part", [accounting.Gaussian(mu=0.5), accounting.ZCDP(rho=0.5)])
def test_a_share_of_a_release_is_not_cheaper(part: accounting.LossPart) -> None:
    with pytest.raises(InvalidArgument, match=r"^times"):
        part.repeat(0.5)  # type: ignore[arg-type]
