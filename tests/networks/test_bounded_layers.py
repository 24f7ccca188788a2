"""Local response normalisation and min-max: their ranges, and the formula written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privet.errors import InvalidArgument
from privet.networks.bounded_layers import LocalResponseNorm, MinMax


def _written_out(h: torch.Tensor, q=2.0, size=5, alpha=1e-4, beta=0.75) -> torch.Tensor:
    """Eq. 22 with loops."""
    out = torch.empty_like(h)
    records, maps, *_ = h.shape
    for i in range(records):
        for k in range(maps):
            total = sum(
                h[i, m] ** 2 for m in range(max(0, k - size // 2), min(maps - 1, k + size // 2) + 1)
            )
            out[i, k] = h[i, k] / torch.maximum(h[i, k], (q + alpha * total) ** beta)
    return out


@pytest.mark.parametrize("shape", [(2, 7, 3, 3), (3, 1, 4), (2, 4), (1, 9, 2, 2, 2)])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_lrn_is_eq_22(shape, scale):
    torch.manual_seed(0)
    h = torch.rand(shape, dtype=torch.float64) * scale
    torch.testing.assert_close(LocalResponseNorm()(h), _written_out(h))
    other = LocalResponseNorm(q=1.0, size=3, alpha=0.1, beta=0.5)
    torch.testing.assert_close(other(h), _written_out(h, 1.0, 3, 0.1, 0.5))


@pytest.mark.slow
@given(st.lists(st.floats(0, 1e15), min_size=4, max_size=12))
def test_lrn_lies_in_the_unit_interval(values):
    y = LocalResponseNorm()(torch.tensor([values], dtype=torch.float64))
    assert ((y >= 0) & (y <= 1)).all()


def test_lrn_refuses_constants_that_do_not_bound():
    with pytest.raises(InvalidArgument, match="at least 1"):
        LocalResponseNorm(q=0.5)
    with pytest.raises(InvalidArgument, match="records, maps"):
        LocalResponseNorm()(torch.rand(3))


def test_min_max_remembers_the_widest_range():
    layer = MinMax(2)
    out = layer(torch.tensor([[0.0, 5.0], [4.0, 5.0]]))
    assert out.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    layer(torch.tensor([[-4.0, 6.0]]))
    layer.eval()
    assert layer(torch.tensor([[0.0, 5.5], [100.0, -100.0]])).tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_one_record_moves_the_others_through_min_max():
    layer = MinMax(1)
    a = layer(torch.tensor([[0.0], [1.0], [2.0]]))
    b = MinMax(1)(torch.tensor([[0.0], [1.0], [200.0]]))
    assert a[1] == 0.5 and b[1] == 0.005 and layer.mixes_records
