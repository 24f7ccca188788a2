"""privet plan: measured curves read at n epsilon, never beyond what was measured."""

from __future__ import annotations

import json

import pytest

from privet.cli.main import main
from privet.errors import InvalidArgument
from privet.experiments.plan import KINDS, advise, curves


def test_what_was_measured_is_told_as_it_was() -> None:
    for curve in curves():
        assert curve.kind in KINDS
        for epsilon, accuracy in curve.points:
            told, within = curve.at(curve.records * epsilon)
            assert within and told == pytest.approx(accuracy)
            assert 0.0 < accuracy < 1.0
        assert list(curve.points) == sorted(curve.points)


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
    assert rows[0]["expected"] == pytest.approx(0.9876) and rows[0]["command"]
    with pytest.raises(SystemExit) as left:
        main(["plan", "--records", "10", "--kind", "sounds", "--epsilon", "1"])
    assert left.value.code == 2 and "one of pictures" in capsys.readouterr().err
    with pytest.raises(InvalidArgument):
        advise(records=10, kind="sounds", epsilon=1.0)
