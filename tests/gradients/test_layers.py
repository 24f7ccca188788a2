"""Every layer type equals the loop over examples, with every kernel."""

from __future__ import annotations

import pytest
import torch
from oracle import (
    engine_sum,
    example_gradients,
    oracle,
    relative_error,
    squared_outputs,
    worst_relative_error,
)
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from privet.errors import InvalidArgument
from privet.gradients import AutomaticClipping, FlatClipping, PerExampleGradients, PerLayerClipping
from privet.gradients.kernel_choice import KernelChooser

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*")
B = 6


class Gated(nn.Module):
    """A layer the engine does not know: bare parameters, a scalar among them, and a child."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(5))
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.inner = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x + self.shift)) * self.scale


class LoopOnly(nn.Module):
    """Data-dependent control flow, which vmap cannot batch."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return x.sin() * self.w if float(x.abs().max()) < 1e9 else x


class Attention(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.batch_first = bool(options.get("batch_first", True))
        self.attention = nn.MultiheadAttention(8, 2, **{"batch_first": True, **options})  # type: ignore[arg-type]
        self.key = nn.Linear(8, self.attention.kdim)
        self.value = nn.Linear(8, self.attention.vdim)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        q, k, v = x, self.key(x), self.value(x)
        if not self.batch_first:
            q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        y, weights = self.attention(query=q, key=k, value=v, attn_mask=mask)
        y = y if self.batch_first else y.transpose(0, 1)
        return y + weights.sum(2, keepdim=True)


class TimeMajor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x.transpose(0, 1))[0].transpose(0, 1)


class LastState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 3, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[1][0].transpose(0, 1)


def ints(*shape: int) -> Tensor:
    return torch.randint(0, 7, shape)


IMAGE = (B, 4, 7, 6)
CASES: dict[str, tuple[object, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 4), (B, 5)),
    "linear no bias": (lambda: nn.Linear(5, 4, bias=False), (B, 5)),
    "linear 3-D": (lambda: nn.Linear(5, 4), (B, 3, 5)),
    "linear 4-D": (lambda: nn.Linear(5, 4), (B, 3, 2, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, stride=2), (B, 4, 9)),
    "conv1d circular": (lambda: nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), (B, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1), IMAGE),
    "conv2d no bias": (lambda: nn.Conv2d(4, 6, 3, bias=False), IMAGE),
    "conv2d strided": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 3), padding=(2, 1)), IMAGE),
    "conv2d dilated": (lambda: nn.Conv2d(4, 6, 3, dilation=(2, 1), padding=2), IMAGE),
    "conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), IMAGE),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), IMAGE),
    "conv2d pointwise": (lambda: nn.Conv2d(4, 6, 1), IMAGE),
    "conv2d reflect": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMAGE),
    "conv2d replicate": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate"), IMAGE),
    "conv2d same": (lambda: nn.Conv2d(4, 6, 3, padding="same"), IMAGE),
    "conv2d same, even": (lambda: nn.Conv2d(4, 6, (4, 3), padding="same"), IMAGE),
    "conv2d valid": (lambda: nn.Conv2d(4, 6, 3, padding="valid"), IMAGE),
    "conv3d": (lambda: nn.Conv3d(3, 4, 3, padding=1), (B, 3, 4, 5, 4)),
    "conv3d strided": (lambda: nn.Conv3d(4, 4, 2, stride=2, groups=2), (B, 4, 4, 5, 4)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (B, 4, 6)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), IMAGE),
    "transposed 2d, dilated": (lambda: nn.ConvTranspose2d(4, 6, 2, dilation=2), IMAGE),
    "transposed 3d": (lambda: nn.ConvTranspose3d(3, 4, 2, stride=2), (B, 3, 3, 4, 3)),
    "group norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "group norm, rows only": (lambda: nn.GroupNorm(2, 8), (B, 8)),
    "layer norm": (lambda: nn.LayerNorm(5), (B, 3, 5)),
    "layer norm, rows only": (lambda: nn.LayerNorm(5), (B, 5)),
    "layer norm 2-D": (lambda: nn.LayerNorm((7, 6)), IMAGE),
    "layer norm no bias": (lambda: nn.LayerNorm(5, bias=False), (B, 3, 5)),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(4, affine=True), (B, 4, 9)),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(3, affine=True), (B, 3, 4, 5, 4)),
    "rms norm": (lambda: nn.RMSNorm(5), (B, 3, 5)),
    "rnn": (lambda: nn.RNN(4, 3, batch_first=True, nonlinearity="relu"), (B, 5, 4)),
    "rnn bidirectional": (
        lambda: nn.RNN(4, 3, num_layers=2, bidirectional=True, batch_first=True),
        (B, 5, 4),
    ),
    "gru": (lambda: nn.GRU(4, 3, num_layers=2, batch_first=True), (B, 5, 4)),
    "gru time-major": (TimeMajor, (B, 5, 4)),
    "lstm": (lambda: nn.LSTM(4, 3, bidirectional=True, batch_first=True), (B, 5, 4)),
    "lstm no bias": (lambda: nn.LSTM(4, 3, bias=False, batch_first=True), (B, 5, 4)),
    "lstm projected": (lambda: nn.LSTM(4, 3, proj_size=2, batch_first=True), (B, 5, 4)),
    "lstm last state": (LastState, (B, 5, 4)),
    "attention": (Attention, (B, 5, 8)),
    "attention time-major": (lambda: Attention(batch_first=False), (B, 5, 8)),
    "attention of other sizes": (lambda: Attention(kdim=3, vdim=5), (B, 5, 8)),
    "attention with bias_k": (lambda: Attention(add_bias_kv=True), (B, 5, 8)),
    "transformer block": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True),
        (B, 5, 8),
    ),
    "weight norm": (lambda: weight_norm(nn.Linear(5, 4)), (B, 5)),
    "prelu": (lambda: nn.PReLU(4), IMAGE),
    "bare parameters": (Gated, (B, 5)),
    "bare parameters inside": (lambda: nn.Sequential(nn.Linear(5, 5), Gated()), (B, 5)),
    "what vmap cannot do": (LoopOnly, (B, 5)),
}  # fmt: skip


