"""A served Strategy II model: bounded in every trained part, and it stops when it must."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest
import torch
from scipy import stats

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Standing, Unit
from privet.ledger import Ledger
from privet.methods.noisy_inputs import QueryBudgetExceeded, QueryNet, ServedModel
from privet.methods.noisy_inputs.bounded_query_network import _clip_examples
from privet.networks.residual import keep_from_zero
from privet.networks.residual.resnets import shortcut
from privet.noise import seeded


def network(**kw):
    settings = {"bound": 2.0, "floor": 0.5, "gamma": 8.0, "last": 1.0, "output_noise": 2.0, **kw}
    torch.manual_seed(0)
    return QueryNet(channels=1, classes=3, widths=(4, 4, 8), **settings)


def ledger(path=None, epsilon=60.0):
    terms = {"cap_epsilon": epsilon, "cap_delta": 1e-5, "unit": Unit.QUERY}
    return Ledger.in_memory(**terms) if path is None else Ledger.create(path, **terms)


X = np.random.default_rng(0).normal(size=(6, 1, 8, 8))


def test_it_stops_when_the_budget_is_spent():
    model = ServedModel.of(network(), ledger())
    allowed = model.queries_left
    assert allowed > 3
    answered = 0
    for _ in range(allowed):
        assert model.predict_proba(X[:1]).shape == (1, 3)
        answered += 1
    assert model.queries_left == 0
    with pytest.raises(QueryBudgetExceeded, match="query budget is spent") as caught:
        model.predict_proba(X[:1])
    assert answered == allowed and caught.value.left == 0
    assert model.ledger.spent() <= 60.0
    g = model.guarantee()
    assert g.standing is Standing.PROVED and g.unit is Unit.QUERY and g.epsilon <= 60.0
    mu = model.network.cost.loss(allowed).mu
    assert mu == pytest.approx(model.ledger.total.mu)


def test_a_seed_is_among_the_premises_for_good():
    """A seeded source, and the answers it gave: the ledger remembers when the source is gone."""
    kept = ledger()
    assert premises.SECRET_NOISE in ServedModel.of(network(), kept).guarantee().premises
    model = ServedModel.of(network(), kept, rng=seeded(0))
    assert premises.SECRET_SEED in model.guarantee().premises
    model.predict(X[:1])
    assert premises.SECRET_SEED in ServedModel.of(network(), kept).guarantee().premises
    assert model.guarantee().epsilon == kept.cap_epsilon


def test_a_batch_that_does_not_fit_is_refused_whole():
    model = ServedModel.of(network(), ledger())
    left = model.queries_left
    with pytest.raises(QueryBudgetExceeded, match=f"room for {left}; ask fewer"):
        model.predict(np.repeat(X[:1], left + 1, axis=0))
    assert model.queries_left == left and len(model.ledger) == 0
    assert model.predict(np.repeat(X[:1], left, axis=0)).shape == (left,)


def test_nothing_is_computed_when_the_ledger_refuses(monkeypatch):
    net = network()
    model = ServedModel.of(net, ledger(epsilon=1e-3))
    monkeypatch.setattr(net, "forward", lambda x: pytest.fail("computed"))
    with pytest.raises(QueryBudgetExceeded):
        model.predict_proba(X[:1])


def _ask(path, weights, queue):
    net = network()
    net.load_state_dict(weights)
    model = ServedModel.of(net, Ledger.open(path))
    answered = 0
    try:
        while True:
            model.predict_proba(X[:1])
            answered += 1
            if answered == 2:
                queue.put(answered)
                queue.close()
                queue.join_thread()
                os._exit(9)  # killed in the middle of its service
    except QueryBudgetExceeded:
        queue.put(answered)


@pytest.mark.slow
def test_the_counter_survives_a_restart(tmp_path):
    """Two processes die after two answers each; a third gets what is left, and no more."""
    path = tmp_path / "queries.ledger"
    net = network()
    total = ServedModel.of(net, ledger(path)).queries_left
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        queue = context.Queue()
        process = context.Process(target=_ask, args=(path, net.state_dict(), queue))
        process.start()
        assert queue.get(timeout=60) == 2
        process.join()
        assert process.exitcode == 9
    model = ServedModel.of(net, Ledger.open(path))
    assert model.queries_left == total - 4
    model.predict_proba(np.repeat(X[:1], total - 4, axis=0))
    reopened = ServedModel.of(network(), Ledger.open(path))
    with pytest.raises(QueryBudgetExceeded, match="spent"):
        reopened.predict_proba(X[:1])
    assert Ledger.open(path).verify().spent <= 60.0


@torch.no_grad()
def test_any_two_training_sets_stay_within_the_bounds_of_the_proof():
    """Replay with wild weights: given x^i, no mapping moves the mean by more than 2B, and noise
    is nowhere below gamma eta; the last layer by 2 a ||h|| under pi ||h||."""
    for seed in range(5):
        a, b = network().eval(), network().eval()
        torch.manual_seed(seed)
        for net in (a, b):
            for p in net.parameters():
                p.mul_(0.0).add_(1e3 * torch.randn_like(p))
        x = torch.randn(4, 1, 8, 8)
        for i, (first, second) in enumerate(zip(a.blocks, b.blocks, strict=True)):
            moved = _clip_examples(first(x), 2.0) - _clip_examples(second(x), 2.0)
            assert 1.0 < moved.flatten(1).norm(dim=1).max() <= 4.0
            skip = shortcut(x, stride=a.strides[i], added=a.added[i])
            total = skip + _clip_examples(first(x), 2.0)
            assert (8.0 * keep_from_zero(skip, 0.5)).abs().min() >= 8.0 * 0.5
            x = a.noises[i](total, skip)  # the x^{i+1} that both are given
        h = torch.randn(7, 8)
        weights = [n.weight * (1.0 / n.weight.norm()).clamp(max=1.0) for n in (a, b)]
        gap = (h @ (weights[0] - weights[1]).t()).norm(dim=1)
        assert (gap <= 2.0 * h.norm(dim=1) * (1 + 1e-5)).all()


@torch.no_grad()
def test_an_infinite_mapping_is_held_too():
    net = network().eval()
    net.blocks[0][3].weight.fill_(float("inf"))
    assert torch.isfinite(net(torch.from_numpy(X).float())).all()


@torch.no_grad()
def test_noise_of_the_served_model_has_its_law():
    """Output noise over pi ||h|| with W = 0, and block noise over gamma x~; KS at 1e-4 each."""
    net = network()
    net.eval().use(seeded(3))
    net.weight.zero_()
    seen = []
    for module in net.noises:
        module.register_forward_hook(lambda m, i, o: seen.append((i, o)))
    logits = net(torch.from_numpy(np.repeat(X[:1], 2000, axis=0)).float())
    size = seen[-1][1].mean((2, 3)).norm(dim=1, keepdim=True)
    assert stats.kstest((logits / (2.0 * size)).flatten().double().numpy(), "norm").pvalue > 1e-4
    assert len(seen) == 3
    for (total, skip), out in seen:
        noise = ((out - total) / (8.0 * keep_from_zero(skip, 0.5))).flatten()[:50_000]
        assert stats.kstest(noise.double().numpy(), "norm").pvalue > 1e-4


@torch.no_grad()
def test_repeated_questions_average_the_noise_away():
    """Why Theorem 2 is per query: 4,000 answers to one question tell the noiseless logits.

    The spread of the mean is that of an answer over sqrt(4000) = 63.
    """
    net = network(gamma=1.0, output_noise=1.0)
    net.eval().use(seeded(0))
    x = torch.from_numpy(np.repeat(X[:1], 2000, axis=0)).float()
    one, two = net(x), net(x)
    assert (one.mean(0) - two.mean(0)).abs().max() < 0.12 * one.std(0).max()


def test_wrong_queries_are_refused_and_not_charged():
    model = ServedModel.of(network(), ledger())
    bad = X[:1].copy()
    bad[0, 0, 0, 0] = np.nan
    for rows in (bad, X[:0]):
        with pytest.raises(InvalidArgument):
            model.predict_proba(rows)
    assert len(model.ledger) == 0
    with pytest.raises(InvalidArgument, match="widths"):
        QueryNet(
            channels=8, classes=2, bound=1, floor=1, gamma=1, last=1, output_noise=1, widths=(4,)
        )


def test_an_endless_ledger_does_not_hang():
    assert ServedModel.of(network(), ledger(epsilon=float("inf"))).queries_left == 2**40


def test_noise_is_secret_however_it_is_made():
    """torch's seed, which anybody may set, does not repeat the noise of a served model."""
    model = ServedModel(network=network(), ledger=ledger(epsilon=500.0))
    answers = []
    for _ in range(2):
        torch.manual_seed(0)
        answers.append(model.predict_proba(X))
    assert not np.array_equal(*answers)


def test_a_picture_that_is_no_row_costs_nothing():
    account = ledger()
    with pytest.raises(InvalidArgument, match=r"\(rows, channels, height, width\)"):
        ServedModel.of(network(), account).predict_proba(X[0])
    assert len(account) == 0


@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.USER])
def test_a_ledger_that_promises_for_something_else_is_refused(unit):
    other = Ledger.in_memory(cap_epsilon=60.0, cap_delta=1e-5, unit=unit)
    expected = f"ledger must be one per query, got 'one per {unit.value}'"
    with pytest.raises(InvalidArgument, match=expected):
        ServedModel(network=network(), ledger=other)
    with pytest.raises(InvalidArgument, match=expected):
        ServedModel.of(network(), other)
    assert ServedModel.of(network(), ledger()).guarantee().unit is Unit.QUERY
