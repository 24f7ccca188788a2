"""The ball activation: never longer than 1, nearly uniform."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from privet.errors import InvalidArgument
from privet.networks.bounded_layers import UnitBall
from privet.networks.convolutional_autoencoder import ConvolutionalAutoencoder

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
ball = UnitBall()


def lengths(out):
    """In exact arithmetic, up to one rounding of a correctly rounded sum."""
    return [
        math.sqrt(math.fsum(float(v) ** 2 for v in row)) for row in out.reshape(-1, out.shape[-1])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=150, deadline=None)
@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(2, 9)),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True),
    )
)
def test_never_longer_than_one(dtype, o):
    out = ball(torch.from_numpy(o).to(dtype))
    assert out.dtype is dtype and out.shape == (*o.shape[:-1], o.shape[-1] - 1)
    assert torch.isfinite(out).all()
    assert max(lengths(out)) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [2, 17, 257, 4097])
def test_saturated_radius_still_inside(dtype, size):
    """o_0 so large that the radius rounds to 1: the worst case for rounding of the coordinates."""
    o = torch.randn(16, size, generator=torch.Generator().manual_seed(size)).to(dtype)
    o[:, 0] = 1e4
    out = lengths(ball(o))
    least = 1.0 - 2 * torch.finfo(dtype).eps - (size + 16) * 2.0**-51
    assert max(out) <= 1.0 and min(out) > least


@pytest.mark.parametrize("dtype", TYPES)
def test_zeros_and_infinities(dtype):
    inf = float("inf")
    o = torch.tensor([[3.0, 0.0, 0.0], [inf, inf, -inf], [-inf, 1.0, 1.0], [0.0, inf, 1.0]]).to(
        dtype
    )
    out = ball(o).double()
    assert out[0].abs().max() == 0.0  # no direction: the centre
    assert out[1, 0] == -out[1, 1] > 0.69
    assert out[2].abs().max() < 1e-3  # radius exp(-inf)
    assert out[3, 0] > 0.7 and out[3, 1] < 1e-3


def test_is_the_printed_formula():
    o = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    printed = o[:, 1:] / (
        (torch.exp(-o[:, :1] * math.sqrt(8 / math.pi)) + 1) ** (1 / 5)
        * o[:, 1:].norm(dim=1, keepdim=True)
    )
    assert torch.allclose(ball(o), printed, rtol=1e-12)


def test_gradients_are_finite_and_right():
    o = torch.randn(
        4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True
    )
    assert torch.autograd.gradcheck(ball, (o,), atol=1e-6)
    hard = torch.tensor(
        [[0.0, 0.0, 0.0], [float("inf"), 1.0, 2.0], [-1e30, 1e30, 1e-30]], requires_grad=True
    )
    ball(hard).sum().backward()
    assert torch.isfinite(hard.grad).all()


def test_needs_a_direction():
    with pytest.raises(InvalidArgument, match="l at least 1"):
        ball(torch.zeros(3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 8, 64])
def test_nearly_uniform_for_normal_inputs(dimension):
    """U = ||phi||^l against the uniform law, and the direction against the sphere.

    The logistic function differs from the normal one by at most .0177, so U is at most that far
    from uniform; sampling adds sqrt(ln(2/alpha) / (2n)) (Dvoretzky, Kiefer, Wolfowitz, Massart) and
    each of the moments below is held to 6 standard errors: false alarm under 1e-6 in all.
    """
    n = 200_000
    o = torch.randn(
        n, dimension + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(dimension)
    )
    out = ball(o).numpy()
    u = np.linalg.norm(out, axis=1) ** dimension
    slack = math.sqrt(math.log(2 / 1e-8) / (2 * n))
    assert stats.kstest(u, "uniform").statistic < 0.0177 + slack
    unit = out / np.linalg.norm(out, axis=1, keepdims=True)
    assert np.abs(unit.mean(axis=0)).max() < 6 / math.sqrt(n * dimension)
    second = (unit**2).mean(axis=0)
    assert np.abs(second - 1 / dimension).max() < 6 * math.sqrt(2 / n) / dimension + 1e-12
    # tanh, the alternative the paper turns down, leaves the ball nearly empty in high dimension
    cube = np.tanh(o[:, 1:].numpy()) / math.sqrt(dimension)
    assert stats.kstest(np.linalg.norm(cube, axis=1) ** dimension, "uniform").statistic > 0.05


@pytest.mark.parametrize("shape", [(8, 8), (7, 13), (5, 6, 9), (8, 8, 8)])
def test_autoencoder_goes_there_and_back(shape):
    torch.manual_seed(0)
    net = ConvolutionalAutoencoder(shape=shape, classes=3, dimension=4, widths=(3, 5))
    maps = torch.rand(2, 3, *shape).softmax(dim=1)
    codes = net.encode(1e6 * maps)
    assert codes.shape == (2, 4) and (codes.double().norm(dim=1) <= 1.0).all()
    assert net.decode(codes).shape == maps.shape
    torch.manual_seed(1)
    noisy = net(maps, noise=0.5)
    torch.manual_seed(1)
    assert torch.equal(noisy, net.decode(net.encode(maps) + 0.5 * torch.randn(2, 4)))


def test_autoencoder_refuses_one_dimension():
    with pytest.raises(InvalidArgument, match="two or three"):
        ConvolutionalAutoencoder(shape=(8,), classes=2, dimension=2)
