"""Rounding of sums in float32: it depends on everybody, so the noise must leave room for it."""

import pytest
import torch
from torch import nn

from privet.errors import InvalidArgument
from privet.methods.dpsgd.linear import LinearHead, add_softmax
from privet.methods.dpsgd.records import Batch
from privet.methods.dpsgd.release import with_rounding
from privet.methods.dpsgd.summing import LONGEST_NARROW_STEP
from privet.nets import FlatClipping, PerExampleGradients
from tests.methods.dpsgd.helpers import start

BOUND = 0.1


def worst(n, d, aligned, seed=0):
    """Records whose clipped gradients all have norm C; aligned ones all point the same way."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(d, generator=g).expand(n, d) if aligned else torch.randn(n, d, generator=g)
    x = x + 0.01 * torch.randn(n, d, generator=g)
    x = x / x.norm(dim=1, keepdim=True)
    y = torch.zeros(n, dtype=torch.int64) if aligned else torch.randint(5, (n,), generator=g)
    return x, y


def exact(model, x, y):
    """The clipped sum in float64, by the formula."""
    rows, weight = model.rows(x).double(), model.linear.weight.detach().double()
    residual = torch.softmax(rows @ weight.T, 1)
    residual[torch.arange(len(y)), y] -= 1.0
    norms = residual.norm(dim=1) * rows.norm(dim=1)
    w = (BOUND * (1 - 2e-6) / norms).clamp(max=1.0)
    return ((residual * w[:, None]).T @ rows).reshape(-1)


def as_the_loop_does(model, x, y, add, size):
    """Micro-batches in float32, added up in float64."""
    total = torch.zeros(model.linear.weight.numel(), dtype=torch.float64)
    engine = PerExampleGradients(model, kernel_choice="cost-model")
    tensors = model.tensors(x, y)
    for i in range(0, len(x), size):
        part = engine.zeros()
        add(engine, x[i : i + size], [t[i : i + size] for t in tensors], part)
        total += part.flat
    return total


def closed_form(model, x, y):
    def add(engine, _, tensors, part):
        batch = Batch(tensors=tuple(tensors), step=0, last=True)
        add_softmax(model.linear.weight, batch, BOUND, part)

    return as_the_loop_does(model, x, y, add, 4096)


def by_engine(model, x, y):
    def add(engine, rows, tensors, part):
        with engine.recording():
            losses = nn.functional.cross_entropy(model(rows), tensors[1], reduction="none")
        engine.clipped_sum(losses, clipping=FlatClipping(bound=BOUND), into=part)

    return as_the_loop_does(model, x, y, add, 256)


def in_float32(model, x, y):
    """A narrow step: everything in float32, also where the sample is larger than expected."""
    engine = PerExampleGradients(model, kernel_choice="cost-model")
    total = engine.zeros()
    size = -(-len(x) // 2)
    for i in range(0, len(x), size):
        with engine.recording():
            losses = nn.functional.cross_entropy(
                model(x[i : i + size]), y[i : i + size], reduction="none"
            )
        engine.clipped_sum(losses, clipping=FlatClipping(bound=BOUND), into=total)
    return total.flat.double()


@pytest.mark.parametrize(
    ("how", "n"),
    [(how, n) for how in (closed_form, by_engine) for n in (500, 20_000)]
    + [(in_float32, 200), (in_float32, LONGEST_NARROW_STEP)],
)
@pytest.mark.parametrize("aligned", [False, True])
def test_the_first_record_removed_moves_every_micro_batch(how, n, aligned):
    x, y = worst(n, 60, aligned)
    model = LinearHead(features=60, outputs=5, constant=0.1)
    rounding = (how(model, x, y) - how(model, x[1:], y[1:])) - (
        exact(model, x, y) - exact(model, x[1:], y[1:])
    )
    room = with_rounding(BOUND, expected_batch=n, dtype=torch.float32) - BOUND
    assert float(rounding.norm()) < 0.6 * room


@pytest.mark.parametrize("kernel", ["loop", "grouped", "rowwise", "unfolded", "gram"])
@pytest.mark.parametrize("aligned", [False, True])
def test_convolutions_too(kernel, aligned):
    """The same for sums over rows and pixels; the record's own gradient is taken alone."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 6, 12, 12), torch.randint(5, (32,))
    if aligned:
        x, y = x[:1] + 1e-3 * x, y[:1].expand(32)
    model = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    model(x[:1])
    clipping = FlatClipping(bound=BOUND)

    def total(x, y):
        engine = PerExampleGradients(model, kernel_choice="cost-model", clipping=clipping)
        (x,) = engine.prepare(x)
        engine.clipped_sum(losses_of(engine, x, y))
        engine.choices = dict.fromkeys(engine.choices, kernel)
        return engine.clipped_sum(losses_of(engine, x, y)).flat.double()

    def losses_of(engine, x, y):
        with engine.recording():
            return nn.functional.cross_entropy(model(x), y, reduction="none")

    rounding = total(x, y) - total(x[1:], y[1:]) - total(x[:1], y[:1])
    room = with_rounding(BOUND, expected_batch=len(x), dtype=torch.float32) - BOUND
    assert float(rounding.norm()) < room


def test_longer_sums_in_float32_are_refused():
    with pytest.raises(InvalidArgument, match="at most 2048, 4096 rows"):
        start(micro_batch=2049, views=2)
