"""Too few to learn from: the released mean in place of noise, said before anything is charged."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import privet
from privet.methods.constant_fallback import ConstantPlan
from privet.methods.feasibility import LittleSignal
from privet.runs import verify


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 20))
    return x, 6.0 + x @ np.linspace(-1, 1, 20) + 0.3 * rng.normal(size=n)


def made(**how: object) -> privet.DPSGDRegressor:
    return privet.DPSGDRegressor(bounds=(0, 1), target_bounds=(0, 10), random_state=0, **how)


@pytest.mark.slow
@pytest.mark.parametrize("people", [False, True])
def test_a_constant_is_released_where_noise_is_worse(people: bool, tmp_path: Path) -> None:
    x, y = data(45)
    groups = np.repeat(np.arange(15), 3) if people else None
    with pytest.warns(LittleSignal, match="a constant is released instead"):
        reg = made().fit(x, y, groups=groups)
    said = reg.predict(x)
    assert isinstance(reg.plan_, ConstantPlan) and np.ptp(said) == 0.0
    scale = reg.plan_.mechanism.scale
    units = 15 if people else 45
    assert abs(said[0] - y.mean()) < 5.0 * 3 * scale / units + 1.0 * (units < 20)
    assert 0.99 < reg.guarantee_.epsilon <= 1.0
    assert reg.guarantee_.unit.value == ("user" if people else "record")
    with pytest.warns(LittleSignal):  # who insists is trained for, and marked
        noise = made(allow_vacuous=True).fit(x, y, groups=groups)
    x_new, y_new = data(1000, 1)
    assert reg.score(x_new, y_new) > noise.score(x_new, y_new)
    reg.save(tmp_path / "run")
    assert privet.load(tmp_path / "run").predict(x)[0] == said[0]
    assert not verify(tmp_path / "run").problems


def test_one_unit_moves_the_sum_by_its_sensitivity_at_most() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LittleSignal)
        plan = made().fit(*data(45)).plan_
    each = np.array([0.3, -0.8, 1.0])
    total = plan._total(each)
    without = plan._total(each[:2])
    assert abs(float(total.value[0] - without.value[0])) <= total.add_remove.l2 == 1.0
    assert plan.loss.epsilon(1e-5) <= 1.0
    # enough records, or classes: nothing changes
    x, y = data(400)
    assert not isinstance(made().fit(x, y).plan_, ConstantPlan)
