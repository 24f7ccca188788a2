"""What leaves a run besides its noisy sums: nothing. Each test is an attack that once succeeded."""

import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from privet.errors import InvalidArgument
from privet.guarantee import Backing
from privet.methods.dpsgd import (
    Checkpoints,
    FixedSizeSampler,
    PoissonSampler,
    Schedule,
    UnprotectedDiagnostic,
)
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import Watch, data, losses_of, network, run, start, weights

FULL = Schedule(steps=3, sample_rate=1.0, noise_multiplier=5.0)


# Gradients outside the sum


def test_the_stale_gradient_of_a_frozen_layer_is_not_applied():
    """Exact private gradients of a backward pass made before were applied at every step."""
    x, y = data(40)
    model = network()
    functional.cross_entropy(model(x), y).backward()
    for p in model[0].parameters():
        p.requires_grad_(False)
    other = nn.Parameter(torch.ones(3))
    other.grad = torch.ones(3)
    frozen = model[0].weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with start(
        tensors=(x, y), model=model, optimizer=optimizer, schedule=FULL, losses=losses_of
    ) as training:
        optimizer.add_param_group({"params": [other]})
        assert len(list(training)) == FULL.steps
    assert torch.equal(model[0].weight, frozen) and torch.equal(other, torch.ones(3))


def test_a_gradient_made_in_the_loop_is_not_applied():
    x, y = data(40)
    model = network()
    for p in model[0].parameters():
        p.requires_grad_(False)
    frozen = model[0].weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with start(tensors=(x, y), model=model, optimizer=optimizer, schedule=FULL) as training:
        for batch in training:
            model[0].weight.grad = batch.x.sum() * torch.ones_like(frozen)
            training.step(losses_of(model, batch))
    assert torch.equal(model[0].weight, frozen)


# Checkpoints


def with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def with_convolution():
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 4, 3)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))


@pytest.mark.slow
@pytest.mark.parametrize("images", [False, True])
def test_a_checkpoint_holds_public_facts_and_what_was_released(tmp_path, monkeypatch, images):
    """Same weights, other numbers of records: nothing but weights and optimiser state may differ."""
    monkeypatch.setattr("privet.methods.dpsgd.dpsgd_loop.secrets.token_hex", lambda n: "ab" * n)
    seen = []
    for n in (31, 32, 33, 60):
        folder = tmp_path / str(n)
        model = with_convolution() if images else with_dropout()
        x = torch.rand(n, 1, 8, 8) if images else torch.rand(n, 5)
        tensors = x, torch.zeros(n).long()
        where = Checkpoints(folder=folder, every=1)
        run(
            tensors=tensors, model=model, schedule=FULL, rng=secure(), n_public=32,
            checkpoints=where,
        )  # fmt: skip
        kept, facts = where.read()
        assert len(facts.pop("ledger head")) == 64  # of a ledger that was made anew, by a new key
        released = ("model/", "optimizer/", "average/")
        seen.append(({k: v for k, v in kept.items() if not k.startswith(released)}, facts))
    assert all(json.dumps(facts) == json.dumps(seen[0][1]) for _, facts in seen)
    assert all(set(rest) == set() for rest, _ in seen)


@pytest.mark.slow
def test_the_file_has_the_same_size_whatever_the_records(tmp_path):
    sizes = set()
    for n in (31, 60):
        where = Checkpoints(folder=tmp_path / str(n), every=1)
        x, y = data(n)
        run(tensors=(x, y), schedule=FULL, rng=secure(), n_public=32, checkpoints=where)
        sizes.add(where.path.stat().st_size)
    assert len(sizes) == 1


def test_the_state_of_torchs_generator_is_given_back():
    model = with_dropout()
    torch.manual_seed(4)
    state = torch.get_rng_state()
    with start(model=model, schedule=FULL) as training:
        for batch in training:
            torch.rand(len(batch))
            training.step(losses_of(training.model, batch))
    assert torch.equal(torch.get_rng_state(), state)


# Examples that mix


class DetachedCentre(nn.Module):
    def forward(self, x):
        return x - x.detach().mean(0)


class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("m", torch.zeros(5))

    def forward(self, x):
        with torch.no_grad():
            self.m.lerp_(x.mean(0), 0.5)
        return x - self.m


class HiddenRunningMean(RunningMean):
    """Written through `.data`, which leaves no trace in the version counter."""

    def forward(self, x):
        self.m.data += 0.1 * x.detach().mean(0)
        return x


class NewBuffer(RunningMean):
    def forward(self, x):
        self.m = x.detach().mean(0)
        return x


