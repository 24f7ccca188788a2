"""The loop: what is really added, by how much one record can move it, and what is charged when."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from privet import premises
from privet.accounting import SampledGaussian
from privet.errors import InvalidArgument, PrivetError
from privet.gradients import AutomaticClipping, PerLayerClipping
from privet.guarantee import Adjacency, Standing, Unit
from privet.ledger import Ledger
from privet.methods.dpsgd import AdaptiveBound, FixedSizeSampler, Schedule, dpsgd_loop, geometric
from privet.methods.dpsgd.private import Step
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import Watch, data, losses_of, network, run, start, weights


def test_noise_has_the_stated_law(monkeypatch):
    """(noisy - clean) / (z C) is standard normal; false alarms once in 10^4 seeds."""
    watch = Watch(monkeypatch)
    model = nn.Linear(300, 10)
    x, y = torch.randn(40, 300), torch.randint(10, (40,))
    schedule = Schedule(steps=8, sample_rate=0.5, noise_multiplier=1.7, clipping_bound=0.3)
    run(model=model, tensors=(x, y), schedule=schedule, lr=0.01)
    noise = torch.cat([n - c for n, c in zip(watch.noisy, watch.clean, strict=True)])
    assert stats.kstest(noise.double().numpy() / (1.7 * 0.3), "norm").pvalue > 1e-4
    # fresh in every step
    steps = noise.view(8, -1).double().numpy()
    assert abs(np.corrcoef(steps)[0, 1]) < 0.1


@pytest.mark.slow
def test_noise_is_applied():
    """sigma 1000 must destroy what sigma 0.1 learns."""
    x, y = data(600)

    def accuracy(z):
        schedule = Schedule(steps=30, sample_rate=0.5, noise_multiplier=z)
        training = run(tensors=(x, y), schedule=schedule, block=30)
        return float((training.model(x).argmax(1) == y).float().mean())

    assert accuracy(0.1) > 0.9

    # with this much noise the model is a function of the noise: average over noise seeds
    def bad(seed):
        schedule = Schedule(steps=30, sample_rate=0.5, noise_multiplier=1000.0)
        training = run(tensors=(x, y), schedule=schedule, block=30, seed=seed)
        return float((training.model(x).argmax(1) == y).float().mean())

    assert abs(np.mean([bad(s) for s in range(8)]) - 0.5) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    "clipping",
    [None, lambda c: PerLayerClipping(bound=c), lambda c: AutomaticClipping(bound=c)],
    ids=["flat", "per-layer", "automatic"],
)
@pytest.mark.parametrize("change", ["remove", "replace", "nan", "huge"])
def test_replay_on_neighbours(monkeypatch, change, clipping):
    """Same coins, same weights, one record changed: the first sums differ by C (2 C) at most."""
    x, y = data(50)
    other_x, other_y = x.clone(), y.clone()
    if change == "remove":
        other_x, other_y = x[:-1], y[:-1]
    elif change == "replace":
        other_x[17], other_y[17] = -50 * x[17], 1 - y[17]
    else:
        other_x[17] = float("nan") if change == "nan" else 1e30
    most = 2.0 if change == "replace" else 1.0
    bound = 0.25
    schedule = Schedule(steps=1, sample_rate=0.9, noise_multiplier=1.0, clipping_bound=bound)
    moved = []
    for seed in range(6):
        watch = Watch(monkeypatch)
        for tensors in ((x, y), (other_x, other_y)):
            kw = {} if clipping is None else {"clipping": clipping}
            training = start(tensors=tensors, schedule=schedule, seed=seed, n_public=50, **kw)
            for batch in training:
                training.step(losses_of(training.model, batch))
            assert training.sampler.expected_batch(0) == 45.0  # the divisor did not move
        moved.append(float((watch.clean[0] - watch.clean[1]).double().norm()))
        assert watch.scales[0] == watch.scales[1]
        monkeypatch.undo()
    assert max(moved) <= most * bound * (1 + 1e-6)
    if change in ("remove", "replace"):
        assert max(moved) > 0.5 * bound  # the test can see something


@pytest.mark.slow
def test_micro_batches_change_nothing_but_rounding(monkeypatch):
    sums = []
    for size in (1, 7, 1000):
        watch = Watch(monkeypatch)
        run(micro_batch=size)
        sums.append((watch.clean, watch.noisy))
        monkeypatch.undo()
    for clean, noisy in sums[1:]:
        assert len(noisy) == 6  # noise once a step
        # later steps have other weights: the room for rounding, and so the noise, differs by 1e-3
        torch.testing.assert_close(clean[0], sums[0][0][0], rtol=1e-5, atol=1e-6)


def test_the_noise_does_not_depend_on_the_sample(monkeypatch):
    """18 records are expected, and samples lie on both sides of that."""
    watch = Watch(monkeypatch)
    sizes = []
    with start(micro_batch=17) as training:
        for batch in training:
            sizes += [len(batch)]
            training.step(losses_of(training.model, batch))
    assert len(sizes) > 6 and min(sizes) < 17
    assert len(set(watch.scales)) == 1
    assert all(total.dtype == torch.float64 for total in watch.clean)


@pytest.mark.slow
def test_micro_batches_fit_the_model_unless_told():
    wide = nn.Sequential(nn.Linear(5, 2**17), nn.Linear(2**17, 2))  # 8 MB are 16 such rows
    schedule = Schedule(steps=2, sample_rate=1.0, noise_multiplier=1.0)
    with start(model=wide, schedule=schedule) as training:
        training.check(losses_of)  # it shows the shapes
        sizes = []
        for batch in training:
            sizes += [(batch.step, len(batch))]
            training.step(losses_of(training.model, batch))
    assert sizes == [(step, rows) for step in (0, 1) for rows in (16, 16, 16, 12)]


def test_an_empty_first_sample_tells_the_size_too():
    schedule = Schedule(steps=2, sample_rate=[1e-9, 1.0], noise_multiplier=1.0)
    with start(schedule=schedule) as training:
        training.check(losses_of)
        sizes = []
        for batch in training:
            sizes += [len(batch)]
            training.step(losses_of(training.model, batch))
    assert sizes == [0, 60]


def test_division_by_the_expected_batch(monkeypatch):
    watch = Watch(monkeypatch)
    model = network()
    before = weights(model).clone()
    run(
        model=model,
        schedule=Schedule(steps=1, sample_rate=0.3, noise_multiplier=1.0),
        lr=1.0,
        n_public=500,
    )
    torch.testing.assert_close(before - weights(model), (watch.noisy[0] / 150.0).float())


def test_an_empty_batch_is_a_step(monkeypatch):
    watch = Watch(monkeypatch)
    schedule = Schedule(steps=5, sample_rate=0.001, noise_multiplier=1.0)
    training = start(schedule=schedule, n_public=60)
    seen = []
    for batch in training:
        seen.append(len(batch))
        assert batch.last and batch.x.shape[1:] == (5,)
        training.step(losses_of(training.model, batch))
    assert seen == [0] * 5 and len(watch.noisy) == 5
    assert all(
        float(c.norm()) == 0.0 and float(n.norm()) > 0.0
        for c, n in zip(watch.clean, watch.noisy, strict=True)
    )
    assert training.loss == training.sampler.loss([1.0] * 5)


def test_no_records_at_all():
    x, y = data(0)
    training = run(tensors=(x, y), n_public=100)
    assert training.steps_done == 6


@pytest.mark.slow
def test_guarantee_is_the_samplers():
    schedule = Schedule(steps=6, sample_rate=0.3, noise_multiplier=geometric(2.0, 1.0, 6))
    training = run(schedule=schedule)
    expected = SampledGaussian(
        sample_rate=schedule.rates, noise_multiplier=schedule.noise_multipliers
    )
    g = training.guarantee
    assert g.epsilon == pytest.approx(expected.epsilon(1e-5), rel=1e-9)
    assert g.standing is Standing.PROVED and g.adjacency is Adjacency.ZERO_OUT
    declared = run(schedule=schedule, n_public=60)
    assert declared.guarantee.adjacency is Adjacency.ADD_REMOVE
    assert declared.epsilon_spent == g.epsilon
    assert training.claim.standing is Standing.CLAIMED
    assert training.epsilon_spent == g.epsilon
    assert any("guesses the seed" in a.text for a in g.premises)
    told = run(schedule=schedule, rng=secure()).guarantee
    assert not any("seed" in a.text for a in told.premises)


def test_algorithm_1_on_equal_steps_is_algorithm_2():
    """Heterogeneous with equal entries: the same batches, sums, noise, weights and price."""
    same = Schedule(steps=6, sample_rate=0.3, noise_multiplier=1.5, clipping_bound=0.4)
    each = Schedule(
        steps=6, sample_rate=[0.3] * 6, noise_multiplier=[1.5] * 6, clipping_bound=lambda t: 0.4
    )
    one, two = run(schedule=same), run(schedule=each)
    assert torch.equal(weights(one.model), weights(two.model))
    assert one.guarantee == two.guarantee and one.claim == two.claim


@pytest.mark.slow
def test_every_step_has_its_own_settings(monkeypatch):
    """q_t, C_t and z_t of step t, and the absolute sigma of the paper, reach the release."""
    watch = Watch(monkeypatch)
    sigma, q, c = [0.1, 0.2, 0.05], [0.3, 0.5, 1.0], [0.5, 1.0, 2.0]
    schedule = Schedule.absolute(steps=3, sample_rate=q, sigma=sigma, clipping_bound=c, records=60)
    more = 1.0 + run(schedule=schedule).summation.room()
    expected = [more * s * rate * 60 for s, rate in zip(sigma, q, strict=True)]
    assert watch.scales == pytest.approx(expected, rel=1e-6) and 1.0 < more < 1.002
    assert watch.sensitivities == pytest.approx([more * bound for bound in c], rel=1e-9)


@pytest.mark.slow
def test_fixed_size_is_priced_as_such():
    x, y = data(60)
    rng = seeded(4)
    sampler = FixedSizeSampler(n=60, batch_sizes=[12] * 6, rng=rng)
    schedule = Schedule(steps=6, sample_rate=12 / 60, noise_multiplier=1.5)
    training = run(tensors=(x, y), schedule=schedule, sampler=sampler, rng=rng)
    assert training.guarantee.adjacency is Adjacency.REPLACE_ONE
    assert training.claim is None
    assert training.epsilon_spent == sampler.loss([1.5] * 6).epsilon(1e-5)
    poisson = run(schedule=schedule)
    assert training.epsilon_spent > poisson.epsilon_spent


def test_sampler_and_schedule_must_agree():
    sampler = FixedSizeSampler(n=60, batch_sizes=[12] * 6, rng=seeded(0))
    with pytest.raises(InvalidArgument, match="sampler"):
        start(sampler=sampler)


def test_a_ledger_for_users_is_refused():
    """Steps are charged for single records; a ledger per user would promise too much."""
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5, unit=Unit.USER)
    with pytest.raises(InvalidArgument, match="per record"):
        start(ledger=ledger)
    assert not ledger.entries()


def test_charged_before_release(monkeypatch):
    """A crash between charge and noise: the ledger has the charge, the model did not move."""
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)
    model = network()
    before = weights(model).clone()

    def crash(*_, **__):
        raise RuntimeError("power cut")

    monkeypatch.setattr(dpsgd_loop, "release_sum_", crash)
    with pytest.raises(RuntimeError, match="power cut"):
        run(model=model, ledger=ledger, block=1)
    assert len(ledger) == 1 and ledger.spent() > 0.0
    assert torch.equal(weights(model), before)


def test_every_release_was_charged_first(monkeypatch):
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)
    real, seen = dpsgd_loop.release_sum_, []

    def spy(*a, **k):
        seen.append(sum(int(e.loss.parts[0].groups[2].sum()) for e in ledger.entries()))
        return real(*a, **k)

    monkeypatch.setattr(dpsgd_loop, "release_sum_", spy)
    done = run(ledger=ledger, block=2)
    assert seen == [2, 2, 4, 4, 6, 6]
    assert premises.END_NOT_CHOSEN not in done.guarantee.premises


@pytest.mark.slow
def test_stops_cleanly_at_the_cap():
    schedule = Schedule(steps=40, sample_rate=0.3, noise_multiplier=1.5)
    enough = SampledGaussian(sample_rate=0.3, noise_multiplier=1.5, steps=23).epsilon(1e-5)
    ledger = Ledger.in_memory(cap_epsilon=enough * (1 + 1e-9), cap_delta=1e-5)
    training = run(schedule=schedule, ledger=ledger)
    assert premises.END_NOT_CHOSEN in training.guarantee.premises
    assert training.stopped_early and training.steps_done == 23
    assert ledger.spent() <= ledger.cap_epsilon
    assert training.epsilon_spent == pytest.approx(enough, rel=1e-6)


@pytest.mark.slow
def test_no_budget_at_all_releases_nothing():
    ledger = Ledger.in_memory(cap_epsilon=0.01, cap_delta=1e-5)
    model = network()
    before = weights(model).clone()
    training = run(model=model, ledger=ledger)
    assert training.stopped_early and training.steps_done == 0
    assert torch.equal(weights(model), before) and len(ledger) == 0


@pytest.mark.slow
def test_seeded_runs_repeat_and_secure_ones_do_not():
    first, second = (weights(run(seed=9).model) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, weights(run(seed=10).model))
    a, b = (weights(run(rng=secure()).model) for _ in range(2))
    assert not torch.equal(a, b)


@pytest.mark.slow
def test_adaptive_bound_finds_the_quantile():
    x, y = data(400)
    rule = AdaptiveBound(initial=20.0, quantile=0.5, learning_rate=0.3, count_noise=10.0)
    schedule = Schedule(steps=40, sample_rate=0.5, noise_multiplier=1.0, clipping_bound=rule)
    training = run(tensors=(x, y), schedule=schedule, lr=0.001)
    per_example = []
    for i in range(400):
        training.model.zero_grad()
        nn.functional.cross_entropy(training.model(x[i : i + 1]), y[i : i + 1]).backward()
        per_example.append(
            float(torch.cat([p.grad.reshape(-1) for p in training.model.parameters()]).norm())
        )
    below = np.mean(np.array(per_example) <= training.bound)
    assert 0.35 < below < 0.65
    # gradient and count are one release of the schedule's multiplier
    assert training.loss == training.sampler.loss(schedule.noise_multipliers)


def test_adaptive_noise_on_the_gradient_is_larger(monkeypatch):
    watch = Watch(monkeypatch)
    rule = AdaptiveBound(initial=1.0, count_noise=1.0)
    schedule = Schedule(steps=1, sample_rate=0.3, noise_multiplier=1.5, clipping_bound=rule)
    more = 1.0 + run(schedule=schedule).summation.room()
    assert watch.scales[0] == pytest.approx(more * (1.5**-2 - 0.25) ** -0.5, rel=1e-6)


def test_views_are_averaged_before_clipping(monkeypatch):
    """Identical views are one example: the same sums as without."""
    watch = Watch(monkeypatch)
    run()
    run(views=3)
    for a, b in zip(watch.clean[:1], watch.clean[6:7], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_augmentation_is_seeded():
    def jitter(x, generator):
        return x + 0.1 * torch.randn(x.shape, generator=generator)

    first, second = (weights(run(views=2, augment=jitter).model) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, weights(run(views=2).model))


def test_moving_average():
    model = network()
    track = []
    with start(model=model, ema=0.5) as training:
        for batch in training:
            training.step(losses_of(model, batch))
            if batch.last:
                track.append(weights(model).clone())
    expected = sum(0.5 ** (len(track) - k) * w for k, w in enumerate(track)) / (
        1 - 0.5 ** len(track)
    )
    torch.testing.assert_close(weights(training.averaged_model()), expected)


def test_learning_rates():
    model = network()
    run(model=model, learning_rates=lambda t: 0.0)
    assert torch.equal(weights(model), weights(network()))


@pytest.mark.slow
@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_ordinary_optimisers(make):
    model = network()
    run(model=model, optimizer=make(model.parameters(), lr=0.01))
    assert not torch.equal(weights(model), weights(network()))


def test_convolutions_and_empty_batches():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    tensors = torch.randn(30, 1, 8, 8), torch.randint(2, (30,))
    schedule = Schedule(steps=6, sample_rate=0.03, noise_multiplier=1.0)
    training = run(model=model, tensors=tensors, schedule=schedule)
    assert training.steps_done == 6


@pytest.mark.slow
def test_torch_datasets():
    x, y = data()

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return x[i], y[i]

    same = weights(run(tensors=(x, y)).model)
    assert torch.equal(weights(run(tensors=Pairs()).model), same)
    assert torch.equal(weights(run(tensors=torch.utils.data.TensorDataset(x, y)).model), same)


def test_misuse_is_told():
    with start() as training, pytest.raises(PrivetError, match="called once for every batch"):
        list(training)
    training = start()
    with pytest.raises(PrivetError, match="without a new batch"):
        training.step(torch.zeros(1))
    with start() as training:
        batch = next(iter(training))
        with pytest.raises(InvalidArgument, match="reduction"):
            training.step(losses_of(training.model, batch).mean())
    with pytest.raises(InvalidArgument, match="delta"):
        start(delta=None)
    with pytest.raises(InvalidArgument, match="rng"):
        start(rng=7)


def test_the_model_works_as_usual_afterwards():
    training = run()
    loss = training.model(torch.randn(3, 5)).sum()
    training.model.zero_grad()
    loss.backward()
    assert all(p.grad is not None for p in training.model.parameters())


def test_leaving_in_the_middle_restores_the_model():
    with start() as training:
        for _ in training:
            break
    assert all(p.requires_grad for p in training.model.parameters())
    assert "forward" not in training.model[0].__dict__


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "release"), [(0.5, False), (1 / 60, False), (0.016, True)])
def test_a_delta_of_one_in_n_is_no_promise(delta, release):
    """Attack: (0, 0.5)-DP, proved, of a loop of one's own."""
    guarantee = run(delta=delta, rng=secure()).guarantee
    assert guarantee.release is release


