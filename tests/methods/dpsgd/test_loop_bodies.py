"""Forty loop bodies and more: what a record moves is paid for, or the body is refused in one line.

Innocent bodies are *enforced*, or have a way out. Guilty ones (that look at the batch, keep what they
saw, or draw coins of their own) are refused, or made innocent: the program of a body sees one row.
"""

from __future__ import annotations

import math
import random
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Backing
from privet.methods.dpsgd import Schedule
from tests.methods.dpsgd.helpers import Watch, start

WIDTH = 5
FULL = Schedule(steps=4, sample_rate=1.0, noise_multiplier=5.0)


def net(*first):
    torch.manual_seed(0)
    return nn.Sequential(*first, nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2))


def ce(model, batch, x=None, **kw):
    x = batch.x if x is None else x
    return F.cross_entropy(model(x), batch.y, reduction="none", **kw)


INNOCENT, GUILTY = {}, {}


def innocent(make):
    INNOCENT[make.__name__] = make
    return make


def guilty(make):
    GUILTY[make.__name__] = make
    return make


# Each makes a body anew, with a state of its own.


@innocent
def cross_entropy():
    return ce


@innocent
def label_smoothing():
    return lambda m, b: ce(m, b, label_smoothing=0.1)


@innocent
def focal():
    def body(m, b):
        losses = ce(m, b)
        return (1.0 - torch.exp(-losses)) ** 2 * losses

    return body


@innocent
def squares():
    return lambda m, b: (m(b.x)[:, 0] - b.y.float()).square()


@innocent
def huber():
    return lambda m, b: F.smooth_l1_loss(m(b.x)[:, 0], b.y.float(), reduction="none")


@innocent
def weights_of_classes():
    weight = torch.tensor([1.0, 3.0])
    return lambda m, b: ce(m, b, weight=weight)


@innocent
def dropout_of_inputs():
    return lambda m, b: ce(m, b, F.dropout(b.x, 0.5))


@innocent
def gaussian_noise_on_inputs():
    return lambda m, b: ce(m, b, b.x + 0.1 * torch.randn_like(b.x))


@innocent
def rows_normalised():
    return lambda m, b: ce(m, b, F.normalize(b.x, dim=1))


@innocent
def rows_centred():
    return lambda m, b: ce(m, b, b.x - b.x.mean(1, keepdim=True))


@innocent
def missing_values_filled():
    return lambda m, b: ce(m, b, torch.where(b.x.isnan(), torch.zeros_like(b.x), b.x))


@innocent
def losses_clamped():
    return lambda m, b: ce(m, b).clamp(max=10.0)


@innocent
def mask_in_a_row():
    def body(m, b):
        mask = (b.x > 0).float()
        return ce(m, b) * mask.sum(1) / mask.sum(1).clamp(min=1.0)

    return body


@innocent
def contrastive_within_a_row():
    def body(m, b):
        one, two = m(b.x), m(b.x + 0.1 * torch.randn_like(b.x))
        return ce(m, b) - F.cosine_similarity(one, two, dim=1)

    return body


@innocent
def picked_by_index():
    return lambda m, b: -m(b.x).log_softmax(1)[torch.arange(len(b)), b.y]


@innocent
def rows_one_by_one():
    def body(m, b):
        out = m(b.x)
        return torch.stack([F.cross_entropy(out[i : i + 1], b.y[i : i + 1]) for i in range(len(b))])

    return body


@innocent
def teacher_without_gradient():
    def body(m, b):
        with torch.no_grad():
            target = m(b.x).softmax(1)
        return ce(m, b) + F.kl_div(m(b.x).log_softmax(1), target, reduction="none").sum(1)

    return body


@innocent
def weight_decay():
    return lambda m, b: ce(m, b) + 1e-3 * sum(p.square().sum() for p in m.parameters())


@innocent
def activation_checkpointing():
    def body(m, b):
        out = checkpoint(m, b.x, use_reentrant=False)
        return F.cross_entropy(out, b.y, reduction="none")

    return body


@innocent
def schedule_of_the_step():
    return lambda m, b: ce(m, b) * (1.0 + 0.1 * b.step)


@innocent
def scale_by_numpys_coins():
    return lambda m, b: ce(m, b) * (0.5 + np.random.rand())  # noqa: NPY002


