"""Small networks as people write them in plain torch, with data and one loss a row for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.model_cases import Case, Problem

ROWS, WORDS, LENGTH, WIDTH = 12, 20, 7, 6


def words() -> Tensor:
    return torch.randint(0, WORDS, (ROWS, LENGTH))


def vectors() -> Tensor:
    return torch.randn(ROWS, WIDTH)


def sequences() -> Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH)


def pictures(channels: int = 3, side: int = 8) -> Tensor:
    return torch.randn(ROWS, channels, side, side)


def volumes() -> Tensor:
    return torch.randn(ROWS, 2, 4, 4, 4)


def signals() -> Tensor:
    return torch.randn(ROWS, 3, 12)


def squares(model: nn.Module, batch: Any) -> Tensor:
    """The mean square of whatever comes out (of the first thing, of a tuple), less the target."""
    out = model(batch.x)
    out = out[0] if isinstance(out, tuple) else out
    return (out.flatten(1) - batch.y[:, None]).square().mean(1)


class Lambda(nn.Module):
    """Layers by name, and a forward pass that is a function of them."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self._run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self._run(self, *inputs)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(0.3 * torch.randn(shape))


def _packed(m: Any, x: Tensor) -> Tensor:
    lengths = 2 + x[:, 0].detach().cpu() % (LENGTH - 2)
    packed = pack_padded_sequence(m.e(x), lengths, batch_first=True, enforce_sorted=False)
    out, state = m.rnn(packed)
    state = state[0] if isinstance(state, tuple) else state
    padded, _ = pad_packed_sequence(out, batch_first=True)
    return m.h(torch.cat([padded.sum(1), state[-1]], 1))


def _bag(m: Any, x: Tensor) -> Tensor:
    offsets = torch.arange(len(x), device=x.device) * x.shape[1]
    return m.h(m.b(x.reshape(-1), offsets))


def _batch_second(m: Any, x: Tensor) -> Tensor:
    out, _ = m.rnn(m.e(x.t()))  # torch's default: time first
    return m.h(out[-1])


def _lookup(m: Any, x: Tensor) -> Tensor:
    return m.h(m.e(x).mean(1))


def _recurrent(m: Any, x: Tensor) -> Tensor:
    return m.h(m.rnn(m.e(x))[0][:, -1])


def _cells(m: Any, x: Tensor) -> Tensor:
    state = None
    for t in range(x.shape[1]):
        state = m.cell(x[:, t], state)
    return m.h(state[0] if isinstance(state, tuple) else state)


def _attend(m: Any, x: Tensor) -> Tensor:
    return m.a(x, x, x, need_weights=False)[0]


def _encoder_causal(m: Any, x: Tensor) -> Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    return m.t(x, mask=mask, is_causal=True)


def _moe(m: Any, x: Tensor) -> Tensor:
    flat = x.reshape(-1, WIDTH)
    weights, chosen = m.gate(flat).softmax(-1).topk(2, -1)
    out = torch.zeros_like(flat)
    for k, expert in enumerate(m.experts):
        token, place = (chosen == k).nonzero(as_tuple=True)
        out.index_add_(0, token, expert(flat[token]) * weights[token, place, None])
    return out.view(x.shape)


def _soft_moe(m: Any, x: Tensor) -> Tensor:
    shares = m.gate(x).softmax(-1)
    return sum(shares[..., k, None] * expert(x) for k, expert in enumerate(m.experts))  # type: ignore[return-value]


def _tied(m: Any, x: Tensor) -> Tensor:
    return F.linear(torch.tanh(m.l(m.e(x))), m.e.weight)


def _layer_drop(m: Any, x: Tensor) -> Tensor:
    for layer in m.layers:
        if not (m.training and torch.rand([]) < 0.3):
            x = x + torch.tanh(layer(x))
    return x


