"""Settings that were chosen by trying: one place, used by the methods, tried by the script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import choose_settings
from privet import tuned_defaults

ROOT = Path(__file__).parents[1]


NOT_TRIED = {"CONFIDENCE_PRIOR", "SQUARES_RATE", "SCENE_RIDGE", "LINEAR_CONSTANT"}
NOT_TRIED |= {"SHIFT_SHARE", "SHIFT_SPREAD"}
"""Measured on tables, or on pictures in colour, of which the script has none: the file says how."""


def test_what_is_tried_is_what_is_used() -> None:
    """Every number of the file is a setting of the script, under the value in use."""
    source = (ROOT / "src/privet/tuned_defaults.py").read_text()
    left = re.findall(r"^([A-Z_, ]+) = ", source, flags=re.MULTILINE)
    names = {name for several in left for name in several.split(", ")}
    script = Path(choose_settings.__file__).read_text()
    assert len(names) > 30 and names >= NOT_TRIED
    for name in names - NOT_TRIED:
        assert f"tuned_defaults.{name}" in script or f'"{name}"' in script, f"{name} is not tried"


@pytest.mark.parametrize("group", sorted(choose_settings.GROUPS))
def test_candidates_are_others(group: str) -> None:
    for setting in choose_settings.GROUPS[group].settings():
        assert setting.candidates and setting.value not in setting.candidates, setting.name


def test_no_data_set_that_is_reported_is_read() -> None:
    script = Path(choose_settings.__file__).read_text().split('"""', 2)[2]
    for word in ("mnist", "adult", "cifar", "privet.data", "data.load"):
        assert word not in script.lower()


def test_the_methods_take_their_settings_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from privet.data.records import PublicFacts
    from privet.methods.autoencoder.private_layer import LayerLearner
    from privet.methods.dpsgd import LinearDPSGD
    from privet.methods.moments.classifier_from_moments import Solver

    assert Solver().ridge == tuned_defaults.MOMENTS_RIDGE
    assert LayerLearner(units=3).whitening == tuned_defaults.LAYER_WHITENING
    facts = PublicFacts(records=9000, features=5, outputs=3, epsilon=1.0, delta=1e-5)
    before = LinearDPSGD().plan(facts)
    monkeypatch.setattr(tuned_defaults, "LINEAR_STEPS", 2 * tuned_defaults.LINEAR_STEPS)
    after = LinearDPSGD().plan(facts)
    assert before.steps * 2 - 2 <= after.steps <= before.steps * 2


def test_a_better_value_has_to_be_clearly_better() -> None:
    """The smallest change within an error of the largest gain; nothing for a gain that is noise."""
    task = choose_settings.digits()

    def run(task: choose_settings.Task, epsilon: float, seed: int, value: float) -> float:
        wobble = 0.01 * ((seed * 7 + int(epsilon)) % 3)
        return 90.0 + {1.0: 0.0, 2.0: 0.5, 4.0: 0.5, 8.0: 0.05}[value] + wobble * value

    setting = choose_settings.Setting(name="x", value=1.0, candidates=(2.0, 4.0, 8.0), run=run)
    found = choose_settings.compared(setting, [task], 4)
    assert found["says"] in (2.0, 4.0) and found["in_use"] == 1.0
    noise = choose_settings.Setting(
        name="x",
        value=1.0,
        candidates=(2.0,),
        run=lambda t, e, s, v: 90.0 + (1.0 if s % 2 else -0.5) * (v - 1.0),
    )
    (only,) = choose_settings.compared(noise, [task], 4)["candidates"]
    assert only["gain"] > 0.1 and choose_settings.compared(noise, [task], 4)["says"] == 1.0
