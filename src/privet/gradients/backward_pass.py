"""The backward pass: a layer takes its norms as soon as the gradient of its output arrives.

Before that, the first time, the losses of some rows are sent back alone: a gradient that arrives at
other rows shows that rows influence each other. After it, no parameter may have got a gradient by
another way than through its own layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from privet.gradients.find_layers import ModelLayers
from privet.gradients.forward_pass import ForwardRecorder
from privet.gradients.kernel_choice import KernelChooser
from privet.gradients.layer_protocol import BackwardCall, LayerProblem, ParameterSlice
from privet.gradients.norms_and_sum import NormsAndSum
from privet.gradients.tape import ForwardCall, Tape
from privet.gradients.tied_parameters import sum_tied_calls

GroupSum = tuple[NormsAndSum, tuple[ParameterSlice, ...]]
"""Norms and sum of a group of handlers, and the parameters that they belong to."""


class BackwardPass:
    """Backward passes through a model; remembers which layers were checked to keep rows apart."""

    def __init__(
        self,
        layers: ModelLayers,
        recorder: ForwardRecorder,
        chooser: KernelChooser,
        *,
        float64_products: bool,
    ) -> None:
        self._layers, self._recorder, self._chooser = layers, recorder, chooser
        self._float64_products = float64_products
        self._checked: set[Any] = set()
        self._regrouped: set[int] = set()

    def run(
        self,
        tape: Tape,
        losses: Tensor,
        views: int,
        handle: Callable[[int, GroupSum], None],
        *,
        keep: bool = False,
    ) -> None:
        """Run it; `handle` gets the number of a layer and the norms and sum of a group of it.

        With `keep` the tape can be run once more.
        """
        if losses.requires_grad:
            self._check_independence(tape, losses, views)
        waiting: dict[int, list[tuple[ForwardCall, Tensor]]] = {}
        expected = Counter(self._layers.group_of(call.handler) for call in tape.calls)

        def finish(group: int) -> None:
            arrivals = waiting.pop(group)
            for call, _ in arrivals:
                call.check_unchanged()
            result = self._norms_and_sum(arrivals, len(losses), views)
            for call, _ in () if keep else arrivals:
                call.release()
            handle(self._layers.layer_by_group[group], result)

        test_owners = self._owners_test(tape, losses, views)

        def receive(call: ForwardCall, g: Tensor) -> None:
            test_owners(call, g)
            group = self._layers.group_of(call.handler)
            waiting.setdefault(group, []).append((call, g))
            if len(waiting[group]) == expected[group]:
                finish(group)

        tape.receive = receive
        if losses.requires_grad:
            upstream = torch.full_like(losses, 1.0 / views)
            inputs = [tape.anchor, *self._leaves.values()]
            with self._replaying(tape):
                direct = torch.autograd.grad(
                    losses, inputs, upstream, allow_unused=True, retain_graph=keep
                )[1:]
            self._refuse_outside_use([g is not None for g in direct])
        for group in list(waiting):  # some of whose calls do not reach the loss
            finish(group)
        if not keep:
            tape.calls.clear()

    @property
    def _leaves(self) -> Mapping[str, Tensor]:
        """What a pass sees as the parameters."""
        return self._layers.parameters

    def _must_check(self, wanted: bool) -> bool:
        return wanted

    def _norms_and_sum(
        self, arrivals: list[tuple[ForwardCall, Tensor]], rows: int, views: int
    ) -> GroupSum:
        calls = [
            (call.handler, self._backward_call(call, g, views * _parts(call, rows)))
            for call, g in arrivals
        ]
        if len(calls) > 1:
            return sum_tied_calls(calls)
        return self._chooser.run(*calls[0]), calls[0][0].targets

    def _backward_call(self, call: ForwardCall, g: Tensor, views: int) -> BackwardCall:
        """The call with its gradient, in float32 at least: norms are never in half precision.

        Rows that a model splits into several (windows, words) count as views of their example.
        """
        a, g, *statistics = map(_at_least_float32, (call.a, g.detach(), *call.statistics))
        return BackwardCall(a, g, views, tuple(statistics), self._float64_products)

    def _check_independence(self, tape: Tape, losses: Tensor, views: int) -> None:
        """The losses of the first half must not send gradients to other rows.

        Once for each handler and number of rows that it makes of one, and once for each way in
        which shared values met rows.
        """
        rows = losses.shape[0]
        handlers = {
            (id(call.handler), _parts(call, rows))
            for call in tape.calls
            if self._layers.has(call.handler)
        }
        new = (handlers | ({tuple(tape.events)} if tape.events else set())) - self._checked
        half = rows // views // 2 * views
        if not self._must_check(bool(new) and half > 0):
            return

        def receive(call: ForwardCall, g: Tensor) -> None:
            rest = g[half * _parts(call, rows) :]
            if bool((rest.isfinite() & (rest != 0)).any()):
                raise _influence(call)

        tape.receive = receive
        upstream = torch.zeros_like(losses)
        upstream[:half] = 1.0
        with self._replaying(tape):
            torch.autograd.grad(losses, tape.anchor, upstream, retain_graph=True, allow_unused=True)
        if half:
            self._checked |= new

    def _owners_test(
        self, tape: Tape, losses: Tensor, views: int
    ) -> Callable[[ForwardCall, Tensor], None]:
        """Make a test of each gradient: does a layer that regroups rows see them in their order?

        The rows of such a layer may have been picked by content, so one batch says nothing of the
        next, and every pass is tested. Each example's loss is sent back times a number s_i of its
        own; what arrives at a row of example i must then be s_i times what arrives without.
        """
        rows = len(losses)
        self._regrouped |= tape.regrouped
        self._regrouped |= {id(c.handler) for c in tape.calls if _parts(c, rows) != 1}
        regrouped = {id(c) for c in tape.calls if id(c.handler) in self._regrouped}
        if not regrouped or rows <= views or not losses.requires_grad:
            return lambda call, g: None
        found: dict[int, Tensor] = {}

        def keep(call: ForwardCall, g: Tensor) -> None:
            if id(call) in regrouped:
                found[id(call)] = g.detach().clone()

        tape.receive = keep
        # multiples of the golden ratio, modulo 1: all different, and neighbours far apart
        each = 1.0 + torch.arange(1, rows // views + 1, dtype=torch.float64) * 0.6180339887 % 1.0
        scales = each.repeat_interleave(views).to(losses.device, losses.dtype)
        with self._replaying(tape):
            torch.autograd.grad(
                losses, tape.anchor, scales / views, retain_graph=True, allow_unused=True
            )

        largest = 0.0

        def test(call: ForwardCall, g: Tensor) -> None:
            nonlocal largest
            if id(call) not in found:
                return
            mine = scales.to(g.dtype).repeat_interleave(_parts(call, rows))
            expected, scaled = g * mine.view(-1, *[1] * (g.dim() - 1)), found.pop(id(call))
            finite = expected.isfinite() & scaled.isfinite()
            off = float(torch.where(finite, scaled - expected, 0.0).abs().amax())
            size = float(torch.where(finite, expected, 0.0).abs().amax())
            largest = max(largest, size)
            # A row of somebody else's is off by s_i - s_j, tenths; rounding of bfloat16 by 2^-8.
            # What is left of gradients that cancel is rounding only: 1e-6 of others in float32.
            if off > max(0.02 * size, 1e-5 * largest):
                raise _influence(call)

        return test

    @contextmanager
    def _replaying(self, tape: Tape) -> Iterator[None]:
        """Checkpointed activations are computed again as they were: by the recorded layers."""
        tape.replaying = True
        with self._recorder.swap_forwards(self._layers, tape):
            yield
        tape.replaying = False

    def _refuse_outside_use(self, direct: list[bool]) -> None:
        """No parameter may reach the losses other than through a recorded layer."""
        for name, used in zip(self._layers.parameters, direct, strict=True):
            if used:
                raise LayerProblem(
                    name.rpartition(".")[0], f"parameter {name!r}",
                    "used outside of the layer it belongs to", "used by its own layer only",
                    "name the module that calls it in through_func=[...] ('' is the whole model)",
                )  # fmt: skip


def _at_least_float32(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _influence(call: ForwardCall) -> LayerProblem:
    return LayerProblem(
        call.handler.name, f"layer {call.handler.name!r}", "rows that influence each other",
        "in a model that treats every row (first dimension) by itself",
        "look for statistics over the batch, or a batch not in the first dimension",
    )  # fmt: skip


def _parts(call: ForwardCall, rows: int) -> int:
    """Into how many a model had split each row when it called a layer: windows, words."""
    return call.rows // rows if rows else 1