class Counter(nn.Module):
    """The number of batches is a function of who was drawn."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return x


def mined(model, batch):
    losses = losses_of(model, batch)
    return losses * (losses >= losses.detach().median())


def balanced(model, batch):
    counts = torch.bincount(batch.y, minlength=2).clamp(min=1).float()
    return losses_of(model, batch) / counts[batch.y]


def over_their_mean(model, batch):
    losses = losses_of(model, batch)
    return losses / losses.detach().mean()


def over_their_number(model, batch):
    losses = losses_of(model, batch)
    return losses / len(losses)


def hooked(model, batch):
    out = model(batch.x)
    if out.requires_grad:
        out.register_hook(lambda g: g / (g.norm() + 1e-9))
    return functional.cross_entropy(out, batch.y, reduction="none")


def weighed_positives(model, batch):
    """One class alone is weighed by how often it is in the batch."""
    weight = (batch.y == 0).sum() / (batch.y == 1).sum().clamp(min=1)
    out = model(batch.x)[:, 1]
    return functional.binary_cross_entropy_with_logits(
        out, batch.y.float(), pos_weight=weight, reduction="none"
    )


def of_even_batches(model, batch):
    return losses_of(model, batch) * (-1.0) ** len(batch)


def scaled_if_needed(model, batch):
    x = batch.x / 255 if batch.x.max() > 1.0 else batch.x
    return functional.cross_entropy(model(x), batch.y, reduction="none")


class HiddenParameter(nn.Module):
    """What the batch holds, written past autograd into a parameter that nothing uses."""

    def __init__(self):
        super().__init__()
        self.kept = nn.Parameter(torch.zeros(5), requires_grad=False)

    def forward(self, x):
        self.kept.data += x.sum(0)
        return x


def behind(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))


def run_mixing(model, losses, **kw):
    return run(losses, model=model, schedule=FULL, **kw)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "losses"),
    [
        (DetachedCentre, losses_of),
        (RunningMean, losses_of),
        (HiddenRunningMean, losses_of),
        (NewBuffer, losses_of),
        (Counter, losses_of),
        (nn.Identity, mined),
        (nn.Identity, balanced),
        (nn.Identity, over_their_mean),
        (nn.Identity, over_their_number),
        (nn.Identity, hooked),
        (nn.Identity, weighed_positives),
        (nn.Identity, of_even_batches),
        (nn.Dropout, over_their_number),
        (nn.Dropout, of_even_batches),
        (nn.Identity, scaled_if_needed),
        (HiddenParameter, losses_of),
    ],
)
def test_examples_that_mix_are_refused_before_anything_is_charged(monkeypatch, layer, losses):
    watch = Watch(monkeypatch)
    model = behind(layer())
    before = {name: t.clone() for name, t in model.named_buffers()}
    training = start(model=model, schedule=FULL, losses=losses)
    with pytest.raises(InvalidArgument):
        next(iter(training))
    assert not watch.clean and not training.entries
    assert all(torch.equal(t, before[name]) for name, t in model.named_buffers())
    with pytest.raises(InvalidArgument):
        start(model=behind(layer()), schedule=FULL).check(losses)  # the same for a loop body


def test_what_mixes_later_in_a_buffer_is_refused_too(monkeypatch):
    """A buffer that stays as it is on made-up rows, and changes in the second step."""

    class Late(RunningMean):
        def forward(self, x):
            if x.max() > 1.6:
                self.m.data += x.detach().mean(0)
            return x

    watch = Watch(monkeypatch)
    with pytest.raises(InvalidArgument, match="changed by the forward pass"):
        run_mixing(behind(Late()), losses_of, independence="tested")
    assert not watch.clean  # not even the first step's sum was released


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("layer", [nn.Identity, lambda: nn.Dropout(0.5), lambda: nn.LayerNorm(5)])
def test_examples_that_do_not_mix_pass(layer, views):
    training = run_mixing(behind(layer()), losses_of, views=views)
    assert training.steps_done == 3
    (told,) = [p for p in training.guarantee.premises if p.about == "mixing"]
    assert told.backing is Backing.ENFORCED


def test_without_the_check_it_is_assumed():
    training = run_mixing(behind(), over_their_number, independence="assumed")
    (told,) = [p for p in training.guarantee.premises if p.about == "mixing"]
    assert told.backing is Backing.ASSUMED


def test_an_error_on_made_up_rows_says_so():
    def picky(model, batch):
        return functional.cross_entropy(model(batch.x), batch.y - 1, reduction="none")

    x, y = data(20)
    with pytest.raises(Exception) as error:
        run_mixing(behind(), picky, tensors=(x, y + 1))
    assert "made-up rows" in "".join(error.value.__notes__)
    assert run_mixing(behind(), picky, tensors=(x, y + 1), independence="assumed").steps_done == 3


@pytest.mark.parametrize("mix", [lambda x: 0.5 * x + 0.5 * x.roll(1, 0), lambda x: x - x.mean(0)])
def test_augment_sees_one_row_at_a_time(monkeypatch, mix):
    """Mixup and centring moved sums by several C; now they cannot reach another row."""
    seen = []

    def augment(row, generator):
        seen.append(len(row))
        return mix(row)

    x, y = data(24)
    x[0] = 1000.0
    sums = []
    for tensors in ((x, y), (x[1:], y[1:])):
        watch = Watch(monkeypatch)
        schedule = Schedule(steps=1, sample_rate=1.0, noise_multiplier=5.0)
        run(tensors=tensors, augment=augment, n_public=24, schedule=schedule)
        sums.append(watch.clean[0].double())
        monkeypatch.undo()
    assert set(seen) == {1}
    assert float((sums[0] - sums[1]).norm()) <= 1.0 + 1e-6


def test_augmentation_of_a_row_does_not_depend_on_the_rows_before_it():
    def greedy(row, generator):
        for _ in range(int(row[0, 0] > 0)):
            torch.rand(1, generator=generator)
        return row + torch.rand(1, generator=generator)

    x, y = data(10)
    other = x.clone()
    other[0] = -other[0]
    rows = []
    for some in (x, other):
        with start(tensors=(some, y), augment=greedy, schedule=FULL) as training:
            rows.append(next(iter(training)).x.clone())
    assert torch.equal(rows[0][1:], rows[1][1:])


# Secrets


def test_a_seeded_sampler_beside_secure_noise_is_told():
    schedule = Schedule(steps=3, sample_rate=0.5, noise_multiplier=5.0)

    def keys(rng, coins):
        sampler = PoissonSampler(n=60, rates=schedule.rates, rng=coins)
        told = run(schedule=schedule, rng=rng, sampler=sampler).guarantee.premises
        return {p.about: p.text for p in told if "key" in p.about}

    assert "seed" in keys(secure(), seeded(0))["sampling key"]
    assert "seed" not in keys(secure(), seeded(0))["noise key"]
    assert "seed" not in keys(secure(), secure())["sampling key"]
    fixed = FixedSizeSampler(n=60, batch_sizes=[30] * 3, rng=seeded(0))
    assert any("seed" in p.text for p in fixed.premises)


def test_norms_are_taken_outside_autocast(monkeypatch):
    """Under autocast a norm in bfloat16 let 1.003 C through."""
    x, y = data(1)
    moved = []
    for scale in (1.0, 3.0, 7.7, 50.0):
        watch = Watch(monkeypatch)
        schedule = Schedule(steps=1, sample_rate=1.0, noise_multiplier=5.0)
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            start(tensors=(scale * x, y), schedule=schedule) as training,
        ):
            for batch in training:
                training.step(10 * losses_of(training.model, batch))
        moved.append(float(watch.clean[0].double().norm()))
        monkeypatch.undo()
    assert max(moved) <= 1.0
    assert max(moved) > 0.99  # it was clipped


def test_exact_facts_are_shown_only_when_asked():
    x, y = data(40)
    x[3, 0] = float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tensors=(x, y), schedule=FULL)
    with pytest.warns(UnprotectedDiagnostic, match="not finite"):
        training = run(tensors=(x, y), schedule=FULL, show_unprotected=True)
    assert training.diagnostics_unprotected.non_finite == 3
    assert torch.isfinite(weights(training.model)).all()


def test_a_loop_left_early_leaves_a_later_run_alone():
    """Its end, whenever it is collected, must not reset torch's generator in the middle of that."""
    with start() as left, start() as later:
        held = iter(left)
        next(held)
        batches = iter(later)
        next(batches)
        drawn = torch.get_rng_state()
        held.close()
        assert torch.equal(torch.get_rng_state(), drawn)
        batches.close()


