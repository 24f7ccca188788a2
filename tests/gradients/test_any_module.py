"""Modules without kernels of their own, and layers that are called in unusual ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import engine_sum, example_gradients, oracle, relative_error
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InvalidArgument
from privet.gradients import FlatClipping, PerExampleGradients
from privet.gradients.layer_protocol import LayerProblem

ROWS, LENGTH, WIDTH = 6, 5, 4


def losses(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x)
    y = y[0] if isinstance(y, tuple) else y
    return (y.flatten(1).sin() + y.flatten(1).square()).sum(1)


def recorded_sum(
    engine: PerExampleGradients, loss_fn: Any, x: Tensor, **options: Any
) -> dict[str, Tensor]:
    """The engine's clipped sum, where it is told the number of rows."""
    with engine.recording(len(x)):
        each = loss_fn(engine.model, x)
    return engine.clipped_sum(each, **options).gradients


def error_of(model: nn.Module, x: Tensor, **options: Any) -> float:
    """How far the engine's clipped sum is from a loop over examples."""
    model, x = model.double(), x.double() if x.is_floating_point() else x
    engine, clipping = PerExampleGradients(model, **options), FlatClipping(bound=1.0)
    found = recorded_sum(engine, losses, x, clipping=clipping)
    return relative_error(found, oracle(engine, clipping, example_gradients(model, losses, x)))


class Net(nn.Module):
    """Layers by name, and a forward pass that is a function of them."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self._run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self._run(self, *inputs)


def weights(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


class ScaledEmbedding(nn.Embedding):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2.0


class OneForAll(nn.Embedding):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.arange(x.shape[1])[None])


class Table(nn.Module):
    """Called without a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = weights(WIDTH)

    def forward(self) -> Tensor:
        return self.table.square()


def offsets(m: Any, x: Tensor) -> Tensor:
    """Bags of 1, 2, ... words: of row i the first i + 1, so that lengths differ."""
    lengths = torch.arange(len(x)) % LENGTH + 1 if m.training else (x[:, 0] % LENGTH + 1)
    words = torch.cat([row[:n] for row, n in zip(x, lengths, strict=True)])
    return m.b(words, torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]]))


def bag(**options: Any) -> nn.Module:
    return Net(offsets, b=nn.EmbeddingBag(9, WIDTH, **options)).eval()


def windows(m: Any, x: Tensor) -> Tensor:
    parts = x.reshape(len(x) * LENGTH, WIDTH)
    return m.l(m.l(parts) + m.t()).view(len(x), -1)


WORDS = torch.randint(0, 9, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
NUMBERS = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))

CASES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "outputs that are no tensors": (
        lambda: Net(lambda m, x: (x * m.w, None, 7, {"a": "b"}), w=weights(WIDTH)), NUMBERS,
    ),
    "padding of an embedding of another class": (
        lambda: ScaledEmbedding(9, WIDTH, padding_idx=1), WORDS,
    ),
    "padding counted from the end": (lambda: ScaledEmbedding(9, WIDTH, padding_idx=-1), WORDS),
    "one row for all": (
        lambda: Net(lambda m, x: m.e(x) + m.p(x), e=nn.Embedding(9, WIDTH), p=OneForAll(7, WIDTH)),
        WORDS,
    ),
    "a module called without a tensor": (
        lambda: Net(lambda m, x: m.l(x) * m.t(), l=nn.Linear(WIDTH, WIDTH), t=Table()), NUMBERS,
    ),
    "a shared value in windows": (
        lambda: Net(windows, l=nn.Linear(WIDTH, WIDTH), t=Table()), NUMBERS,
    ),
    "rows and places flattened": (
        lambda: Net(
            lambda m, x: m.l(m.n(m.w * x.reshape(-1, WIDTH))).view_as(x),
            n=nn.LayerNorm(WIDTH), l=nn.Linear(WIDTH, WIDTH), w=weights(WIDTH),
        ), NUMBERS,
    ),
    "layers of which rows are the second axis": (
        lambda: Net(
            lambda m, x: m.n(m.l(m.e(x.t()))).transpose(0, 1),
            e=nn.Embedding(9, WIDTH), l=nn.Linear(WIDTH, 3), n=nn.LayerNorm(3),
        ), WORDS,
    ),
    "a frozen parameter beside layers": (
        lambda: Net(
            lambda m, x: m.l(x) * m.s, l=nn.Linear(WIDTH, 3),
            s=nn.Parameter(torch.ones(()), requires_grad=False),
        ), NUMBERS,
    ),
    "a list of parameters": (
        lambda: Net(lambda m, x: x @ m.w[0] @ m.w[1], w=nn.ParameterList([weights(4, 3), weights(3, 2)])),
        NUMBERS,
    ),
    "group norm of a transposed input": (
        lambda: Net(lambda m, x: m.n(x.transpose(1, 2)), n=nn.GroupNorm(2, WIDTH)), NUMBERS,
    ),
    "instance norm of a transposed input": (
        lambda: Net(lambda m, x: m.n(x.transpose(1, 2)), n=nn.InstanceNorm1d(WIDTH, affine=True)),
        NUMBERS,
    ),
    "bags with offsets, sum": (lambda: bag(mode="sum"), WORDS),
    "bags with offsets, mean, padding": (lambda: bag(mode="mean", padding_idx=2), WORDS),
    "bags with offsets, maximum": (lambda: bag(mode="max"), WORDS),
    "bags of equal lengths": (lambda: nn.EmbeddingBag(9, WIDTH, mode="mean", padding_idx=0), WORDS),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_a_loop(case: str) -> None:
    torch.manual_seed(0)
    make, x = CASES[case]
    assert error_of(make(), x) < 1e-10


