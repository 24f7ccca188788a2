"""Findings are calibrated: areas and rates against a reference, limits that cover, no false alarms."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.audit.epsilon_lower_bounds import clopper_pearson
from privet.audit.membership import evaluate, membership_finding
from privet.errors import InvalidArgument
from privet.report import plots as pictures
from tests.reference import membership as reference

MEMBERS = np.arange(400) < 200


def shifted(rng, n, shift):
    """n scores of a side, members higher by `shift`: ROC(f) = Phi(shift - Phi^-1(1 - f))."""
    scores = rng.normal(size=2 * n)
    scores[:n] += shift
    return scores, np.arange(2 * n) < n


small = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=9)


@pytest.mark.slow
@given(small, small, st.sampled_from([0.001, 0.2, 0.5]))
@settings(max_examples=150, deadline=None)
def test_values_are_those_of_the_reference(inside, outside, f):
    found = evaluate(
        np.array(inside + outside), np.arange(len(inside + outside)) < len(inside), false_positive_rates=(f,)
    )  # fmt: skip
    value, variance = reference.area(inside, outside)
    assert found.auc.value == pytest.approx(value, abs=1e-12)
    assert found.auc.low <= value <= found.auc.high
    if variance > 0.0 and 0.0 < value < 1.0:
        half = np.diff(stats.logistic.ppf([found.auc.low, found.auc.high]))[0] / 2
        expected = stats.norm.ppf(0.975) * math.sqrt(variance) / (value * (1 - value))
        assert half == pytest.approx(expected, rel=1e-6)
    at = found.tpr_at[f]
    assert at.value == pytest.approx(reference.best_rate(inside, outside, f), abs=1e-12)
    assert at.low <= at.value <= at.high
    fpr, tpr = found.roc
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()
    assert np.trapezoid(tpr, fpr) == pytest.approx(value, abs=1e-12)


def misses(shift, n, f, repetitions, seed):
    """How often the limits of area and rate miss the truth."""
    rng = np.random.default_rng(seed)
    true_area = stats.norm.cdf(shift / math.sqrt(2))
    true_rate = stats.norm.sf(stats.norm.isf(f) - shift)
    area = rate = 0
    for _ in range(repetitions):
        s, m = shifted(rng, n, shift)
        found_area = membership_finding.area(s[m], s[~m], 0.05)
        found_rate = membership_finding.at_false_positive_rate(s[m], s[~m], f, 0.05)
        area += not found_area.low <= true_area <= found_area.high
        rate += not found_rate.low <= true_rate <= found_rate.high
    return area, rate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shift", "n", "f"), [(0.0, 100, 0.05), (0.0, 500, 0.01), (1.5, 500, 0.01)]
)
def test_limits_cover(shift, n, f):
    """Nominal 95%, 600 repetitions; a sound interval fails here with probability .001 (the area's
    is asymptotic: a true rate of misses of .055 is allowed for)."""
    area, rate = misses(shift, n, f, 600, seed=n)
    assert area <= stats.binom.ppf(0.999, 600, 0.055)
    assert rate <= stats.binom.ppf(0.999, 600, 0.05)


@pytest.mark.slow
def test_the_area_misses_as_often_as_it_says():
    """And not far less: limits that always cover would say nothing (false alarm .002)."""
    area, _ = misses(0.0, 200, 0.01, 1000, seed=5)
    assert stats.binom.ppf(0.001, 1000, 0.05) <= area <= stats.binom.ppf(0.999, 1000, 0.055)


def test_a_threshold_from_the_reported_scores_needs_wider_limits():
    """The plain limits of a rate whose threshold was read off the same scores miss far too often:
    why `at_false_positive_rate` does not use them."""
    rng, wrong, n, f = np.random.default_rng(1), 0, 500, 0.01
    truth = stats.norm.sf(stats.norm.isf(f) - 1.5)
    for _ in range(400):
        s, m = shifted(rng, n, 1.5)
        t = np.sort(s[~m])[::-1][math.floor(f * n)]
        hits = int((s[m] > t).sum())
        low, high = clopper_pearson(hits, n, 0.025)
        wrong += not low <= truth <= high
    assert wrong > 100


def test_tied_scores_keep_their_limits():
    """Scores of a label-only attack take few values: exact limits hold all the same."""
    rng, wrong = np.random.default_rng(2), 0
    p1, p0, f = (0.05, 0.25, 0.7), (0.02, 0.28, 0.7), 0.1  # ROC(.1) = .05: the top value alone
    for _ in range(500):
        inside, outside = (-rng.choice(3, size=300, p=p).astype(float) for p in (p1, p0))
        found = membership_finding.at_false_positive_rate(inside, outside, f, 0.05)
        wrong += not found.low <= 0.05 <= found.high
    assert wrong <= stats.binom.ppf(0.999, 500, 0.05)


def test_perfect_separation_has_an_exact_limit():
    found = evaluate(np.where(MEMBERS, 1.0, 0.0), MEMBERS)
    assert (found.auc.value, found.auc.high) == (1.0, 1.0)
    assert found.auc.low == pytest.approx(0.025 ** (1 / 200))
    upside_down = evaluate(np.where(MEMBERS, 0.0, 1.0), MEMBERS)
    assert (upside_down.auc.low, upside_down.auc.high) == (0.0, pytest.approx(1 - found.auc.low))


def test_scores_that_are_all_alike_say_little():
    found = evaluate(np.zeros(400), MEMBERS).auc
    assert found.value == 0.5 and found.low == pytest.approx(0.5 * 0.025 ** (1 / 200))
    assert found.high == pytest.approx(1 - found.low)


def test_few_non_members_cannot_show_a_small_rate():
    found = evaluate(np.where(MEMBERS, 1.0, 0.0), MEMBERS)
    assert found.tpr_at[0.001].value == 1.0 and found.tpr_at[0.001].low == 0.0
    many = np.arange(20_000) < 10_000
    assert evaluate(np.where(many, 1.0, 0.0), many).tpr_at[0.001].low > 0.99


def test_thresholds_classes_and_groups():
    rng = np.random.default_rng(0)
    s, m = shifted(rng, 200, 1.0)
    groups = np.where(np.arange(400) % 2, "old", "young")
    found = evaluate(s, m, thresholds=(0.0, 50.0), classes=np.arange(400) % 3, groups=groups)
    at = found.thresholds[0]
    assert at.recall.value == pytest.approx((s[m] >= 0).mean())
    assert at.false_positive_rate.value == pytest.approx((s[~m] >= 0).mean())
    assert at.precision.value == pytest.approx(m[s >= 0].mean())
    assert at.precision.low < at.precision.value < at.precision.high
    assert math.isnan(found.thresholds[1].precision.value)
    assert list(found.by_class) == ["0", "1", "2"] and set(found.by_group) == {"old", "young"}
    part = groups == "old"
    assert found.by_group["old"].auc == evaluate(s[part], m[part]).auc
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {"auc", "auc_interval", "tpr_at_1pct_fpr", "tpr_at_0.1pct_fpr_interval"} <= set(written)
    assert written["thresholds"][1]["precision"] is None
    assert len(written["roc"]["fpr"]) == len(written["roc"]["tpr"]) <= 201


def test_a_class_without_members_is_left_out():
    found = evaluate(np.arange(4.0), np.arange(4) == 0, classes=[0, 0, 1, 1])
    assert list(found.by_class) == ["0"]


def test_infinite_scores_are_scores():
    s = np.array([np.inf, np.inf, 0.0, -np.inf, 1.0, -np.inf])
    found = evaluate(s, np.array([True, True, False, False, True, False]))
    assert found.auc.value == 1.0 and len(found.roc[0]) == 5


@pytest.mark.parametrize(
    ("scores", "members", "message"),
    [
        ([], [], "one score for each record"),
        ([1.0, math.nan], [True, False], "free of NaN"),
        ([1.0, 2.0], [True, True], "some members and some non-members"),
        ([1.0, 2.0], [1, 0], "true or false for each of 2"),
        ([1.0, 2.0], [True], "true or false for each of 2"),
    ],
)
def test_mistakes_are_refused(scores, members, message):
    with pytest.raises(InvalidArgument, match=message):
        evaluate(scores, np.array(members), attack="x")
    with pytest.raises(InvalidArgument, match="one entry for each of 2"):
        evaluate([1.0, 2.0], np.array([True, False]), groups=["a"])


@pytest.mark.slow
def test_picture_on_log_axes(tmp_path):
    rng = np.random.default_rng(0)
    findings = [evaluate(*shifted(rng, 2000, d), attack=f"shift {d}") for d in (0.0, 1.0)]
    figure = pictures.roc(findings, title="Two attacks")
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert len(axes.get_legend().get_texts()) == 3  # two attacks and chance
    figure.savefig(tmp_path / "roc.png")
    assert (tmp_path / "roc.png").stat().st_size > 5000
    with pytest.raises(InvalidArgument, match="at least one"):
        pictures.roc([])
