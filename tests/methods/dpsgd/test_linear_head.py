"""Arithmetic that must not depend on the place of a number, nor on the processor."""

import hashlib
import math

import pytest
import torch

from privet.methods.dpsgd.linear import (
    LinearHead,
    add_softmax,
    add_squares,
    exp,
    power_of_two_above,
    to_grid,
    total,
)


def test_exp_is_right_and_does_not_look_at_its_neighbours():
    x = -torch.cat([torch.linspace(0, 40, 4001), torch.linspace(40, 690, 500)]).double()
    found = exp(x)
    expected = torch.tensor([math.exp(v) for v in x.tolist()], dtype=torch.float64)
    assert float(((found - expected) / expected).abs().max()) <= 2.0**-50
    assert exp(torch.tensor([-701.0, -1e300, -math.inf], dtype=torch.float64)).tolist() == [0.0] * 3
    assert float(exp(torch.zeros(1, dtype=torch.float64))) == 1.0
    for size in (1, 2, 3, 5, 7, 8, 9, 17):
        for start in range(0, 200, 13):
            assert torch.equal(exp(x[start : start + size]), found[start : start + size])


KNOWN = [
    "0x1.cf46d99d52b3ap-1",
    "0x1.78b56362cef38p-2",
    "0x1.50385c094f425p-4",
    "0x1.0772c096d61b7p-25",
    "0x1.245639c3a49f7p-433",
]


def test_known_bits():
    """The same on every processor: a table of what IEEE 754 says, in hexadecimal."""
    x = torch.tensor([-0.1, -1.0, -2.5, -17.3, -300.0], dtype=torch.float64)
    assert [v.hex() for v in exp(x).tolist()] == KNOWN
    t = torch.tensor([[0.1], [0.2], [0.3], [0.4], [0.5]], dtype=torch.float64)
    assert float(total(t)) == ((0.1 + 0.3) + (0.2 + 0.4)) + 0.5


def test_grids():
    t = torch.tensor([0.3, -0.3, 0.125, 5.0], dtype=torch.float64)
    assert to_grid(t, 0.25).tolist() == [0.25, -0.25, 0.0, 5.0]
    above = power_of_two_above(torch.tensor([1e-30, 2.0**-5, 1e30], dtype=torch.float64))
    assert above.tolist() == [2.0**-99, 2.0**-4, 2.0**100]


def contributions(add, outputs, x, y, *, bound, capacity, place):
    """The sum of a batch of its own rows; `place` says where they stand among zero rows."""
    model = LinearHead(features=x.shape[1], outputs=outputs, constant=0.1)
    g = torch.Generator().manual_seed(5)
    model.linear.weight.data = torch.randn(model.linear.weight.shape, generator=g) * 3
    some = tuple(t[place] for t in model.examples(x, y))
    into = torch.zeros_like(model.linear.weight, dtype=torch.float64)
    add(model.linear.weight, some, bound, into, capacity)
    return into.detach().view(-1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["softmax", "squares"])
@pytest.mark.parametrize("bound", [0.1, 3.7])
def test_the_sum_is_the_sum_of_what_each_record_gives_alone(kind, bound):
    """Bit for bit, in any order, in any company: nothing is rounded."""
    n, g = 301, torch.Generator().manual_seed(1)
    x = torch.randn(n, 23, generator=g) * 10.0 ** (3 * torch.rand(n, 1, generator=g) - 2)
    x[7] = float("nan")
    if kind == "softmax":
        add, outputs, y = add_softmax, 5, torch.randint(5, (n,), generator=g)
    else:
        add, outputs, y = add_squares, 1, torch.randn(n, 1, generator=g)

    def of(place):
        return contributions(add, outputs, x, y, bound=bound, capacity=n, place=place)

    order = torch.randperm(n, generator=g)
    whole = of(torch.arange(n))
    assert torch.equal(of(order), whole)
    alone = torch.stack([of(torch.tensor([i])) for i in range(n)])
    assert torch.equal(alone.sum(0), whole)
    for size in (1, 2, 64, 299):
        assert torch.equal(sum(of(part) for part in order.split(size)), whole)
    assert float(alone.norm(dim=1).max()) <= bound
    assert float(alone.norm(dim=1).max()) > 0.99 * bound


@pytest.mark.parametrize("kind", ["softmax", "squares"])
def test_the_same_bits_on_every_processor(kind):
    """Rows from whole numbers alone; what comes out is written down here, to the last bit."""
    rows = torch.arange(40 * 7).view(40, 7)
    x = ((rows * 7919) % 1009).float() / 1024 - 0.5
    weight = ((torch.arange(3 * 8).view(3, 8) * 104729) % 997).float() / 256 - 2.0
    outputs = 3 if kind == "softmax" else 1
    model = LinearHead(features=7, outputs=outputs, constant=0.125)
    model.linear.weight.data = weight[:outputs].clone()
    y = torch.arange(40) % 3 if kind == "softmax" else (torch.arange(40) % 5).float()[:, None]
    into = torch.zeros_like(model.linear.weight, dtype=torch.float64)
    add = add_softmax if kind == "softmax" else add_squares
    add(model.linear.weight, model.examples(x, y), 0.3, into, 40)
    bits = hashlib.sha256(into.detach().numpy().tobytes()).hexdigest()[:16]
    assert bits == BITS[kind]


BITS = {"softmax": "b8315d762f7fa455", "squares": "0ddb5b5b8e0929d0"}
