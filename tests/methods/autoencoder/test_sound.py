"""The sound stack: what is promised, what is read, and what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.data.domain import Domain
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument
from privet.estimators import PrivateAutoencoder, PrivateAutoencoderClassifier
from privet.guarantee import Adjacency, Standing, Unit
from privet.ledger import Ledger
from privet.methods.autoencoder import Activation, AutoencoderStack, Layer, StackModel, Stream
from privet.methods.contract import ReleaseContext
from privet.noise import seeded
from privet.sensitivity import MomentSum, user_weights


def low_rank(n: int = 6000, d: int = 12, rank: int = 3, seed: int = 0) -> np.ndarray:
    """Rows in [0, 1] near an affine subspace."""
    rng = np.random.default_rng(seed)
    x = 0.5 + rng.uniform(-0.5, 0.5, (n, rank)) @ rng.uniform(-0.5, 0.5, (rank, d))
    return np.clip(x + 0.01 * rng.normal(size=(n, d)), 0.0, 1.0)


def labelled(n: int = 6000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = low_rank(n, seed=seed)
    return x, ((x - 0.5) @ np.random.default_rng(9).normal(size=(12, 3))).argmax(axis=1)


def classifier(**settings) -> PrivateAutoencoderClassifier:
    return PrivateAutoencoderClassifier(
        **{
            "epsilon": 2.0,
            "bounds": (0, 1),
            "classes": range(3),
            "layers": (4,),
            "n_public": 6000,
            "random_state": 0,
            **settings,
        }
    )


@pytest.mark.parametrize("activation", ["radial", "sigmoid"])
@pytest.mark.parametrize("layers", [(3,), (5, 3)])
def test_codes_carry_the_records(activation: str, layers: tuple[int, ...]) -> None:
    """Reconstruction explains most of what there is; codes stay in the unit ball."""
    x = low_rank()
    encoder = PrivateAutoencoder(
        epsilon=8.0, bounds=(0, 1), layers=layers, activation=activation, random_state=0
    ).fit(x)
    codes = encoder.transform(x)
    assert codes.shape == (6000, layers[-1]) and np.linalg.norm(codes, axis=1).max() < 1.0
    left = np.square(encoder.inverse_transform(codes) - x).sum()
    assert left < 0.25 * np.square(x - x.mean(axis=0)).sum()


@pytest.mark.parametrize("activation", list(Activation))
def test_a_layer_decodes_what_it_encodes(activation: Activation) -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    layer = Layer(
        mean=rng.normal(size=6),
        basis=basis,
        gain=np.full(6, 0.7),
        radius=0.8,
        activation=activation,
    )
    x = rng.normal(size=(40, 6))
    assert np.allclose(layer.decode(layer.encode(x)), x, atol=1e-3)


@pytest.mark.parametrize(
    ("noise", "delta"),
    [
        (None, 1e-5),
        (None, 0.0),
        ("laplace", 0.0),
        ("discrete laplace", 0.0),
        ("discrete gaussian", 1e-5),
    ],
)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_every_noise_spends_the_budget_and_no_more(noise, delta: float, adjacency: str) -> None:
    x, y = labelled(300)
    clf = classifier(noise=noise, delta=delta, adjacency=adjacency, layers=(3, 2)).fit(x, y)
    g = clf.guarantee_
    assert 1.99 < g.epsilon <= 2.0 and g.delta == delta
    assert g.adjacency is Adjacency(adjacency) and g.standing is Standing.PROVED
    assert len(clf.plan_.releases) == 3


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "discrete gaussian"])
@pytest.mark.parametrize("epsilon", [1e-3, 50.0])
def test_tiny_and_large_budgets(noise: str, epsilon: float) -> None:
    x, y = labelled(100)
    clf = classifier(noise=noise, epsilon=epsilon, layers=(2,)).fit(x, y)
    assert 0.99 * epsilon < clf.guarantee_.epsilon <= epsilon


def test_one_charge_before_the_first_draw() -> None:
    x, y = labelled(300)
    ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    clf = classifier(ledger=ledger).fit(x, y)
    assert len(ledger) == 1 and ledger.spent() == pytest.approx(clf.guarantee_.epsilon)
    with pytest.raises(BudgetExceeded):
        classifier(ledger=ledger).fit(x, y)
    users = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5, unit=Unit.USER)
    with pytest.raises(InvalidArgument):
        classifier(ledger=users).fit(x, y)


def test_users_are_protected_when_groups_are_given() -> None:
    """A user with many records weighs as much as one with few; the guarantee says so."""
    x, y = labelled()
    users = np.arange(6000) // 2
    clf = classifier(user_share=2.0).fit(x, y, groups=users)
    assert clf.guarantee_.unit is Unit.USER and clf.score(x, y) > 0.75
    assert any("at most 2 records" in a.text for a in clf.guarantee_.premises)
    alone = classifier().fit(x, y, groups=np.zeros(6000))  # one user: next to nothing is learnt
    assert alone.score(x, y) < 0.6
    with pytest.raises(InvalidArgument, match="groups"):
        classifier().fit(x, y, groups=users[:5])


def test_what_one_user_can_change_is_bounded() -> None:
    """Moments of neighbouring data sets, all of a user's records gone: within the sensitivity."""
    x = low_rank(200)
    users = np.arange(200) % 7
    gone = users != 3
    method = AutoencoderStack(layers=(4,), user_share=3.0)
    facts = {"records": 200, "features": 12, "outputs": 0, "epsilon": 2.0, "delta": 1e-5}
    plan = method.plan(PublicFacts(**facts, unit=Unit.USER))
    domain = Domain(shape=(12,), bounds=(0, 1))
    sums = []
    for keep in (slice(None), gone):
        total = plan.releases[0].moments.sum()
        rows = plan.encoders[0].encode(domain.rows(x[keep]).squash(plan.looseness))
        total.add(rows, None, user_weights(users[keep], share=3.0))
        sums.append(total.bounded().value)
    apart = np.linalg.norm(sums[0] - sums[1])
    assert 0.5 < apart <= plan.releases[0].moments.add_remove.l2


