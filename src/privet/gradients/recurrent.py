"""RNN, GRU and LSTM, unrolled: every gate's affine map is a linear layer over time.

The input part a_t W_ih^T is one product over all times. The recurrent part h_(t-1) W_hh^T happens
step by step; its gradients over time are collected by one tapped tensor of zeros that is added in.
Norms and sums are those of `linear`. Cost: as of two linear layers over time, one launch a step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from privet.gradients.layer_protocol import RecordedLayer, constant, require_dimensions
from privet.gradients.linear import LinearHandler
from privet.gradients.tape import Tape


def is_supported_recurrent(module: nn.Module) -> bool:
    """Whether it is an RNN, GRU or LSTM as torch has it."""
    kind = next((k for k in (nn.RNN, nn.GRU, nn.LSTM) if isinstance(module, k)), None)
    if kind is None or type(module).forward is not kind.forward or module._modules:
        return False
    return all(name.startswith(("weight_", "bias_")) for name in module._parameters)


def record_recurrent(name: str, module: Any) -> RecordedLayer:
    """The recorded form of an nn.RNN, nn.GRU or nn.LSTM."""
    directions = 2 if module.bidirectional else 1
    cells = [
        [_Cell(name, module, layer, "_reverse" if d else "") for d in range(directions)]
        for layer in range(module.num_layers)
    ]
    is_lstm = isinstance(module, nn.LSTM)

    def forward(tape: Tape, input: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            x, lengths = pad_packed_sequence(input, batch_first=True)
            y, final = run(tape, x, hx, lengths.to(x.device))
            return _pack_like(input, y, lengths), final
        require_dimensions(name, input, 3)
        y, final = run(tape, input if module.batch_first else input.transpose(0, 1), hx, None)
        return y if module.batch_first else y.transpose(0, 1), final

    def run(tape: Tape, x: Tensor, hx: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        states = _initial_states(module, x, hx, is_lstm)
        last: list[tuple[Tensor, ...]] = []
        for layer, pair in enumerate(cells):
            outputs = []
            for d, cell in enumerate(pair):
                y, state = cell.run(
                    tape, _reverse(x, lengths) if d else x, states[len(last)], lengths
                )
                outputs.append(_reverse(y, lengths) if d else y)
                last.append(state)
            x = torch.cat(outputs, 2)
            if module.dropout and layer + 1 < len(cells):
                x = F.dropout(x, module.dropout, module.training)
        final = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return x, final if is_lstm else final[0]

    return RecordedLayer.of(forward, *[s for pair in cells for cell in pair for s in cell.handlers])


def _reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Time backwards, each sequence within its own length; what follows it stays where it is."""
    if lengths is None:
        return x.flip(1)
    t = torch.arange(x.shape[1], device=x.device)
    back = lengths[:, None] - 1 - t
    return x.gather(1, torch.where(back >= 0, back, t).unsqueeze(2).expand_as(x))


def _pack_like(packed: PackedSequence, y: Tensor, lengths: Tensor) -> PackedSequence:
    """Outputs in the order of a packed input."""
    order = packed.sorted_indices
    if order is not None:
        y, lengths = y.index_select(0, order), lengths[order.cpu()]
    data = pack_padded_sequence(y, lengths, batch_first=True).data
    return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)


def _initial_states(module: Any, x: Tensor, hx: Any, is_lstm: bool) -> list[tuple[Tensor, ...]]:
    """The state every layer and direction starts from."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    if hx is not None:
        parts = hx if is_lstm else (hx,)
        return [tuple(part[i] for part in parts) for i in range(count)]
    h = x.new_zeros(x.shape[0], module.proj_size or module.hidden_size)
    c = x.new_zeros(x.shape[0], module.hidden_size)
    return [(h, c) if is_lstm else (h,)] * count


class _Cell:
    """One layer of a recurrent module in one direction."""

    def __init__(self, name: str, module: Any, layer: int, suffix: str) -> None:
        self.module = module
        names = [f"{part}_l{layer}{suffix}" for part in ("weight_ih", "weight_hh", "weight_hr")]
        biases = [f"{part}_l{layer}{suffix}" for part in ("bias_ih", "bias_hh")]
        self.names = [names[0], biases[0], names[1], biases[1], names[2]]
        self.input = self._handler(name, names[0], biases[0] if module.bias else None)
        self.hidden = self._handler(name, names[1], biases[1] if module.bias else None)
        self.projection = self._handler(name, names[2], None) if module.proj_size else None
        self.handlers = (self.input, self.hidden, self.projection)

    def _handler(self, name: str, weight: str, bias: str | None) -> LinearHandler | None:
        b = getattr(self.module, bias) if bias else None
        return LinearHandler.of(name, getattr(self.module, weight), b)

    def _parameters(self) -> list[Tensor | None]:
        own = self.module._parameters
        return [constant(own.get(name)) for name in self.names]

    def run(
        self, tape: Tape, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs (rows, time, hidden) and the last state, of each sequence at its own length."""
        w_ih, b_ih, w_hh, b_hh, w_hr = self._parameters()
        assert w_ih is not None
        from_input = tape.product(x, w_ih, b_ih, self.input)
        collect = _Collector(tape, self.hidden, from_input)
        project = None
        if w_hr is not None:
            project = _Collector(tape, self.projection, x.new_zeros(*x.shape[:2], w_hr.shape[0]))
        states = []
        for t, u in enumerate(from_input.unbind(1)):
            v = collect.linear(t, state[0], w_hh, b_hh)
            state = self._step(u, v, state)
            if project is not None:
                state = (project.linear(t, state[0], w_hr, None), *state[1:])
            states.append(state)
        collect.close()
        if project is not None:
            project.close()
        outputs = torch.stack([h for h, *_ in states], 1)
        if lengths is not None:
            each = torch.arange(len(x), device=x.device), lengths - 1
            state = tuple(torch.stack(parts, 1)[each] for parts in zip(*states, strict=True))
        return outputs, state

    def _step(self, u: Tensor, v: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The next state from the input part u and the recurrent part v of the gates."""
        if isinstance(self.module, nn.LSTM):
            i, f, g, o = (u + v).chunk(4, 1)
            c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c
        if isinstance(self.module, nn.GRU):
            (r_u, z_u, n_u), (r_v, z_v, n_v) = u.chunk(3, 1), v.chunk(3, 1)
            r, z = (r_u + r_v).sigmoid(), (z_u + z_v).sigmoid()
            n = (n_u + r * n_v).tanh()
            return (n + z * (state[0] - n),)
        activate = torch.relu if self.module.nonlinearity == "relu" else torch.tanh
        return (activate(u + v),)


class _Collector:
    """A linear map applied once a time step, recorded as one use over all of time."""

    def __init__(self, tape: Tape, handler: LinearHandler | None, like: Tensor) -> None:
        zeros = torch.zeros_like(like, requires_grad=False)
        self.taps = tape.tap(zeros, handler, zeros).unbind(1)
        self.call = tape.calls[-1] if handler is not None and torch.is_grad_enabled() else None
        self.inputs: list[Tensor] = []

    def linear(self, t: int, h: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """h W^T + b at time t."""
        assert weight is not None
        if self.call is not None:
            self.inputs.append(h.detach())
        return F.linear(h, weight, bias) + self.taps[t]

    def close(self) -> None:
        """Hand the inputs over to the tape."""
        if self.call is not None and self.inputs:
            self.call.a = torch.stack(self.inputs, 1)
            self.call.version = self.call.a._version