# Layouts


class Views(nn.Module):
    """Opacus' MNIST example in small: `.view` after a convolution, which needs torch's layout."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(48, 2)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2, 2)
        return self.head(x.view(-1, 48))


class Named(Views):
    """Its forward pass takes something else beside the pictures."""

    def forward(self, x, scale):
        return super().forward(x) * scale


def pictures():
    g = torch.Generator().manual_seed(0)
    return torch.randn(40, 1, 8, 8, generator=g), torch.arange(40) % 2


@pytest.mark.parametrize("way", ["losses", "loop body", "loop body of another call"])
def test_a_model_with_views_trains_in_torchs_own_layout(way):
    torch.manual_seed(0)
    model, tensors = (Named() if way.endswith("call") else Views()), pictures()
    forward = (lambda x: model(x, 2.0)) if way.endswith("call") else model
    before = weights(model)

    def losses(model, batch):
        return functional.cross_entropy(forward(batch.x), batch.y, reduction="none")

    def loop(**kw):
        with start(model=model, tensors=tensors) as training:
            for batch in training:
                training.step(losses(model, batch))

    train = run if way == "losses" else loop
    with pytest.warns(UserWarning, match="layout") as told:
        train(losses=losses, model=model, tensors=tensors)
    assert len(told) == 1
    assert not torch.equal(weights(model), before)
    assert model.conv.weight.is_contiguous()


def test_a_model_without_views_keeps_channels_last():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(192, 2))
    x, y = pictures()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with start(model=model, tensors=(x.expand(-1, 2, -1, -1), y)) as training:
            for batch in training:
                training.step(losses_of(model, batch))
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_refusal_does_not_blame_made_up_rows():
    model = network()
    with pytest.raises(InvalidArgument) as error:
        run(losses=lambda model, batch: model(batch.x).mean(0), model=model)
    assert not getattr(error.value, "__notes__", [])