def clippings(norm: float) -> list[FlatClipping | PerLayerClipping | AutomaticClipping]:
    """Bounds in the middle of the norms, so that some examples are clipped and others are not."""
    return [
        FlatClipping(bound=norm),
        FlatClipping(bound=norm * 1e3),
        PerLayerClipping(bound=norm),
        AutomaticClipping(bound=norm, gamma=0.1),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_loop(case: str, dtype: torch.dtype) -> None:
    make, shape = CASES[case]
    model = make().to(dtype)  # type: ignore[operator]
    x = torch.randn(shape, dtype=dtype)
    gradients = example_gradients(model, squared_outputs, x)
    norms = torch.tensor([sum(g.square().sum() for g in e.values()).sqrt() for e in gradients])
    engine = PerExampleGradients(model)
    for clipping in clippings(float(norms.median())):
        found = engine_sum(engine, squared_outputs, x, clipping=clipping)
        expected = oracle(engine, clipping, gradients)
        assert relative_error(found, expected) < 1e-5
        if dtype == torch.float64:
            assert worst_relative_error(found, expected) < 1e-7
        assert all(p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("conv", "trans", "linear"))])
def test_every_kernel(case: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel, forced, gives the loop's result; so do rows grouped into views."""
    make, shape = CASES[case]
    model = make()  # type: ignore[operator]
    x = torch.randn(shape)
    clipping = FlatClipping(bound=3.0)
    names: set[str] = set()
    real = KernelChooser.run

    def note(self: KernelChooser, handler, call):  # type: ignore[no-untyped-def]
        names.update(k.name for k in handler.kernels(call))
        return real(self, handler, call)

    def forced(name: str):  # type: ignore[no-untyped-def]
        def run(self: KernelChooser, handler, call):  # type: ignore[no-untyped-def]
            kernels = handler.kernels(call)
            return next((k for k in kernels if k.name == name), kernels[0]).run()

        return run

    for views in (1, 2):
        names.clear()
        engine = PerExampleGradients(model, kernel_choice="cost-model")
        (x,) = engine.prepare(x) if layout == "last" else (x,)
        expected = oracle(
            engine, clipping, example_gradients(model, squared_outputs, x, views=views)
        )
        monkeypatch.setattr(KernelChooser, "run", note)
        engine_sum(engine, squared_outputs, x, clipping=clipping, views=views)
        for name in sorted(names):
            monkeypatch.setattr(KernelChooser, "run", forced(name))
            found = engine_sum(engine, squared_outputs, x, clipping=clipping, views=views)
            assert relative_error(found, expected) < 1e-5, name


@pytest.mark.parametrize("padding", [None, 2])
def test_embedding(padding: int | None) -> None:
    model = nn.Sequential(nn.Embedding(7, 4, padding_idx=padding), nn.Linear(4, 3))
    x = ints(B, 5)
    gradients = example_gradients(model, squared_outputs, x)
    engine = PerExampleGradients(model)
    clipping = FlatClipping(bound=1.0)
    found = engine_sum(engine, squared_outputs, x, clipping=clipping)
    assert relative_error(found, oracle(engine, clipping, gradients)) < 1e-5


def test_embedding_of_one_index_a_row() -> None:
    model = nn.Embedding(7, 4)
    x = ints(B)
    engine, clipping = PerExampleGradients(model), FlatClipping(bound=1.0)
    found = engine_sum(engine, squared_outputs, x, clipping=clipping)
    expected = oracle(engine, clipping, example_gradients(model, squared_outputs, x))
    assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_packed_sequences(kind: type[nn.RNNBase], sort: bool) -> None:
    """Outputs, last states and gradients of sequences of several lengths, in both directions."""
    torch.manual_seed(0)
    model = kind(4, 3, num_layers=2, bidirectional=True).double()
    lengths = torch.tensor([5, 4, 2, 2] if sort else [2, 5, 4, 2])
    x = torch.randn(4, 5, 4, dtype=torch.float64)

    def losses(model: nn.Module, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=sort)
        out, state = model(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        states = state if isinstance(state, tuple) else (state,)
        by_row = [padded.square().sum((1, 2)), *[s.sin().sum((0, 2)) for s in states]]
        return torch.stack(by_row).sum(0)

    engine, clipping = PerExampleGradients(model), FlatClipping(bound=1.0)
    found = engine_sum(engine, losses, x, lengths, clipping=clipping)
    expected = oracle(engine, clipping, example_gradients(model, losses, x, lengths))
    assert relative_error(found, expected) < 1e-10


def test_input_without_batch_is_refused() -> None:
    model = nn.Conv2d(3, 4, 3)
    engine = PerExampleGradients(model)
    with pytest.raises(InvalidArgument, match="4 dimensions"), engine.recording():
        model(torch.randn(3, 8, 8))