class Residual(nn.Module):
    """A residual block with any normalisation."""

    def __init__(self, norm: Callable[[int], nn.Module], width: int = 6) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = norm(width), norm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x
        return F.relu(y)


def _resnet(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), Residual(norm), nn.MaxPool2d(2), Residual(norm),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2),
    )  # fmt: skip


class Views(nn.Module):
    """The MNIST example of Opacus in small: `.view` after convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, 1, padding=1), nn.Conv2d(4, 6, 3, 1)
        self.fc = nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 2)
        return self.fc(x.view(-1, 24))  # type: ignore[no-any-return]


class ScaledEmbedding(nn.Embedding):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2.0


class LearnedPositions(nn.Embedding):
    """One row for all, as in BART's decoder."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.arange(x.shape[1], device=x.device).unsqueeze(0))


class RelativeBias(nn.Module):
    """Called without a tensor, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.table = parameter(2 * LENGTH)

    def forward(self) -> Tensor:
        i = torch.arange(LENGTH)
        return self.table[i[:, None] - i[None] + LENGTH]


class Adapter(nn.Module):
    """LoRA by hand, on a frozen linear layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = parameter(2, base.in_features), parameter(base.out_features, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.t() @ self.b.t()  # type: ignore[no-any-return]


def _biased_attention(m: Any, x: Tensor) -> Tensor:
    x = m.l(x)
    return (x @ x.transpose(1, 2) + m.bias()).softmax(-1) @ x


def _windows(m: Any, x: Tensor) -> Tensor:
    n, c, s, _ = x.shape
    parts = x.view(n, c, 2, s // 2, 2, s // 2).permute(0, 2, 4, 3, 5, 1).reshape(n * 4, -1, c)
    return m.n(torch.relu(m.l(parts)) @ m.w).view(n, -1)


def _unet(m: Any, x: Tensor) -> Tensor:
    a = torch.relu(m.down1(x))
    b = torch.relu(m.down2(F.max_pool2d(a, 2)))
    return m.out(torch.cat([m.up(b), a], 1))


def _caches(m: Any, x: Tensor) -> Tensor:
    cache: list[Tensor] = []
    for layer in m.layers:
        x = layer(x, cache)
    return x


class Cached(nn.Module):
    """Appends to a list that it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.w = parameter(WIDTH)

    def forward(self, x: Tensor, cache: list[Tensor]) -> Tensor:
        cache.append(x)
        return x + torch.stack(cache).mean(0) * self.w


class ReturnsMore(nn.Module):
    """A tensor and things that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.w = parameter(WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, None, int, dict[str, Any]]:
        return x * self.w, None, 7, {"mask": None, "square": x.square()}


class MixerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens, self.channels = nn.Linear(LENGTH, LENGTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))  # type: ignore[no-any-return]


class TinyViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.cls, self.pos = parameter(1, 1, 8), parameter(1, 5, 8)
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), 2,
            enable_nested_tensor=False,
        )  # fmt: skip
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.blocks(x)[:, 0])  # type: ignore[no-any-return]


def _two_towers() -> nn.Module:
    def run(m: Any, x: Tensor) -> Any:
        u, v = m.a(x), m.b(x)
        return u * v, m.scale.exp() * u @ v.t()  # rows of others, which the loss does not use

    return Lambda(run, a=nn.Linear(6, 4), b=nn.Linear(6, 4), scale=parameter())


def _frozen_scale() -> nn.Module:
    model: Any = _two_towers()
    model.scale.requires_grad_(False)
    return model  # type: ignore[no-any-return]


def _seq2seq(m: Any, x: Tensor) -> Tensor:
    h = m.e(x)
    return m.h(m.t(h, h))


def _embed_and(layer: nn.Module, run: Callable[..., Tensor], out: int, **more: Any) -> nn.Module:
    return Lambda(run, e=nn.Embedding(WORDS, WIDTH, **more), rnn=layer, h=nn.Linear(out, 2))


