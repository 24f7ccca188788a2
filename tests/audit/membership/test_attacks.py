"""Attacks: equal to slow references, right in known cases, silent where there is nothing to find."""

import math
import statistics
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from privet.audit import membership
from privet.audit.membership import (
    RMIA,
    LiRA,
    OfflineLiRA,
    OfflineRMIA,
    References,
    ShadowAttack,
    Splits,
    confidence,
    confidence_of_logits,
    evaluate,
    gap,
    gaussian_perturbation,
    label_only,
    random_halves,
    shadow_attack,
    train_references,
    yeom,
    yeom_threshold,
)
from privet.errors import InvalidArgument
from privet.noise import seeded
from tests.audit.membership import overfitted
from tests.reference import membership as reference

ALL = (LiRA(), OfflineLiRA(), RMIA(), OfflineRMIA(), OfflineRMIA(a=0.7, gamma=2.0))


def normal_references(rng, n, count, gain):
    """References whose phi is normal, higher by `gain` with the record: LiRA's own model."""
    inside = random_halves(n, count, seed=int(rng.integers(2**31)))
    level = rng.normal(size=n) * 3.0
    return level, References(confidence=level + gain * inside + rng.normal(size=(count, n)), members=inside)  # fmt: skip


@pytest.fixture(scope="module")
def attacked():
    """A target and 16 references that overfit."""
    x, y = overfitted.records(600)
    refs = train_references(overfitted.train, x, y, 17, seed=3, read=confidence_of_logits)
    return refs.without(0)


@pytest.mark.slow
@pytest.mark.parametrize("centre", ["mean", "median"])
@pytest.mark.parametrize("pool", ["within", "overall"])
@pytest.mark.parametrize("own_variance_from", [3, 99])
def test_lira_is_the_reference(attacked, own_variance_from, pool, centre):
    phi, _, refs = attacked
    law = {
        "own_variance": own_variance_from == 3,
        "centre": {"mean": statistics.fmean, "median": statistics.median}[centre],
        "pool": {"within": reference.pooled_variance, "overall": reference.overall_variance}[pool],
    }
    expected = reference.lira(phi, refs.confidence, refs.members, **law)
    settings = {"own_variance_from": own_variance_from, "centre": centre, "pool": pool}
    np.testing.assert_allclose(LiRA(**settings).score(phi, refs), expected, rtol=1e-9, atol=1e-9)
    expected = reference.lira_offline(phi, refs.confidence, refs.members, **law)
    scores = OfflineLiRA(**settings).score(phi, refs)
    np.testing.assert_allclose(stats.norm.cdf(scores), expected, rtol=1e-9, atol=1e-12)


def logits_of(records, models):
    """Logits of an overfitted target and references, (models, records, classes), and labels."""
    x, y = overfitted.records(records)
    inside = random_halves(records, models, seed=3)
    return np.stack([overfitted.train(x[m], y[m], k)(x) for k, m in enumerate(inside)]), inside, y


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "mode"),
    [
        (RMIA(gamma=2.0), {"gamma": 2.0}),
        (OfflineRMIA(gamma=2.0, a=0.33), {"gamma": 2.0, "a": 0.33}),
        (OfflineRMIA(a=0.3), {"gamma": 1.0, "a": 0.3}),
        (OfflineRMIA(a=0.6, both_sides=True), {"gamma": 1.0, "a": 0.6, "one": True}),
    ],
    ids=["LeakPro online", "LeakPro offline", "Privacy Meter", "Privacy Meter, one reference"],
)
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_rmia_on_the_same_logits_finds_what_the_peers_find(attack, mode, temperature):
    z, inside, y = logits_of(300, 10)
    used = slice(2, 3) if "one" in mode else slice(2, 10)  # 1 has the records that 0 has not
    phi = np.stack([confidence_of_logits(one, y, temperature=temperature) for one in z])
    refs = References(confidence=phi[used], members=inside[used])
    expected = reference.rmia_of_logits(
        z[0], z[used], y, inside[used], temperature=temperature, **mode
    )
    ours = evaluate(attack.score(phi[0], refs), inside[0]).auc.value
    theirs = evaluate(expected, inside[0]).auc.value
    assert ours == pytest.approx(theirs, abs=0.002) and ours != 0.5


