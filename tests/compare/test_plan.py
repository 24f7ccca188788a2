"""privet plan: measured curves read at n epsilon, never beyond what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from privet.cli.main import main
from privet.compare.plan import KINDS, Curve, advise, curves
from privet.errors import InvalidArgument
from privet.methods.enough import Signal, check_enough, linear_numbers

ROOT = Path(__file__).parents[2]


def test_what_was_measured_is_told_as_it_was() -> None:
    for curve in curves():
        assert curve.kind in KINDS
        for epsilon, accuracy in curve.points:
            told, within = curve.at(curve.records * epsilon)
            assert within and told == pytest.approx(accuracy)
            assert 0.0 < accuracy < 1.0
        assert list(curve.points) == sorted(curve.points)


@pytest.mark.parametrize("curve", curves(), ids=lambda c: f"{c.method} {c.settings} {c.data}")
def test_every_figure_stands_on_a_page_beside_the_command_that_gives_it(curve: Curve) -> None:
    words = curve.command.split()
    assert words[:3] == ["python", "-m", words[2]]
    program = (ROOT / (words[2].replace(".", "/") + ".py")).read_text()
    asked = words[words.index("--epsilon") + 1 :]
    assert [float(e) for e in asked] == [e for e, _ in curve.points]
    known = program + (ROOT / "benchmarks/trained.py").read_text()
    assert all(f'"{word}"' in known for word in words if word.startswith("--"))
    page = (ROOT / "docs/methods" / f"{curve.method.replace('-', '_')}.md").read_text()
    assert words[2] in page
    for _, accuracy in curve.points:
        assert re.search(rf"(?<![\d.]){100 * accuracy:.2f}(?!\d)", page), accuracy


def test_half_the_records_need_twice_the_budget() -> None:
    first = advise(records=60_000, kind="pictures", epsilon=0.5)
    second = advise(records=30_000, kind="pictures", epsilon=1.0)
    assert [a.expected for a in first] == [a.expected for a in second]


def test_nothing_is_continued_beyond_the_ends() -> None:
    few = advise(records=50, kind="table", epsilon=0.1)
    assert not any(a.within for a in few)
    assert all(a.expected == a.curve.points[0][1] for a in few)


def test_what_takes_too_long_comes_last() -> None:
    found = advise(records=60_000, kind="pictures", epsilon=8.0, minutes=0.5)
    fits = [a.fits for a in found]
    assert fits == sorted(fits, reverse=True) and not fits[-1] and fits[0]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--records", "60000", "--kind", "pictures", "--epsilon", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["expected"] == pytest.approx(0.9875) and rows[0]["command"]
    with pytest.raises(SystemExit) as left:
        main(["plan", "--records", "10", "--kind", "sounds", "--epsilon", "1"])
    assert left.value.code == 2 and "one of pictures" in capsys.readouterr().err
    with pytest.raises(InvalidArgument):
        advise(records=10, kind="sounds", epsilon=1.0)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("growth", [1.0, 0.5])
@pytest.mark.parametrize("epsilon", [1e-4, 0.01])
def test_a_refusal_says_what_would_do(delta: float, growth: float, epsilon: float) -> None:
    def check(units: int, epsilon: float) -> None:
        signal = Signal(units=units, numbers=650, growth=growth)
        check_enough(signal, epsilon=epsilon, delta=delta)

    with pytest.raises(InvalidArgument) as refusal:
        check(20, epsilon)
    words = refusal.value.expected.replace(",", "").split()
    needed, many = float(words[2]), int(words[7])
    check(20, needed)
    check(many, epsilon)
    for fewer in ((20, 0.8 * needed), (int(0.8 * many), epsilon)):
        with pytest.raises(InvalidArgument, match="noise would be longer"):
            check(*fewer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "drowned", "enough"),
    [("digits", 0.03, 1.0), ("breast_cancer", 0.03, 2.0), ("blobs", 0.003, 0.3)],
)
def test_what_is_refused_could_only_have_guessed(name: str, drowned: float, enough: float) -> None:
    """Mean accuracy of three seeds, by three methods; seeds are fixed, so there is no false alarm."""
    from privet import (
        AdaptiveLaplaceClassifier,
        DPSGDClassifier,
        PrivateAutoencoderClassifier,
        data,
    )

    found = data.load(name)
    n, numbers = len(found.y_train), linear_numbers(found.n_features, found.n_classes)
    guess = np.bincount(found.y_test).max() / len(found.y_test)
    with pytest.raises(InvalidArgument):
        check_enough(Signal(units=n, numbers=numbers), epsilon=drowned, delta=1e-5)
    check_enough(Signal(units=n, numbers=numbers), epsilon=enough, delta=1e-5)
    for method in (DPSGDClassifier, AdaptiveLaplaceClassifier, PrivateAutoencoderClassifier):

        def accuracy(epsilon: float, seeds: int, method: type = method) -> float:
            told = {"epsilon": epsilon, "bounds": (0, 1), "classes": range(found.n_classes)}
            models = (method(**told, random_state=s) for s in range(seeds))
            return float(np.mean([
                m.fit(found.train_rows(), found.y_train).score(found.test_rows(), found.y_test)
                for m in models
            ]))  # fmt: skip

        assert accuracy(drowned, 3) < guess + 0.08
        assert accuracy(enough, 1) > guess + 0.15
