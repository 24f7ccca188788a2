"""The backward pass over a recorded forward pass: every site is measured when its gradient comes.

Before that, the first time, the losses of some rows are sent back alone: a gradient that arrives at
other rows shows that rows influence each other. After it, no parameter may have got a gradient by
another way than through its own layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from privet.errors import InvalidArgument
from privet.nets.per_example.choice import Chooser
from privet.nets.per_example.discover import Plan
from privet.nets.per_example.joint import measure_together
from privet.nets.per_example.measured import Captured, Measured, Target
from privet.nets.per_example.recording import Recorder
from privet.nets.per_example.tape import Tape, Use

Part = tuple[Measured, tuple[Target, ...]]
"""What was measured of some parameters, and which they are."""


class BackwardPass:
    """Backward passes of a model's plan; remembers which sites were seen to keep rows apart."""

    def __init__(self, plan: Plan, recorder: Recorder, chooser: Chooser, *, wide: bool) -> None:
        self._plan, self._recorder, self._chooser, self._wide = plan, recorder, chooser, wide
        self._checked: set[Any] = set()

    def run(
        self,
        tape: Tape,
        losses: Tensor,
        views: int,
        found: Callable[[int, Part], None],
        *,
        keep: bool = False,
    ) -> None:
        """Run it; `found` gets what is measured, and the index of its layer.

        With `keep` the tape can be run once more.
        """
        if losses.requires_grad:
            self._check_independence(tape, losses, views)
        waiting: dict[int, list[tuple[Use, Tensor]]] = {}
        expected: dict[int, int] = {}
        for use in tape.uses:
            component = self._plan.component(use.site)
            expected[component] = expected.get(component, 0) + 1

        def finish(component: int) -> None:
            arrivals = waiting.pop(component)
            for use, _ in arrivals:
                use.check_unchanged()
            part = self._measure(arrivals, views)
            for use, _ in () if keep else arrivals:
                use.release()
            found(self._plan.layer_by_component[component], part)

        def arrived(use: Use, g: Tensor) -> None:
            component = self._plan.component(use.site)
            waiting.setdefault(component, []).append((use, g))
            if len(waiting[component]) == expected[component]:
                finish(component)

        tape.arrived = arrived
        if losses.requires_grad:
            upstream = torch.full_like(losses, 1.0 / views)
            inputs = [tape.anchor, *self._leaves.values()]
            with self._replaying(tape):
                direct = torch.autograd.grad(
                    losses, inputs, upstream, allow_unused=True, retain_graph=keep
                )[1:]
            self._refuse_outside_use([g is not None for g in direct])
        for component in list(waiting):  # sites some of whose uses do not reach the loss
            finish(component)
        if not keep:
            tape.uses.clear()

    @property
    def _leaves(self) -> Mapping[str, Tensor]:
        """What a pass sees as the parameters."""
        return self._plan.parameters

    def _must_check(self, wanted: bool) -> bool:
        return wanted

    def _measure(self, arrivals: list[tuple[Use, Tensor]], views: int) -> Part:
        seen = [(u.site, _captured(u, g, views, self._wide)) for u, g in arrivals]
        if len(seen) > 1:
            return measure_together(seen)
        return self._chooser.measure(*seen[0]), seen[0][0].targets

    def _check_independence(self, tape: Tape, losses: Tensor, views: int) -> None:
        """The losses of the first half must not send gradients to other rows.

        Once for each site, and once for each way in which shared values met rows.
        """
        sites = {id(use.site) for use in tape.uses if self._plan.knows(use.site)}
        new = (sites | ({tuple(tape.events)} if tape.events else set())) - self._checked
        rows = losses.shape[0]
        half = rows // views // 2 * views
        if not self._must_check(bool(new) and half > 0):
            return

        def arrived(use: Use, g: Tensor) -> None:
            rest = g[half:]
            if bool((rest.isfinite() & (rest != 0)).any()):
                raise InvalidArgument(
                    f"layer {use.site.name!r}", "rows that influence each other",
                    "in a model that treats every row (first dimension) by itself",
                    "look for statistics over the batch, or a batch not in the first dimension",
                )  # fmt: skip

        tape.arrived = arrived
        upstream = torch.zeros_like(losses)
        upstream[:half] = 1.0
        with self._replaying(tape):
            torch.autograd.grad(losses, tape.anchor, upstream, retain_graph=True, allow_unused=True)
        if half:
            self._checked |= new

    @contextmanager
    def _replaying(self, tape: Tape) -> Iterator[None]:
        """Checkpointed activations are computed again as they were: by the recorded layers."""
        tape.replaying = True
        with self._recorder.swapped(self._plan, tape):
            yield
        tape.replaying = False

    def _refuse_outside_use(self, direct: list[bool]) -> None:
        """No parameter may reach the losses other than through a recorded layer."""
        for name, used in zip(self._plan.parameters, direct, strict=True):
            if used:
                raise InvalidArgument(
                    f"parameter {name!r}", "used outside of the layer it belongs to",
                    "used by its own layer only",
                    "name the module that uses it in through_func=[...] ('' is the whole model)",
                )  # fmt: skip


def _captured(use: Use, g: Tensor, views: int, wide: bool) -> Captured:
    """What a site saw, in float32 at least, so that norms are never taken in half precision."""
    statistics = tuple(map(_at_least_float32, use.statistics))
    return Captured(
        _at_least_float32(use.a), _at_least_float32(g.detach()), views, statistics, wide
    )


def _at_least_float32(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t