@pytest.mark.parametrize("gamma", [1.0, 1.7])
def test_rmia_is_the_reference(attacked, gamma):
    phi, _, refs = attacked
    some = slice(0, 250)
    phi, refs = phi[some], refs.only(some)
    pair = 1.0 / len(phi)  # a ratio that equals gamma but for rounding may fall on either side
    expected = reference.rmia(phi, refs.confidence, refs.members, gamma=gamma)
    np.testing.assert_allclose(RMIA(gamma=gamma).score(phi, refs), expected, atol=1.01 * pair)
    expected = reference.rmia(phi, refs.confidence, refs.members, gamma=gamma, a=0.4)
    scores = OfflineRMIA(gamma=gamma, a=0.4).score(phi, refs)
    np.testing.assert_allclose(scores, expected, atol=1.01 * pair)
    assert np.mean(np.abs(scores - expected)) < 0.1 * pair


@pytest.mark.slow
def test_lira_reaches_the_best_possible_area():
    """phi normal with known laws: no attack does better than Phi(gain / sqrt 2), and with many
    references LiRA does as well (20,000 records: four standard errors are .013)."""
    rng = np.random.default_rng(0)
    level, refs = normal_references(rng, 20_000, 128, gain=1.0)
    members = rng.random(20_000) < 0.5
    phi = level + members + rng.normal(size=20_000)
    best = stats.norm.cdf(1.0 / math.sqrt(2.0))
    for known in (LiRA(), OfflineLiRA()):
        assert evaluate(known.score(phi, refs), members).auc.value == pytest.approx(best, abs=0.013)
    plain = evaluate(phi, members).auc.value  # without references the records' levels hide it
    assert plain < best - 0.1


def test_stronger_attacks_find_more(attacked):
    phi, members, refs = attacked
    loss = evaluate(phi, members).auc
    for attack in ALL:
        assert evaluate(attack.score(phi, refs), members).auc.low > max(0.5, loss.value)


def test_all_attacks_in_one_call():
    x, y = overfitted.records(400)
    members = np.arange(400) < 200
    refs = train_references(overfitted.train_probabilities, x, y, 4, seed=1)
    target = overfitted.train_probabilities(x[members], y[members], 0)
    loss, lira, bavaria, rmia = membership.attack(target, x, y, members, references=refs, classes=y)
    assert [f.attack for f in (loss, lira, bavaria, rmia)] == [
        "loss",
        "LiRA, 4 references",
        "BaVarIA, 4 references",
        "RMIA, 4 references",
    ]
    assert loss.auc == evaluate(yeom(target(x), y), members).auc
    assert (
        rmia.auc
        == evaluate(RMIA(temperature=2.0).score(confidence(target(x), y), refs), members).auc
    )
    assert len(rmia.by_class) == 5


@pytest.mark.slow
def test_null_targets_raise_no_alarm():
    """A target that never saw the records: 95% limits of the area may miss .5 in 5% of 120 cases
    an attack (allowed .055, see test_membership_finding); five attacks, false alarm .0002 each."""
    rng = np.random.default_rng(4)
    alarms = dict.fromkeys(ALL, 0)
    areas = {attack: [] for attack in ALL}
    for _ in range(120):
        level, refs = normal_references(rng, 400, 4, gain=1.0)
        phi, members = level + rng.normal(size=400), rng.permutation(400) < 200
        for attack in ALL:
            auc = evaluate(attack.score(phi, refs), members).auc
            alarms[attack] += not auc.low <= 0.5 <= auc.high
            areas[attack].append(auc.value)
    for attack in ALL:
        assert alarms[attack] <= stats.binom.ppf(0.9998, 120, 0.055)
        error = 0.029 / math.sqrt(120)  # the standard error of an area at 200 + 200, over 120
        assert abs(np.mean(areas[attack]) - 0.5) < 4 * error