def test_a_stream_gives_what_an_array_gives() -> None:
    """Chunks of any size, the same bits; as many passes as releases."""
    x, y = labelled(3000)
    passes = []

    def open_once():
        passes.append(1)
        for part in np.array_split(np.arange(3000), 7):
            yield x[part], y[part]

    whole = classifier(layers=(4, 3)).fit(x, y)
    streamed = classifier(layers=(4, 3)).fit(Stream(open=open_once, columns=12))
    assert np.array_equal(whole.model_.weights, streamed.model_.weights)
    assert len(passes) == 3
    assert np.array_equal(whole.predict(x), streamed.predict(x))


def test_streams_say_what_they_need() -> None:
    rows = Stream(open=lambda: iter([np.ones((2, 12))]), columns=12)
    with pytest.raises(InvalidArgument, match="classes"):
        classifier(classes=None).fit(rows)
    with pytest.raises(InvalidArgument, match="labels"):
        classifier().fit(rows)
    with pytest.raises(InvalidArgument, match="n_public"):
        classifier(n_public=None).fit(rows)
    with pytest.raises(InvalidArgument, match="memory map"):
        classifier().fit(rows, groups=np.zeros(2))
    with pytest.raises(InvalidArgument, match="columns"):
        PrivateAutoencoder(bounds=(0, 1), layers=(2,), n_public=2).fit(
            Stream(open=rows.open, columns=11)
        )


@pytest.mark.slow
def test_wide_records_go_through_a_public_projection(monkeypatch) -> None:
    """More inputs than a second moment is released for: random directions and h x^T."""
    monkeypatch.setattr("privet.methods.autoencoder.private_layer.WIDEST", 64)
    x = low_rank(n=12_000, d=100)
    encoder = PrivateAutoencoder(epsilon=8.0, bounds=(0, 1), layers=(3,), random_state=0).fit(x)
    plan = encoder.plan_
    assert plan.encoders[0].projection is not None and plan.releases[0].moments.outputs == 100
    left = np.square(encoder.inverse_transform(encoder.transform(x)) - x).sum()
    assert left < 0.6 * np.square(x - x.mean(axis=0)).sum()


def test_learned_codes_beat_random_ones() -> None:
    """Three classes in three directions of twelve, the same total budget."""
    x, y = labelled()
    learned = np.mean(
        [classifier(layers=(3,), random_state=s).fit(x, y).score(x, y) for s in range(3)]
    )
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 3)))[0]
    random = np.mean(
        [
            classifier(layers=(), bounds=4.0, random_state=s)
            .fit(x @ directions, y)
            .score(x @ directions, y)
            for s in range(3)
        ]
    )
    assert learned > random + 0.02