@innocent
def scale_by_pythons_coins():
    return lambda m, b: ce(m, b) * random.choice([0.5, 1.0])


@innocent
def scale_by_a_generator_of_its_own():
    coins = np.random.default_rng(0)
    return lambda m, b: ce(m, b) * (1.0 + 0.0 * coins.random())


@innocent
def bfloat16():
    def body(m, b):
        with torch.autocast("cpu", torch.bfloat16):
            return ce(m, b).float()

    return body


@innocent
def own_copy_written_in_place():
    def body(m, b):
        x = b.x.clone()
        x[:, 0] = 0.0
        return ce(m, b, x)

    return body


@innocent
def lines_in_a_log():
    log = []

    def body(m, b):
        log.append(len(b))
        return ce(m, b)

    return body


@guilty
def batch_centred():
    return lambda m, b: ce(m, b, b.x - b.x.mean(0))


@guilty
def batch_mean_detached():
    return lambda m, b: ce(m, b, b.x - b.x.detach().mean(0))


@guilty
def skip_a_batch_with_a_bad_loss():
    def body(m, b):
        losses = ce(m, b)
        return losses if torch.isfinite(losses).all() else losses * 0.0

    return body


@guilty
def skip_a_batch_with_a_large_loss():
    def body(m, b):
        losses = ce(m, b)
        return losses * 0.0 if len(losses) and float(losses.detach().max()) > 50 else losses

    return body


@guilty
def zeros_if_something_is_missing():
    return lambda m, b: ce(m, b, torch.zeros_like(b.x) if b.x.isnan().any() else b.x)


@guilty
def scaled_if_needed():
    return lambda m, b: ce(m, b, b.x / 255 if len(b) and b.x.max() > 2 else b.x)


@guilty
def scaled_without_a_branch():
    return lambda m, b: ce(m, b, torch.where(b.x.abs().amax() > 2, b.x / 255, b.x))


@guilty
def over_a_running_mean():
    state = {"mean": None}

    def body(m, b):
        losses = ce(m, b)
        if len(losses):
            value = float(losses.detach().mean())
            old = state["mean"]
            state["mean"] = value if old is None else 0.999 * old + 0.001 * value
        return 0.2 * losses / max(state["mean"] or 1.0, 1e-3)

    return body


@guilty
def over_a_running_mean_in_a_tensor():
    mean = torch.ones(())

    def body(m, b):
        losses = ce(m, b)
        mean.mul_(0.9).add_(0.1 * losses.detach().mean())
        return losses / mean

    return body


def mixup(coin, permutation):
    def body(m, b):
        if len(b) and coin() < 0.5:
            other = permutation(len(b))
            out = m(0.5 * b.x + 0.5 * b.x[other])
            losses = F.cross_entropy(out, b.y, reduction="none")
            return 0.5 * losses + 0.5 * F.cross_entropy(out, b.y[other], reduction="none")
        return ce(m, b)

    return body


@guilty
def mixup_by_numpy():
    return mixup(np.random.rand, lambda n: torch.from_numpy(np.random.permutation(n)))  # noqa: NPY002


@guilty
def mixup_by_python():
    return mixup(
        random.random, lambda n: torch.tensor(random.sample(range(n), n), dtype=torch.long)
    )


@guilty
def mixup_by_torch():
    return mixup(lambda: 0.0, torch.randperm)


@guilty
def mixup_by_a_generator_of_its_own():
    coins = np.random.default_rng()
    return mixup(coins.random, lambda n: torch.from_numpy(coins.permutation(n)))


@guilty
def hard_examples():
    def body(m, b):
        losses = ce(m, b)
        return losses * (losses >= losses.detach().median()) if len(b) else losses

    return body


