"""The words everything else uses: guarantees, errors, argument checks."""

from __future__ import annotations

import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import _check, errors
from privet.errors import Incomparable, InvalidArgument, MissingFile, PrivetError
from privet.guarantee import (
    Adjacency,
    Backing,
    Guarantee,
    Premise,
    Protects,
    Standing,
    Unit,
)


def stated(epsilon: float = 1.0, delta: float = 1e-5, **more: object) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, theorem="t", **more)  # type: ignore[arg-type]


@given(
    epsilon=st.one_of(st.floats(0.0, 1e6), st.just(math.inf)),
    delta=st.floats(0.0, 0.999),
    adjacency=st.sampled_from(Adjacency),
    unit=st.sampled_from(Unit),
    protects=st.sampled_from(Protects),
    standing=st.sampled_from(Standing),
    backing=st.sampled_from(Backing),
)
def test_a_guarantee_survives_json(
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    unit: Unit,
    protects: Protects,
    standing: Standing,
    backing: Backing,
) -> None:
    g = stated(
        epsilon,
        delta,
        adjacency=adjacency,
        unit=unit,
        protects=protects,
        standing=standing,
        premises=(Premise(about="bound", text="a", backing=backing),),
    )
    assert Guarantee.from_dict(json.loads(json.dumps(g.to_dict(), allow_nan=False))) == g


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, -math.inf, "x"])
def test_bad_epsilon(epsilon: float) -> None:
    with pytest.raises(InvalidArgument, match="epsilon must be"):
        stated(epsilon)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(InvalidArgument, match="delta must be"):
        stated(1.0, delta)


def resting_on(*backings: Backing) -> Guarantee:
    return stated(
        premises=tuple(Premise(about=str(i), text="t", backing=b) for i, b in enumerate(backings))
    )


E, T, A, N = Backing.ENFORCED, Backing.TESTED, Backing.ASSUMED, Backing.NOT_MET


@pytest.mark.parametrize(
    ("backings", "end"),
    [
        ((), "proved"),
        ((E, E), "proved"),
        ((A,), "proved, if 1 assumed premise holds"),
        ((E, T), "proved, if 1 tested premise holds"),
        ((T, T), "proved, if 2 tested premises hold"),
        ((T, A), "proved, if 1 assumed and 1 tested premises hold"),
        ((E, A, T, A), "proved, if 2 assumed and 1 tested premises hold"),
        ((A, N), "proved, if 1 assumed premise holds; EXPERIMENT, NOT A RELEASE"),
        ((N,), "proved; EXPERIMENT, NOT A RELEASE"),
    ],
)
def test_the_short_line_tells_what_it_rests_on(backings: tuple[Backing, ...], end: str) -> None:
    """Attack: a line that said proved, and a promise that rested on something only assumed."""
    g = resting_on(*backings)
    line = f"(1, 1e-05)-DP per record, add-remove, {end}"
    assert str(g) == line and g.to_dict()["text"] == line and g.to_dict()["standing"] == "proved"
    assert repr(g) == f"<Guarantee {line}>"
    assert g.standing_in_words in g._repr_html_()


def test_what_is_not_proved_is_never_called_so() -> None:
    premise = (Premise(about="a", text="t", backing=A),)
    assert str(stated(standing=Standing.CLAIMED, premises=premise)).endswith(", claimed")
    assert str(stated(math.inf, standing=Standing.NONE, premises=premise)).endswith(", none")


def test_the_weakest_premise_stands_first() -> None:
    listed = resting_on(E, T, A, N, A, E).premises
    assert [p.backing for p in listed] == [N, A, A, T, E, E]
    assert [p.about for p in listed] == ["3", "2", "4", "1", "0", "5"]


def test_comparing_needs_the_same_meaning() -> None:
    assert stated(1.0).at_least_as_strong_as(stated(2.0))
    assert not stated(1.0, 1e-4).at_least_as_strong_as(stated(2.0, 1e-5))
    for other in (
        stated(adjacency=Adjacency.REPLACE_ONE),
        stated(unit=Unit.USER),
        stated(protects=Protects.LABELS),
    ):
        with pytest.raises(Incomparable):
            stated().at_least_as_strong_as(other)
    with pytest.raises(Incomparable):
        stated(adjacency=Adjacency.REPLACE_ONE).as_add_remove()


def test_converting_costs_budget() -> None:
    swapped = stated(1.0, 1e-5).as_replace_one()
    assert swapped.epsilon == 2.0
    assert swapped.delta == pytest.approx((1 + math.e) * 1e-5)
    assert swapped.adjacency is Adjacency.REPLACE_ONE
    assert swapped.as_replace_one() == swapped
    assert stated(1.0, 0.0).as_replace_one().delta == 0.0
    vacuous = stated(50.0, 1e-5).as_replace_one()
    assert vacuous.epsilon == math.inf
    assert vacuous.standing is Standing.NONE


def test_checks_return_numbers_or_say_what_is_wrong() -> None:
    assert _check.count("n", 3.0) == 3
    assert _check.count("n", 2**53 + 1) == 2**53 + 1  # no detour through a float
    assert isinstance(_check.count("n", 3.0), int)
    assert _check.unit("q", 1) == 1.0
    for check, bad in (
        (_check.open_unit, (0, 1, math.nan, None, "a")),
        (_check.unit, (-1e-9, 1.1, math.nan)),
        (_check.positive, (0, -1, math.inf, math.nan)),
        (_check.non_negative, (-1, math.inf, math.nan)),
        (_check.count, (0, 1.5, math.inf, math.nan, True)),
    ):
        for value in bad:
            with pytest.raises(InvalidArgument) as caught:
                check("x", value)  # type: ignore[operator]
            assert caught.value.name == "x"
            assert "\n" not in str(caught.value)


def test_errors_are_ours_and_pythons() -> None:
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(MissingFile, FileNotFoundError)
    assert issubclass(InvalidArgument, PrivetError)
    assert len(str(InvalidArgument("x", list(range(1000)), "short"))) < 120


def test_errors_come_back_whole_from_another_process() -> None:
    raised = (
        errors.InvalidArgument("delta", object(), "a number in (0, 1)", "say it"),
        errors.MissingFile("there", "look elsewhere"),
        errors.BudgetExceeded(cap_epsilon=1.0, would_be=2.0, delta=1e-5, what="a mean"),
        errors.LedgerTampered("f", "cut off", entry=3),
    )
    for error in raised:
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error) and str(back) == str(error)
    assert back.entry == 3