def test_offline_rmia_is_tuned_on_references_only(attacked):
    phi, members, refs = attacked
    few = References(confidence=refs.confidence[:4], members=refs.members[:4])
    attack = OfflineRMIA().tune(few)
    assert attack.a in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    found = [
        evaluate(OfflineRMIA(a=a).score(phi, few), members).auc.value for a in np.linspace(0, 1, 6)
    ]
    assert evaluate(attack.score(phi, few), members).auc.value > max(found) - 0.03


def test_attacks_refuse_what_they_cannot_use():
    two = References(confidence=np.zeros((2, 4)), members=random_halves(4, 2, seed=0))
    with pytest.raises(InvalidArgument, match="train more references"):
        LiRA().score(np.zeros(4), two)
    never = References(confidence=np.zeros((2, 4)), members=np.zeros((2, 4), bool))
    with pytest.raises(InvalidArgument, match="offline attack"):
        RMIA().score(np.zeros(4), never)
    with pytest.raises(InvalidArgument, match="each of 4 records"):
        OfflineRMIA().score(np.zeros(3), never)
    with pytest.raises(InvalidArgument, match="finite"):
        OfflineLiRA().score(np.full(4, np.nan), never)
    with pytest.raises(InvalidArgument, match="gamma"):
        RMIA(gamma=0.0)
    with pytest.raises(InvalidArgument, match="in \\[0, 1\\]"):
        OfflineRMIA(a=1.5)


def test_confidence_is_the_logit_of_the_true_probability():
    x, y = overfitted.records(50)
    logits = overfitted.train(x, y, 0)(x)
    p = overfitted.probabilities(logits)
    expected = [reference.phi(row, label) for row, label in zip(p, y, strict=True)]
    np.testing.assert_allclose(confidence(p, y), expected, rtol=1e-10)
    np.testing.assert_allclose(confidence_of_logits(logits, y), expected, rtol=1e-10)
    np.testing.assert_allclose(1 / (1 + np.exp(-confidence(p, y))), p[np.arange(50), y], rtol=1e-10)


def test_memorised_records_are_not_rounded_away():
    p = np.array([[1.0, 1e-30, 1e-32], [1.0, 1e-20, 0.0], [1.0, 0.0, 0.0]])  # 1 - p_y is 0 in all
    phi = confidence(p, [0, 0, 0])
    assert phi[0] == pytest.approx(-math.log(1.01e-30)) and phi[2] > phi[0] > phi[1]
    assert confidence(p, [0, 0, 0], floor=5e-4).max() == pytest.approx(-math.log(5e-4))
    assert np.isfinite(confidence(p, [1, 2, 2])).all()


@pytest.mark.parametrize(
    ("answers", "labels", "message"),
    [
        ([[0.5, 0.5], [np.nan, 1.0]], [0, 1], "the first is row 1"),
        ([[2.0, -1.0]], [0], "confidence_of_logits"),
        ([[0.5, 0.4]], [0], "sum to 1"),
        ([[0.5, 0.5]], [2], "below 2"),
        ([[0.5, 0.5]], [0.0], "whole numbers"),
        ([[0.5, 0.5]], [0, 1], "each of 1 records"),
        ([0.5, 0.5], [0, 1], "a column for each class"),
        (np.zeros((0, 2)), [], "at least one record"),
    ],
)
def test_answers_that_are_wrong_are_refused(answers, labels, message):
    with pytest.raises(InvalidArgument, match=message):
        confidence(answers, labels)


def test_yeom_scores_are_minus_the_loss():
    p = np.array([[0.25, 0.75], [1.0, 0.0]])
    assert yeom(p, [1, 1]).tolist() == [math.log(0.75), -math.inf]
    assert yeom_threshold([-1.0, -3.0]) == -2.0


def test_the_gap_attack_finds_the_generalisation_gap():
    members = np.arange(200) < 100
    right = np.r_[np.arange(100) < 95, np.arange(100) < 70]  # 95% in training, 70% in test
    found = evaluate(gap(right.astype(int), np.ones(200, int)), members)
    assert found.auc.value == pytest.approx(0.5 + (0.95 - 0.70) / 2)