@guilty
def top_half():
    def body(m, b):
        losses = ce(m, b)
        keep = losses.detach().topk(len(b) // 2).indices
        return losses * torch.zeros_like(losses).index_fill(0, keep, 1.0)

    return body


@guilty
def classes_balanced_by_the_batch():
    def body(m, b):
        counts = torch.bincount(b.y, minlength=2).clamp(min=1).float()
        return ce(m, b) * 50.0 / counts[b.y]

    return body


@guilty
def over_their_mean():
    def body(m, b):
        losses = ce(m, b)
        return losses / losses.detach().mean()

    return body


@guilty
def over_their_number():
    return lambda m, b: ce(m, b) / max(len(b), 1)


@guilty
def contrastive_across_rows():
    def body(m, b):
        z = F.normalize(m(b.x), dim=1)
        return F.cross_entropy(z @ z.t() / 0.1, torch.arange(len(b)), reduction="none")

    return body


@guilty
def neighbours_in_a_graph():
    def body(m, b):
        near = (torch.cdist(b.x, b.x) < 1.0).float()
        return ce(m, b, near @ b.x / near.sum(1, keepdim=True))

    return body


@guilty
def expert_with_capacity():
    def body(m, b):
        first = (b.x[:, 0] > 0).long().cumsum(0) <= 2
        return ce(m, b) * first

    return body


@guilty
def sorted_by_length():
    def body(m, b):
        order = b.x.abs().sum(1).argsort()
        return F.cross_entropy(m(b.x[order]), b.y, reduction="none")

    return body


@guilty
def memory_of_the_batch_before():
    state = {}

    def body(m, b):
        before = state.get("x", torch.zeros(1, WIDTH))
        state["x"] = b.x.detach().clone()
        return ce(m, b, b.x + before.mean(0))

    return body


@guilty
def memory_in_an_attribute():
    def body(m, b):
        before = getattr(m, "before", 0.0)
        m.before = b.x.detach().mean()
        return ce(m, b) * (1.0 + before)

    return body


@guilty
def number_of_calls():
    state = {"calls": 0}

    def body(m, b):
        state["calls"] += 1
        return ce(m, b) * (1.0 + 0.1 * state["calls"])

    return body


@guilty
def gradients_normalised_by_a_hook():
    def body(m, b):
        out = m(b.x)
        if out.requires_grad:
            out.register_hook(lambda g: g / (g.norm() + 1e-9))
        return F.cross_entropy(out, b.y, reduction="none")

    return body


class Mixing(torch.autograd.Function):
    """Backward, every row gets the mean gradient of all rows."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.mean(0, keepdim=True).expand_as(g).clone()


@guilty
def mixed_in_the_backward_pass():
    return lambda m, b: F.cross_entropy(Mixing.apply(m(b.x)), b.y, reduction="none")


@guilty
def rows_written_in_place():
    def body(m, b):
        b.x[:] = b.x - b.x.mean(0)
        return ce(m, b)

    return body


@guilty
def statistics_in_numpy():
    return lambda m, b: ce(m, b) / (1.0 + float(np.abs(b.x.numpy()).mean()))


@guilty
def penalty_over_the_batch():
    def body(m, b):
        return ce(m, b) + m(b.x).var(0).sum()

    return body


@guilty
def divided_by_one_of_ten_classes():
    def body(m, b):
        losses = F.cross_entropy(m(b.x), b.y.clamp(max=1), reduction="none")
        return losses / (1 + (b.y == 7).sum())

    return body


@guilty
def more_in_the_last_part():
    return lambda m, b: ce(m, b) * (2.0 if b.last else 1.0)


@guilty
def trimmed_to_the_longest():
    def body(m, b):
        longest = int((b.x != 0).any(0).sum())
        return ce(m, b, F.pad(b.x[:, :longest], (0, WIDTH - longest))) * longest

    return body


@guilty
def divided_by_the_longest():
    return lambda m, b: ce(m, b) / (b.x != 0).any(0).sum().clamp(min=1)


@guilty
def two_experts_with_room_for_six():
    def body(m, b):
        expert = (b.x.sum(1) > 0).long()
        place = F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None])[:, 0]
        return ce(m, b) * (place <= 6)

    return body


@guilty
def one_coin_for_a_part():
    return lambda m, b: ce(m, b, b.x if torch.rand(()) < 0.5 else -10.0 * b.x)


@guilty
def one_coin_of_numpy_for_a_part():
    def body(m, b):
        losses = ce(m, b)
        return losses if bool(b.x.isfinite().any()) and np.random.rand() < 0.5 else -losses  # noqa: NPY002

    return body


@guilty
def large_losses_of_a_network_that_saturates():
    def body(m, b):
        losses = ce(m, b, torch.tanh(b.x))
        return losses * 0.0 if losses.detach().max() > 5 else losses

    return body


class OddNumbers(torch.Tensor):
    """What is multiplied by it is looked at, past vmap: made-up rows of zeros show nothing."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*[a.as_subclass(torch.Tensor) if type(a) is cls else a for a in args])
        if isinstance(out, torch.Tensor) and torch._C._functorch.is_batchedtensor(out):
            physical = torch._C._functorch.get_unwrapped(out)
            return out * 0.0 if bool(physical.abs().max() > 1.5) else out
        return out * 0.0 if out.numel() and bool(out.abs().max() > 1.5) else out


@guilty
def a_constant_that_looks_at_what_it_multiplies():
    one = torch.ones(WIDTH).as_subclass(OddNumbers)
    return lambda m, b: ce(m, b, (b.x * one).as_subclass(torch.Tensor))


@guilty
def queue_of_keys():
    state = {"keys": torch.randn(16, 2)}

    def body(m, b):
        query = F.normalize(m(b.x), dim=1)
        state["keys"] = torch.cat([query.detach(), state["keys"]])[:16]
        return F.cross_entropy(query @ state["keys"].t(), b.y, reduction="none")

    return body


@guilty
def written_into_a_bank():
    bank = torch.zeros(10, WIDTH)

    def body(m, b):
        bank[b.y] = b.x.detach()
        return ce(m, b, b.x - bank.mean(0))

    return body


# Innocent, and not enforceable as they are: tested, with a line that says why, or a way out


def gradient_penalty():
    def body(m, b):
        x = b.x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return ce(m, b) + 1e-2 * slope.square().sum(1)

    return body


def finite_or_an_error():
    def body(m, b):
        losses = ce(m, b)
        assert torch.isfinite(losses).all()
        return losses

    return body


def mean_in_a_log():
    log = []

    def body(m, b):
        losses = ce(m, b)
        log.append(losses.mean().item())
        return losses

    return body


def losses_of_one_class_doubled_in_place():
    def body(m, b):
        losses = ce(m, b)
        losses[b.y == 1] *= 2.0
        return losses

    return body


def noise_of_a_generator_of_its_own():
    own = torch.Generator().manual_seed(1)
    return lambda m, b: ce(m, b, b.x + 0.1 * torch.randn(b.x.shape, generator=own))


def func_around_the_model():
    def one(m, x, y):
        return F.cross_entropy(m(x[None]), y[None])

    return lambda m, b: torch.func.vmap(lambda x, y: one(m, x, y))(b.x, b.y)


def noise_of_shapes():
    return lambda m, b: ce(m, b, b.x + 0.1 * torch.randn(len(b), WIDTH))


def a_coin_with_a_dimension():
    return lambda m, b: ce(m, b, b.x if torch.rand(1) < 0.5 else -10.0 * b.x)


def a_coin_for_each_row():
    return lambda m, b: ce(m, b, torch.where(torch.rand(len(b), 1) < 0.5, b.x.flip(1), b.x))


def a_coin_for_a_step():
    return lambda m, b: ce(m, b, b.x.flip(1) if random.random() < 0.5 else b.x)


def scaled_by_what_was_released():
    def body(m, b):
        found = [p.grad.norm() for p in m.parameters() if p.grad is not None]
        return ce(m, b) / (1.0 + sum(found))

    return body


def reentrant_checkpoints():
    return lambda m, b: F.cross_entropy(
        checkpoint(m, b.x, use_reentrant=True), b.y, reduction="none"
    )


WAYS_OUT = {
    scaled_by_what_was_released: Backing.ENFORCED,
    reentrant_checkpoints: "use_reentrant=False",
    gradient_penalty: Backing.TESTED,
    finite_or_an_error: Backing.TESTED,
    mean_in_a_log: Backing.TESTED,
    losses_of_one_class_doubled_in_place: Backing.TESTED,
    noise_of_a_generator_of_its_own: "draw from torch itself: torch.randn",
    noise_of_shapes: Backing.ENFORCED,
    one_coin_for_a_part: Backing.ENFORCED,  # one for the step, whichever part
    a_coin_with_a_dimension: r"torch.rand\(len\(batch\)\), or one for a step, torch.rand\(\(\)\)",
    a_coin_for_each_row: Backing.ENFORCED,
    a_coin_for_a_step: Backing.ENFORCED,
    func_around_the_model: "write the losses of all rows at once",
}


@pytest.mark.slow
@pytest.mark.parametrize("make", WAYS_OUT, ids=lambda f: f.__name__)
def test_an_innocent_body_has_a_way_out(monkeypatch, make):
    expected = WAYS_OUT[make]
    if isinstance(expected, Backing):
        _, training = sums(monkeypatch, make, records("large"))
        (stated,) = [p.backing for p in training.guarantee.premises if p.about == "mixing"]
        assert stated is expected
        return
    with pytest.raises((InvalidArgument, RuntimeError)) as refused:
        sums(monkeypatch, make, records("large"))
    assert re.search(
        expected, "\n".join([str(refused.value), *getattr(refused.value, "__notes__", [])])
    )


def test_a_coin_that_parts_share_tells_of_the_records_before(monkeypatch):
    """Attack: without the first record one row of every part has the coin of the part before."""
    parts = {"micro_batch": 4}
    moves, stated = moved(
        monkeypatch, one_coin_for_a_part, "large", independence="assumed", **parts
    )
    assert moves > 1.5 and stated is Backing.ASSUMED
    with pytest.raises(InvalidArgument, match="coins that rows share"):
        moved(monkeypatch, one_coin_for_a_part, "large", independence="tested", **parts)
    moves, stated = moved(monkeypatch, one_coin_for_a_part, "large", **parts)
    assert moves <= 1.0 and stated is Backing.ENFORCED  # one for the step


def test_a_free_loop_rests_on_what_it_checked():
    """What is tested is the function; that the loop uses it nobody sees."""
    training = start(tensors=records("large"), model=net(), schedule=FULL)
    training.check(ce)
    assert premises.LOOP_AS_CHECKED in training.guarantee.premises
    for given in ({"losses": ce}, {"losses": ce, "independence": "tested"}):
        training = start(tensors=records("large"), model=net(), schedule=FULL, **given)
        next(iter(training))
        assert premises.LOOP_AS_CHECKED not in training.guarantee.premises


# One record that is all that a batch may be asked about


def records(kind, n=24):
    g = torch.Generator().manual_seed(3)
    x = torch.rand(n, WIDTH, generator=g)
    y = (x[:, 0] > 0.5).long()
    x[0] = {"missing": math.nan, "large": 1e4, "pixel": 255.0, "negative": -3.0}[kind]
    y[0] = 1
    return x, y


def sums(monkeypatch, make, tensors, **kw):
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        watch = Watch(patch)
        x, y = (t.clone() for t in tensors)
        with start(
            tensors=(x, y), model=net(), losses=make(), schedule=FULL, lr=0.0, n_public=24, **kw
        ) as training:
            for _ in training:
                pass
    return watch, training


def moved(monkeypatch, make, kind, **kw):
    """The largest of all steps, over what is paid for it; and what is stated."""
    x, y = records(kind)
    with_it, training = sums(monkeypatch, make, (x, y), **kw)
    without, _ = sums(monkeypatch, make, (x[1:], y[1:]), **kw)
    pairs = zip(with_it.clean, without.clean, strict=True)
    far = max(float((a.double() - b.double()).norm()) for a, b in pairs)
    (stated,) = [p.backing for p in training.guarantee.premises if p.about == "mixing"]
    return far / with_it.sensitivities[0], stated


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_body_is_enforced(monkeypatch, name):
    far, stated = moved(monkeypatch, INNOCENT[name], "large")
    assert stated is Backing.ENFORCED
    if "noise" not in name and "dropout" not in name and "contrastive" not in name:
        assert far <= 1.0  # coins move with the places of add-remove neighbours


@pytest.mark.slow
@pytest.mark.parametrize("name", GUILTY)
def test_a_guilty_body_is_refused_or_made_innocent(monkeypatch, name):
    for kind in ("missing", "large", "pixel", "negative"):
        try:
            far, stated = moved(monkeypatch, GUILTY[name], kind)
        except (InvalidArgument, RuntimeError):
            continue
        assert stated is Backing.ENFORCED
        assert far <= 1.0, (kind, far)


@pytest.mark.slow
@pytest.mark.parametrize("name", GUILTY)
def test_a_guilty_body_is_found_by_the_check_of_a_free_loop(name):
    """All but what no made-up row shows: such a body is *tested*, and never called enforced."""
    training = start(tensors=records("large"), model=net(), schedule=FULL)
    with pytest.raises((InvalidArgument, RuntimeError)):
        training.check(GUILTY[name]())