def test_the_map_into_the_ball_is_public_and_undone() -> None:
    x = np.array([[0.2, 3.0, 0.5], [np.nan, 0.0, 0.0], [5.0, -7.0, 0.0]])
    told = {"layers": (3,), "epsilon": 1e6, "random_state": 0}
    box = PrivateAutoencoder(bounds=([0, 0, -1], [1, 10, 1]), **told).fit(np.repeat(x, 9, axis=0))
    rows = box.domain_.rows(x).squash(0.5)
    assert np.linalg.norm(rows, axis=1).max() < 1.0 and not rows[1].any()
    back = box.inverse_transform(box.transform(x))
    assert np.allclose(back[0], x[0], atol=1e-2) and np.allclose(back[2], [1, 0, 0], atol=1e-2)
    x = np.array([[3.0, 4.0], [1e300, 1e300], [0.3, 0.4], [1.0, -1.0]])
    ball = PrivateAutoencoder(bounds=5.0, **{**told, "layers": (2,)}).fit(np.repeat(x, 9, axis=0))
    assert np.linalg.norm(ball.domain_.rows(x).squash(0.5), axis=1).max() <= 1.0
    back = ball.inverse_transform(ball.transform(x))
    assert np.allclose(back[[0, 2]], [[3.0, 4.0], [0.3, 0.4]], atol=1e-2)


@pytest.mark.parametrize(
    "bad",
    [
        {"bounds": None},
        {"bounds": (1, 0)},
        {"bounds": -1.0},
        {"layers": (0,)},
        {"activation": "relu"},
        {"noise": "none"},
        {"shares": (1.0,)},
        {"shares": (1.0, -1.0)},
        {"adjacency": "friends"},
        {"classes": [1]},
        {"user_share": 0.0},
        {"noise": "gaussian", "delta": 0.0},
    ],
)
def test_bad_settings_are_refused_in_one_line(bad) -> None:
    x, y = labelled(60)
    with pytest.raises(InvalidArgument) as error:
        classifier(**bad).fit(x, y)
    assert "\n" not in str(error.value)


def test_codes_of_the_wrong_width_are_refused() -> None:
    encoder = PrivateAutoencoder(bounds=(0, 1), layers=(3,), random_state=0).fit(low_rank(100))
    with pytest.raises(InvalidArgument, match="3 columns"):
        encoder.inverse_transform(np.zeros((2, 4)))


def test_a_record_does_not_change_how_others_are_rounded(monkeypatch) -> None:
    """A row that is summed depends on its record alone, to the last bit.

    123 columns by 50 units: the library's product changes its order at 163 rows. Before codes were
    made in parts of one size, 163 equal records moved the output layer's moments by 1.0117 times
    their sensitivity when one was taken out (an entry of each row fell to the next 2^-12).
    """
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((123, 50)))[0]
    layer = Layer(mean=np.full(123, 0.01), basis=basis, gain=np.full(50, 5.0), radius=1.0)
    below = StackModel(layers=(layer,), looseness=0.05)
    method = AutoencoderStack(layers=(50,))
    plan = method.plan(PublicFacts(records=300, features=123, outputs=2, epsilon=1.0, delta=1e-5))
    x, y = rng.random((300, 123)), rng.integers(0, 2, 300)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(MomentSum, "add", lambda self, rows, *_: seen.append(rows))
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    context = ReleaseContext(ledger=ledger, rng=seeded(0), plan=plan)
    domain = Domain(shape=(123,), bounds=(0, 1))

    def summed(part: slice) -> np.ndarray:
        seen.clear()
        held = Records.with_classes(x[part], y[part], domain=domain, classes=np.arange(2))
        method._release_moments(held, plan, 1, below, None, context)
        return np.vstack(seen)

    every = summed(slice(None))
    for k in (1, 2, 5, 100, 137, 162, 163, 256, 299):
        assert np.array_equal(summed(slice(k)), every[:k])
        assert np.array_equal(summed(slice(k, None)), every[k:])


def test_a_paid_release_is_not_lost_to_the_fast_decomposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LAPACK's gesdd gave up on a finite 500 x 500 matrix of MNIST, after the budget was spent."""

    def gives_up(*_: Any, **__: Any) -> Any:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", gives_up)
    x = np.random.default_rng(0).uniform(size=(200, 4))
    clf = PrivateAutoencoderClassifier(
        epsilon=2.0, layers=(2,), bounds=(0, 1), classes=[False, True], random_state=0
    ).fit(x, x[:, 0] > 0.5)
    assert np.isfinite(clf.predict_proba(x)).all()
