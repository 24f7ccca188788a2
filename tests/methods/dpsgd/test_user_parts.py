"""What a user hands in (clipping rules, layer rules, samplers, augmentations) is not believed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privet.data.records import UnprotectedDiagnostic
from privet.errors import InvalidArgument
from privet.gradients import AutomaticClipping, Clipping, FlatClipping, PerLayerClipping
from privet.gradients.clipping_rules import weigh_examples
from privet.guarantee import Backing
from privet.methods.dpsgd import AdaptiveBound, Schedule
from privet.methods.dpsgd.linear_head import add_squares, rows_on_grid
from privet.methods.dpsgd.samplers import PoissonSampler
from privet.noise import seeded
from tests.methods.dpsgd.helpers import Watch, losses_of, start

FULL = Schedule(steps=1, sample_rate=1.0, noise_multiplier=2.0, clipping_bound=0.1)


class Soft(Clipping):
    """w = C / (|g| + C): an honest rule; `bug` replaces it."""

    def __init__(self, bound: float, bug: str = "") -> None:
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "bug", bug)

    def weights(self, squared_norms, layers):
        n = squared_norms.sum(0, keepdim=True).sqrt()
        weights = {
            "": self.bound / (n + self.bound),
            "ones": torch.ones_like(n),
            "negative": -torch.ones_like(n),
            "mean of the batch": (self.bound / n.mean()).clamp(max=1.0).expand_as(n),
            "not a number": torch.full_like(n, math.nan),
            "to the last bit": (self.bound / n).clamp(max=1.0),
            "infinite": torch.full_like(n, math.inf),
            "writes": torch.ones_like(n),
        }[self.bug]
        if self.bug == "writes":
            squared_norms.zero_()
        return weights.expand_as(squared_norms)

    def sensitivity(self, layers):
        return self.bound


BUGS = ["ones", "negative", "mean of the batch", "not a number", "to the last bit", "infinite", "writes"]  # fmt: skip


def outlier(n=40):
    torch.manual_seed(0)
    x, y = torch.randn(n, 5), torch.zeros(n, dtype=torch.long)
    x[0], y[0] = 1000.0, 1
    return x, y


def sums(monkeypatch, tensors, **kw):
    with monkeypatch.context() as patch:
        watch = Watch(patch)
        with start(tensors=tensors, schedule=FULL, **kw) as training:
            for batch in training:
                training.step(losses_of(training.model, batch))
    return (watch.clean[0], watch.sensitivities[0]), training


@pytest.mark.parametrize("bug", ["", *BUGS])
def test_a_rule_of_a_users_moves_the_sum_by_what_is_paid(monkeypatch, bug):
    """Ones moved it by 2,830 where .1 was paid, the mean of the batch's norms by 20.1."""
    x, y = outlier()
    gone = x.clone()
    gone[0] = math.nan
    rule = {"clipping": lambda bound: Soft(bound, bug)}
    (one, paid), training = sums(monkeypatch, (x, y), **rule)
    (other, _), _ = sums(monkeypatch, (gone, y), **rule)
    assert float((one - other).norm()) <= paid
    stated = {p.about: p.backing for p in training.guarantee.premises}
    assert stated["clipping rule"] is Backing.ASSUMED