def test_labels_alone_are_enough_to_attack():
    x, y = overfitted.records(400, wrong=0.2)
    members = np.arange(400) < 200
    answer = overfitted.train(x[members], y[members], 0)
    asked = []

    def predict(records):
        asked.append(len(records))
        return answer(records).argmax(axis=1)

    scores = label_only(predict, x, y, perturb=gaussian_perturbation(0.1), queries=8, rng=seeded(0))
    assert asked == [400] * 9
    assert evaluate(scores, members).auc.value > 0.6
    again = label_only(predict, x, y, perturb=gaussian_perturbation(0.1), queries=8, rng=seeded(0))
    assert np.array_equal(scores, again)
    with pytest.raises(InvalidArgument, match="one label a record"):
        label_only(answer, x, y, perturb=gaussian_perturbation(0.1), queries=1, rng=seeded(0))


def test_splits_are_the_papers():
    s = Splits.of(1000, rng=seeded(1))
    parts = (s.shadow_train, s.shadow_out, s.target_train, s.target_out)
    assert [len(p) for p in parts] == [250] * 4
    assert len(np.unique(np.concatenate(parts))) == 1000
    assert np.array_equal(s.shadow[s.shadow_members], s.shadow_train)
    assert np.array_equal(s.target[s.target_members], s.target_train)


def test_perceptron_gradients_are_differences():
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((3, 7), (7,), (7, 2), (2,))]
    x, target = rng.normal(size=(11, 3)), np.eye(2)[rng.integers(0, 2, 11)]

    def loss():
        a, b, c, d = weights
        logits = np.tanh(x @ a + b) @ c + d
        return -np.mean((logits - np.log(np.exp(logits).sum(1, keepdims=True)))[target == 1])

    for w, g in zip(weights, shadow_attack._gradients(weights, x, target), strict=True):
        for i in np.ndindex(*w.shape):
            w[i] += 1e-6
            up = loss()
            w[i] -= 2e-6
            down = loss()
            w[i] += 1e-6
            assert g[i] == pytest.approx((up - down) / 2e-6, abs=1e-6)


def test_shadow_attack_on_an_overfitted_and_on_an_honest_target():
    """The paper's protocol; the target of the second half never saw its "members"."""
    x, y = overfitted.records(2400)
    s = Splits.of(2400, rng=seeded(0))
    shadow, target, other = (
        overfitted.train_probabilities(x[part], y[part], 1) for part in (s.shadow_train, s.target_train, s.shadow_out)
    )  # fmt: skip
    attack = ShadowAttack().fit(shadow(x[s.shadow]), s.shadow_members, rng=seeded(1))
    assert attack.control.auc.low > 0.5
    found = evaluate(attack.score(target(x[s.target])), s.target_members)
    assert found.auc.low > 0.5
    nothing = evaluate(attack.score(other(x[s.target])), s.target_members, confidence=0.999)
    assert nothing.auc.low < 0.5 < nothing.auc.high  # false alarm .001
    again = ShadowAttack().fit(shadow(x[s.shadow]), s.shadow_members, rng=seeded(1))
    assert np.array_equal(again.score(shadow(x)), attack.score(shadow(x)))


def test_shadow_attack_takes_both_probabilities_of_a_binary_model():
    p = np.linspace(0.5, 1.0, 64)
    probabilities = np.stack([p, 1 - p], axis=1)
    attack = ShadowAttack(epochs=20).fit(probabilities, p > 0.75, rng=seeded(0))
    assert attack.perceptron.weights[0].shape == (2, 64)
    assert evaluate(attack.score(probabilities), p > 0.75).auc.value > 0.95


@pytest.mark.slow
def test_attacking_needs_neither_torch_nor_sklearn():
    code = (
        "import privet.audit.membership, sys; "
        "sys.exit(bool({'torch', 'sklearn', 'joblib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