def _table(rows: Callable[[], Tensor], **models: Callable[[], nn.Module]) -> Iterator[Case]:
    for name, make in models.items():

        def build(make: Callable[[], nn.Module] = make) -> Problem:
            return Problem(make(), (rows(), torch.linspace(-1.0, 1.0, ROWS)), squares)

        yield Case(f"torch/{name}", build)


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _table(
        vectors,
        mlp=lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)),
        mlp_layer_norm=lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2)),
        mlp_group_norm=lambda: nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Linear(8, 2)),
        mlp_batch_norm=lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
        bilinear=lambda: Lambda(lambda m, x: m.b(x, x), b=nn.Bilinear(6, 6, 2)),
        prelu=lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 2)),
        weight_norm=lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4))),
        spectral_norm=lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 4)).eval()),
        orthogonal=lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(6, 4))),
        shared_layer=lambda: _repeated(nn.Linear(6, 6)),
        own_parameter=lambda: Lambda(lambda m, x: x @ m.w + m.b, w=parameter(6, 2), b=parameter(2)),
        parameter_list=lambda: Lambda(
            lambda m, x: x @ m.w[0] @ m.w[1],
            w=nn.ParameterList([parameter(6, 4), parameter(4, 2)]),
        ),
        returns_more=lambda: nn.Sequential(nn.Linear(6, 6), ReturnsMore()),
        two_towers=_two_towers,
        frozen_scale=_frozen_scale,
        lora_by_hand=lambda: nn.Sequential(Adapter(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 2)),
        bare_weight=lambda: Lambda(
            lambda m, x: F.linear(x, m.l.weight.tanh(), m.l.bias), l=nn.Linear(6, 2)
        ),
        glu=lambda: nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 2)),
        frozen_body=lambda: nn.Sequential(
            nn.Linear(6, 8).requires_grad_(False), nn.Tanh(), nn.Linear(8, 2)
        ),
        rms_norm=lambda: nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8), nn.Linear(8, 2)),
    )
    yield from _table(
        words,
        embedding=lambda: Lambda(_lookup, e=nn.Embedding(WORDS, 6), h=nn.Linear(6, 2)),
        embedding_padding=lambda: Lambda(
            _lookup, e=nn.Embedding(WORDS, 6, padding_idx=0), h=nn.Linear(6, 2)
        ),
        embedding_subclass=lambda: Lambda(
            _lookup, e=ScaledEmbedding(WORDS, 6, padding_idx=1), h=nn.Linear(6, 2)
        ),
        embedding_max_norm=lambda: Lambda(
            _lookup, e=nn.Embedding(WORDS, 6, max_norm=1.0), h=nn.Linear(6, 2)
        ),
        positions_for_all=lambda: Lambda(
            lambda m, x: m.h((m.e(x) + m.p(x)).tanh()),
            e=nn.Embedding(WORDS, 6), p=LearnedPositions(9, 6), h=nn.Linear(6, 2),
        ),
        positions_looked_up=lambda: Lambda(
            lambda m, x: m.h((m.e(x) + m.p(torch.arange(LENGTH))).tanh()),
            e=nn.Embedding(WORDS, 6), p=nn.Embedding(9, 6), h=nn.Linear(6, 2),
        ),
        bag_sum=lambda: nn.Sequential(nn.EmbeddingBag(WORDS, 6, mode="sum"), nn.Linear(6, 2)),
        bag_mean_padding=lambda: nn.Sequential(
            nn.EmbeddingBag(WORDS, 6, mode="mean", padding_idx=0), nn.Linear(6, 2)
        ),
        bag_max=lambda: nn.Sequential(nn.EmbeddingBag(WORDS, 6, mode="max"), nn.Linear(6, 2)),
        bag_offsets=lambda: Lambda(_bag, b=nn.EmbeddingBag(WORDS, 6), h=nn.Linear(6, 2)),
        lstm=lambda: _embed_and(nn.LSTM(6, 5, batch_first=True), _recurrent, 5),
        lstm_projection=lambda: _embed_and(
            nn.LSTM(6, 5, proj_size=3, batch_first=True), _recurrent, 3
        ),
        lstm_two_ways=lambda: _embed_and(
            nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True, dropout=0.2), _recurrent, 10
        ),
        gru=lambda: _embed_and(nn.GRU(6, 5, batch_first=True), _recurrent, 5),
        rnn_relu=lambda: _embed_and(
            nn.RNN(6, 5, nonlinearity="relu", batch_first=True), _recurrent, 5
        ),
        lstm_batch_second=lambda: _embed_and(nn.LSTM(6, 5), _batch_second, 5),
        gru_batch_second=lambda: _embed_and(nn.GRU(6, 5), _batch_second, 5),
        lstm_packed=lambda: _embed_and(nn.LSTM(6, 5, batch_first=True), _packed, 10),
        gru_packed=lambda: _embed_and(
            nn.GRU(6, 5, batch_first=True, bidirectional=True), _packed, 15, padding_idx=0
        ),
        tied_head=lambda: Lambda(_tied, e=nn.Embedding(WORDS, 6), l=nn.Linear(6, 6)),
        text_cnn=lambda: Lambda(
            lambda m, x: m.h(torch.relu(m.c(m.e(x).transpose(1, 2))).amax(2)),
            e=nn.Embedding(WORDS, 6), c=nn.Conv1d(6, 5, 3), h=nn.Linear(5, 2),
        ),
        transformer=lambda: Lambda(
            _seq2seq, e=nn.Embedding(WORDS, 6), h=nn.Linear(6, 2),
            t=nn.Transformer(6, 2, 1, 1, 8, batch_first=True),
        ),
    )  # fmt: skip
    yield from _table(
        sequences,
        lstm_cell=lambda: Lambda(_cells, cell=nn.LSTMCell(6, 5), h=nn.Linear(5, 2)),
        gru_cell=lambda: Lambda(_cells, cell=nn.GRUCell(6, 5), h=nn.Linear(5, 2)),
        attention=lambda: Lambda(_attend, a=nn.MultiheadAttention(6, 2, batch_first=True)),
        attention_bias_kv=lambda: Lambda(
            _attend, a=nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True)
        ),
        attention_zero=lambda: Lambda(
            _attend, a=nn.MultiheadAttention(6, 2, batch_first=True, add_zero_attn=True)
        ),
        attention_batch_second=lambda: Lambda(
            lambda m, x: m.a(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1),
            a=nn.MultiheadAttention(6, 2),
        ),
        linear_batch_second=lambda: Lambda(
            lambda m, x: m.n(torch.relu(m.l(x.transpose(0, 1)))).transpose(0, 1),
            l=nn.Linear(6, 6), n=nn.LayerNorm(6),
        ),
        encoder=lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
        encoder_batch_second=lambda: Lambda(
            lambda m, x: m.t(x.transpose(0, 1)).transpose(0, 1),
            t=nn.TransformerEncoderLayer(6, 2, 8),
        ),
        encoder_causal=lambda: Lambda(
            _encoder_causal,
            t=nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2),
        ),
        relative_bias=lambda: Lambda(_biased_attention, l=nn.Linear(6, 6), bias=RelativeBias()),
        experts=lambda: Lambda(
            _moe, gate=nn.Linear(6, 3),
            experts=nn.ModuleList([nn.Linear(6, 6) for _ in range(3)]),
        ),
        soft_experts=lambda: Lambda(
            _soft_moe, gate=nn.Linear(6, 3),
            experts=nn.ModuleList([nn.Linear(6, 6) for _ in range(3)]),
        ),
        layer_drop=lambda: Lambda(
            _layer_drop, layers=nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        ),
        rows_flattened=lambda: Lambda(
            lambda m, x: m.l(m.n(x.reshape(-1, 6))).view(x.shape),
            l=nn.Linear(6, 6), n=nn.LayerNorm(6),
        ),
        caches=lambda: Lambda(_caches, layers=nn.ModuleList([Cached(), Cached()])),
        mixer=lambda: nn.Sequential(MixerBlock(), MixerBlock(), nn.Flatten(), nn.Linear(42, 2)),
        group_norm_transposed=lambda: Lambda(
            lambda m, x: m.n(x.transpose(1, 2)), n=nn.GroupNorm(2, 6)
        ),
        instance_norm_transposed=lambda: Lambda(
            lambda m, x: m.n(x.transpose(1, 2)), n=nn.InstanceNorm1d(6, affine=True)
        ),
        conv_transposed_input=lambda: Lambda(
            lambda m, x: m.c(x.transpose(1, 2)), c=nn.Conv1d(6, 4, 3, padding="same")
        ),
    )  # fmt: skip
    yield from _table(
        pictures,
        cnn=lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)),
        cnn_strided=lambda: nn.Conv2d(3, 4, 3, stride=2, dilation=2, padding=2),
        cnn_grouped=lambda: nn.Conv2d(3, 6, 3, groups=3, padding="same"),
        cnn_reflect=lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        separable=lambda: nn.Sequential(
            nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 6, 1), nn.GroupNorm(2, 6), nn.SiLU()
        ),
        transposed=lambda: nn.Sequential(nn.Conv2d(3, 4, 2, 2), nn.ConvTranspose2d(4, 3, 2, 2)),
        resnet_group=lambda: _resnet(lambda c: nn.GroupNorm(2, c)),
        resnet_instance=lambda: _resnet(lambda c: nn.InstanceNorm2d(c, affine=True)),
        resnet_batch=lambda: _resnet(nn.BatchNorm2d),
        resnet_channels_norm=lambda: _resnet(lambda c: nn.GroupNorm(1, c)),
        windows=lambda: Lambda(
            _windows, l=nn.Linear(3, 5), n=nn.LayerNorm(5), w=parameter(5, 5)
        ),
        unet=lambda: Lambda(
            _unet, down1=nn.Conv2d(3, 4, 3, padding=1), down2=nn.Conv2d(4, 6, 3, padding=1),
            up=nn.ConvTranspose2d(6, 4, 2, 2), out=nn.Conv2d(8, 2, 1),
        ),
        vit=TinyViT,
        lazy=lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(2)),
        squeeze_excite=lambda: Lambda(
            lambda m, x: m.c(x) * m.s(m.c(x).mean((2, 3))).sigmoid()[:, :, None, None],
            c=nn.Conv2d(3, 4, 3), s=nn.Linear(4, 4),
        ),
        layer_scale=lambda: Lambda(
            lambda m, x: x + m.g * m.c(x), c=nn.Conv2d(3, 3, 3, padding=1), g=parameter(3, 1, 1)
        ),
        permuted_norm=lambda: Lambda(
            lambda m, x: m.l(m.n(m.c(x).permute(0, 2, 3, 1))),
            c=nn.Conv2d(3, 4, 4, 4), n=nn.LayerNorm(4), l=nn.Linear(4, 2),
        ),
    )  # fmt: skip
    yield from _table(lambda: pictures(1), views=Views)
    yield from _table(
        signals,
        conv1d=lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4), nn.Tanh()),
        conv1d_transposed=lambda: nn.ConvTranspose1d(3, 4, 3, stride=2, output_padding=1),
        instance_norm=lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.InstanceNorm1d(4, affine=True)),
        instance_norm_running=lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3), nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
        ),
    )
    yield from _table(
        volumes,
        conv3d=lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh()),
        conv3d_transposed=lambda: nn.ConvTranspose3d(2, 3, 2, 2),
    )


def _repeated(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.Tanh(), layer)
