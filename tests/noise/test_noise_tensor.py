"""The torch path: the same noise as numpy's, in place."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from privet.errors import InvalidArgument
from privet.noise import grid, seeded
from privet.noise.continuous import BLOCK, CHUNK
from privet.noise.tensor import add_gaussian_, gaussian_

SIZES = [0, 1, 2, 7, BLOCK - 1, BLOCK, BLOCK + 1, CHUNK, CHUNK + 3, 2 * CHUNK + BLOCK + 5]


@pytest.mark.parametrize("n", SIZES)
def test_same_draws_as_numpy(n: int) -> None:
    x = gaussian_(torch.empty(n, dtype=torch.float64), 2.5, seeded(3))
    assert np.allclose(x.numpy(), seeded(3).gaussian(n, 2.5), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("n", [1, 1001, CHUNK + 3])
def test_float32_is_a_rounding_of_float64(n: int) -> None:
    wide = gaussian_(torch.empty(n, dtype=torch.float64), 0.3, seeded(4))
    narrow = gaussian_(torch.empty(n, dtype=torch.float32), 0.3, seeded(4))
    assert torch.equal(narrow, wide.to(torch.float32))


def test_shapes_are_kept_and_parameters_allowed() -> None:
    x = torch.nn.Parameter(torch.zeros(3, 4, 5))
    assert gaussian_(x, 1.0, seeded(0)) is x
    assert x.requires_grad and float(x.detach().abs().min()) > 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 0.37, 900.0])
def test_addition_on_the_grid(dtype: torch.dtype, scale: float) -> None:
    n = BLOCK + 11
    value = torch.linspace(-3, 3, n, dtype=dtype)
    out = add_gaussian_(value.clone(), scale, seeded(5))
    noise = seeded(5).gaussian(n, scale)
    expected = grid.add(value.double().numpy(), noise, step=grid.spacing(scale))
    if dtype is torch.float32:
        expected = grid.to_float32(expected, scale)
    # sin and cos may differ in the last bit, which moves a draw by one step once in a long while
    steps = np.abs(out.numpy() - expected) / grid.spacing(scale)
    assert np.mean(steps > 0) < 1e-4
    assert np.array_equal(
        np.rint(out.double().numpy() / grid.spacing(scale)) * grid.spacing(scale), out
    )


def test_noise_is_added_once_and_at_its_scale() -> None:
    out = add_gaussian_(torch.full((40_000,), 5.0, dtype=torch.float64), 1000.0, seeded(6))
    assert float(out.std()) == pytest.approx(1000.0, rel=0.03)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.int64), torch.zeros(4, 4).T],
)
def test_bad_tensors(tensor: torch.Tensor) -> None:
    if tensor.dtype is torch.float32:
        tensor = torch.zeros(4, 6).T
    for act in (gaussian_, add_gaussian_):
        with pytest.raises(InvalidArgument, match="tensor must be"):
            act(tensor, 1.0, seeded(0))


def test_the_rest_does_not_import_torch() -> None:
    code = (
        "import sys, privet.noise, privet.bounds, privet.mechanisms;"
        "privet.noise.secure().gaussian(3); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