@pytest.mark.parametrize("bug", BUGS)
def test_every_example_is_within_the_stated_bound(bug):
    squares = torch.tensor([[1e-8, 1.0, 1e8, math.nan], [0.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    before = squares.clone()
    weights, over = weigh_examples(Soft(0.1, bug), squares, ["a", "b"])
    assert torch.equal(squares.nan_to_num(-1.0), before.nan_to_num(-1.0))
    lengths = (weights.square() * squares.nan_to_num(0.0)).sum(0).sqrt()
    assert bool((lengths <= 0.1).all()) and bool(weights.isfinite().all())
    assert over == {"to the last bit": 0, "mean of the batch": 0, "not a number": 3, "infinite": 3}.get(bug, 2)  # fmt: skip


def test_an_honest_rule_keeps_its_weights_and_ours_are_not_asked_twice():
    squares = torch.rand(3, 20, dtype=torch.float64)
    rule = Soft(0.5)
    assert torch.allclose(
        weigh_examples(rule, squares, "abc")[0], rule.weights(squares, "abc"), rtol=1e-12
    )
    for ours in (FlatClipping(bound=0.5), PerLayerClipping(bound=0.5), AutomaticClipping(bound=1)):
        assert torch.equal(weigh_examples(ours, squares, "abc")[0], ours.weights(squares, "abc"))


def test_weights_of_another_shape_are_refused_in_one_line():
    class Flat(Soft):
        def weights(self, squared_norms, layers):
            return torch.ones(7)

    with pytest.raises(InvalidArgument, match="weights of Flat") as error:
        weigh_examples(Flat(1.0), torch.ones(2, 3, dtype=torch.float64), ["a", "b"])
    assert "\n" not in str(error.value)


def test_examples_over_the_bound_are_told_to_the_owner_alone(monkeypatch):
    with pytest.warns(UnprotectedDiagnostic, match="beyond its bound"):
        _, training = sums(
            monkeypatch, outlier(), clipping=lambda c: Soft(c, "ones"), show_unprotected=True
        )
    assert training.diagnostics_unprotected.over_bound > 0


def test_a_rule_that_states_one_bound_and_clips_to_another_pays_for_both(monkeypatch):
    asked = []

    class Fickle(Soft):
        def sensitivity(self, layers):
            asked.append(1)
            return self.bound * (10.0 if len(asked) % 2 else 1.0)

    (_, paid), training = sums(monkeypatch, outlier(), clipping=lambda c: Fickle(c, "ones"))
    assert paid >= training.loop.total.sensitivity


class Twice(PoissonSampler):  # type: ignore[misc]
    """Everybody, and the first record twice."""

    def indices(self, step):
        return np.concatenate([[0], np.arange(self.n)])


def test_a_sampler_of_a_users_is_checked_at_each_step_and_assumed():
    x, y = outlier()
    rng = seeded(0)
    sampler = Twice(n=len(x), rates=[1.0], rng=rng)
    with start(tensors=(x, y), schedule=FULL, sampler=sampler, rng=rng) as training:
        with pytest.raises(InvalidArgument, match="each once"):
            next(iter(training))
        stated = {p.about: p.backing for p in training.guarantee.premises}
        assert stated["sampler"] is stated["sampling"] is stated["divisor"] is Backing.ASSUMED
    for wrong in ([-1, 0], [0, len(x)], [1, 0], [0.5], np.zeros((1, 1), dtype=int)):
        sampler.indices = lambda step, wrong=wrong: np.asarray(wrong)
        training = start(tensors=(x, y), schedule=FULL, sampler=sampler, rng=rng)
        with pytest.raises(InvalidArgument, match="indices of Twice"):
            next(iter(training))


def test_augmentations_and_layer_rules_are_assumed():
    def rule(module, x: Tensor, g: Tensor):
        return {"weight": g[:, :, None] * x[:, None, :], "bias": g}

    class Mine(nn.Linear):
        pass

    model = nn.Sequential(Mine(5, 2))
    with start(model=model, layers={Mine: rule}, augment=lambda row, generator: row) as training:
        stated = {p.about: p.backing for p in training.guarantee.premises}
    assert stated["layer rules"] is stated["augmentation"] is Backing.ASSUMED
    with start() as training:
        stated = {p.about for p in training.guarantee.premises}
    assert not stated & {"layer rules", "augmentation", "sampler", "clipping rule"}


TINY = [1e-36, 2.0**-41, 0.0, -1.0, math.nan, math.inf]


@pytest.mark.parametrize("bound", TINY)
def test_bounds_that_float32_cannot_clip_to_are_refused_on_every_route(bound):
    """At 1e-36 a record moved the sum by 1.54 of what was paid."""
    rows, squares, scales = rows_on_grid(torch.randn(4, 3))
    some = rows, torch.randn(4, 1), squares, scales
    into = torch.zeros(1, 3, dtype=torch.float64)
    for make in (
        lambda: Schedule(steps=2, sample_rate=1.0, noise_multiplier=1.0, clipping_bound=bound),
        lambda: Schedule(steps=2, sample_rate=1.0, noise_multiplier=1.0, clipping_bound=[1.0, bound]),
        lambda: AdaptiveBound(initial=bound),
        lambda: FlatClipping(bound=bound),
        lambda: PerLayerClipping(bound=bound),
        lambda: PerLayerClipping(bound=1.0, bounds={"a": bound}),
        lambda: AutomaticClipping(bound=bound),
        lambda: weigh_examples(Soft(bound), torch.ones(1, 1, dtype=torch.float64), ["a"]),
        lambda: add_squares(torch.zeros_like(into), some, bound, into, 4),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=r"2\^-40") as error:
            make()
        assert "\n" not in str(error.value)


def test_no_route_leads_below_the_least_bound():
    least = 2.0**-40
    adaptive, bound = AdaptiveBound(initial=2.0 * least, learning_rate=50.0), 2.0 * least
    for _ in range(20):
        bound = adaptive.next(bound, 1000.0, 10.0)
    assert bound == least
    with pytest.raises(InvalidArgument, match="layers"):
        PerLayerClipping(bound=least).weights(torch.ones(4, 1, dtype=torch.float64), list("abcd"))
    with pytest.raises(InvalidArgument, match="gamma"):
        AutomaticClipping(bound=1.0, gamma=1e-40)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e8])
@pytest.mark.parametrize("size", [1.0, 1e5, 1e12])
def test_the_least_bound_is_kept_to(monkeypatch, size, scale):
    torch.manual_seed(1)
    x = torch.randn(2, 5) * size
    gone = x.clone()
    gone[0] = math.nan
    schedule = Schedule(steps=1, sample_rate=1.0, noise_multiplier=1.0, clipping_bound=2.0**-40)

    def run(rows):
        with monkeypatch.context() as patch:
            watch = Watch(patch)
            with start(tensors=(rows, torch.zeros(2)), schedule=schedule) as training:
                for batch in training:
                    training.step(training.model(batch.x).sum(1) * scale)
        return watch.clean[0], watch.sensitivities[0]

    (one, paid), (other, _) = run(x), run(gone)
    assert float((one - other).norm()) <= paid