# Whose loop it is


@pytest.mark.parametrize("micro_batch", [None, 7])
def test_one_iteration_for_every_real_step(micro_batch):
    """The checks do not go through the loop: counters, logs and schedulers see real steps only."""
    calls, iterations = [], []

    def losses(model, batch):
        calls.append(len(batch))
        return losses_of(model, batch)

    model = network()
    with start(model=model, losses=losses, micro_batch=micro_batch) as training:
        before = weights(model).clone()
        for step in training:
            iterations.append(step.number)
            assert training.steps_done == step.number
            assert not torch.equal(weights(model), before)  # the step was made
            before = weights(model).clone()
    assert iterations == [1, 2, 3, 4, 5, 6]
    assert len(calls) > 6  # the function itself was tried on made-up rows


def test_one_iteration_for_every_part_of_a_real_step():
    with start(micro_batch=7) as training:
        parts = []
        for batch in training:
            parts.append((batch.step, len(batch), batch.last))
            training.step(losses_of(training.model, batch))
    expected = [len(training.sampler.indices(t)) for t in range(6)]
    sizes = [sum(rows for step, rows, _ in parts if step == t) for t in range(6)]
    assert sizes == expected and sum(last for *_, last in parts) == 6
    assert len(parts) == sum(-(-max(n, 1) // 7) for n in expected)


def test_both_forms_are_one_run(tmp_path):
    """Bit for bit: by a function, by a loop body, and stopped and resumed."""
    from privet.methods.dpsgd import Checkpoints

    def body(**kw):
        with start(micro_batch=7, ema=0.5, **kw) as training:
            for batch in training:
                training.step(losses_of(training.model, batch))
        return training

    one, two = run(micro_batch=7, ema=0.5), body()
    where = Checkpoints(folder=tmp_path, every=1)
    with start(micro_batch=7, ema=0.5, losses=losses_of, checkpoints=where) as training:
        for step in training:
            if step.number == 3:
                break
    three = run(micro_batch=7, ema=0.5, checkpoints=where)
    for other in (two, three):
        assert torch.equal(weights(one.model), weights(other.model))
        assert torch.equal(weights(one.averaged_model()), weights(other.averaged_model()))
        assert other.epsilon_spent == pytest.approx(one.epsilon_spent, rel=1e-9)
    assert premises.ISOLATED_ROWS in three.guarantee.premises
    assert premises.UNCHECKED_MIXING in two.guarantee.premises  # nobody called check


def test_random_generators_are_the_users_between_steps():
    torch.manual_seed(5)
    expected = [float(torch.rand(1)) for _ in range(6)]
    torch.manual_seed(5)
    model = network()
    torch.manual_seed(5)
    with start(model=model, losses=losses_of) as training:
        drawn = [float(torch.rand(1)) for _ in training]
    assert drawn == expected


def test_few_parameters_and_named_groups():
    import inspect

    from privet.dpsgd import private

    assert len(inspect.signature(private).parameters) <= 12


def test_a_step_is_no_batch():
    """A stumble of a stranger's: `for x, y in training` beside `losses` raised a bare TypeError."""
    step = Step(number=1, sample_rate=0.1, noise_multiplier=1.0, clipping_bound=1.0)
    with pytest.raises(InvalidArgument, match="for step in training"):
        _, _ = step