def test_parameters_of_a_container_as_values_that_all_rows_share() -> None:
    """Its layers are recorded apart then, and what the loss does not use may mix rows."""

    def towers(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        u, v = m.a(x), m.b(x)
        return u * v * m.s.exp() + m.c, u @ v.t()

    torch.manual_seed(0)
    net = Net(towers, a=nn.Linear(4, 3), b=nn.Linear(4, 3), s=weights(), c=weights(1, 3)).double()
    x, clipping = NUMBERS[:, 0].double(), FlatClipping(bound=1.0)
    engine = PerExampleGradients(net)
    with pytest.raises(LayerProblem, match="row by row"):
        engine_sum(engine, losses, x, clipping=clipping)
    engine.reroute(through_func=(), shared=[""])
    found = engine_sum(engine, losses, x, clipping=clipping)
    expected = oracle(engine, clipping, example_gradients(net, losses, x))
    assert relative_error(found, expected) < 1e-10
    assert not {"s", "c"} & set(net.__dict__)


def test_a_cache_that_a_module_fills_stays_inside() -> None:
    def fill(m: Any, x: Tensor, cache: list[Tensor]) -> Tensor:
        cache.append(x)
        return torch.cat(cache, 1) * m.w

    model = Net(lambda m, x: m.f(x, []), f=Net(fill, w=weights(WIDTH)))
    assert error_of(model, NUMBERS) < 1e-10


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("place", [0, -1])
def test_places_that_are_not_in_the_order_of_rows_are_refused(rows: int, place: int) -> None:
    """Flattened with time in front, a row's places are everybody's."""
    net = Net(
        lambda m, x: m.l(x.transpose(0, 1).reshape(-1, WIDTH)).view(LENGTH, len(x), -1)[place],
        l=nn.Linear(WIDTH, 3),
    )
    with pytest.raises(InvalidArgument, match="rows that influence each other"):
        recorded_sum(PerExampleGradients(net), losses, NUMBERS[:rows])


def test_rows_picked_by_content_are_tested_in_every_pass() -> None:
    """At first every row sends two places to the layer; then one row sends three, another one."""

    def picked(m: Any, x: Tensor) -> Tensor:
        owner, place = (x[..., 0] > 0).nonzero(as_tuple=True)
        return torch.zeros(len(x), 3).index_add(0, owner, m.l(x[owner, place]))

    engine = PerExampleGradients(Net(picked, l=nn.Linear(WIDTH, 3)))
    even, uneven = -torch.rand(2, 4, LENGTH, WIDTH)
    even[:, :2, 0], uneven[:, :2, 0], uneven[0, 2, 0], uneven[3, 0, 0] = 1.0, 1.0, 1.0, -1.0
    for _ in range(2):
        recorded_sum(engine, losses, even)
    with pytest.raises(InvalidArgument, match="rows that influence each other"):
        recorded_sum(engine, losses, uneven)


def test_no_row_for_a_layer_is_refused() -> None:
    net = Net(lambda m, x: x.sum((1, 2)) + m.l(x[:0, 0]).sum(), l=nn.Linear(WIDTH, 3))
    with pytest.raises(InvalidArgument, match="0 rows"):
        recorded_sum(PerExampleGradients(net), lambda m, x: m(x), NUMBERS)


def test_lazy_layers_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidArgument, match="call it once on a batch"):
        PerExampleGradients(nn.Sequential(nn.LazyLinear(3)))


def test_padding_where_the_table_is_also_the_head() -> None:
    """The padding row has no gradient as input, and one as output."""
    torch.manual_seed(0)
    model = Net(lambda m, x: F.linear(m.e(x), m.e.weight), e=nn.Embedding(9, WIDTH, padding_idx=1))
    assert error_of(model, WORDS, through_func=[""]) < 1e-10
