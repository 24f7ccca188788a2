"""Per-example gradients of a model that no process holds whole (FSDP2).

Two backward passes over one forward. The first takes the norms of this process's examples, layer by
layer, and keeps nothing else; from them follow the weights. The second makes each layer's weighted
sum, adds it up over the processes, and keeps this process's rows of it. So the largest thing
that a process holds of a model besides its own rows is one layer, for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument, PrivetError
from privet.nets.per_example.backward import BackwardPass, Part
from privet.nets.per_example.choice import Chooser
from privet.nets.per_example.clipped_sum import ClippedSum
from privet.nets.per_example.clipping import Clipping
from privet.nets.per_example.discover import Plan
from privet.nets.per_example.engine import PerExampleGradients
from privet.nets.per_example.measured import Measured, Target
from privet.nets.per_example.recording import Recorder
from privet.nets.per_example.shards import Shards, local_of
from privet.nets.per_example.tape import Use


@final
class ShardedGradients(PerExampleGradients):
    """`PerExampleGradients` whose sums lie in parts in all processes, like the model.

    Every process must make the same passes, each with its own rows, or with none. Kernels are
    chosen by shapes alone, so that both backward passes give the same numbers; that is checked.

    **Guarantee**: as of `ClippedSum`, for the parts of all processes together.
    """

    def __init__(self, model: nn.Module, **settings: Any) -> None:
        self.shards = Shards(model)
        super().__init__(model, **{**settings, "kernel_choice": "cost-model"})

    def _discover(self) -> None:
        super()._discover()
        self._backward = _ShardedPass(
            self._plan, self._recorder, self._chooser, wide=self.wide, shards=self.shards
        )
        inside = {id(m) for m in self.shards.modules}
        for module, _ in self._plan.modules:
            if any(id(m) in inside for m in module.modules() if m is not module):
                raise InvalidArgument(
                    "model", f"fully_shard inside of a {type(module).__name__}",
                    "fully_shard around layers that the engine takes as one",
                )  # fmt: skip

    @property
    def _layouts(self) -> list[tuple[int, torch.memory_format]]:
        return []  # FSDP2 needs its own layout

    def zeros(self, *, capacity: int = 2**24) -> ClippedSum:
        """An empty sum: this process's part."""
        mine: Any = {name: local_of(p) for name, p in self._plan.parameters.items()}
        return ClippedSum.zeros(mine, capacity=capacity)

    @contextmanager
    def recording(self, rows: int | None = None) -> Iterator[None]:
        self.shards.reshard()
        with super().recording(rows):
            yield

    def clipped_sum(
        self,
        losses: Tensor,
        *,
        clipping: Clipping | None = None,
        views: int = 1,
        into: ClippedSum | None = None,
    ) -> ClippedSum:
        """This process's part of the clipped sum of everybody's losses; it may bring none."""
        clipping = clipping if clipping is not None else self.clipping
        views = _check.count("views", views)
        tape = self._take_tape(losses, views)
        total = self.zeros() if into is None else into
        total.sensitivity = max(total.sensitivity, clipping.sensitivity(self.layers))
        examples = losses.shape[0] // views
        squares = torch.zeros(len(self.layers), examples, dtype=torch.float64, device=self.home)
        again = torch.zeros_like(squares)

        def measure(layer: int, part: Part) -> None:
            squares[layer] += part[0].squared_norms

        self._backward.run(tape, losses, views, measure, keep=True)
        weights, norms, bad = self._weights(squares, losses.detach(), clipping)

        def put(layer: int, part: Part) -> None:
            again[layer] += part[0].squared_norms
            self._put(total, part, weights[layer], bad)

        self._backward.run(tape, losses, views, put)
        self.shards.check_order()
        same = (squares == again) | (squares.isnan() & again.isnan())
        if self.shards.any(not bool(same.all())):
            raise PrivetError(
                "two backward passes over the same losses gave different gradients; a spread model "
                "needs operations that repeat (torch.use_deterministic_algorithms)"
            )
        total.examples_unprotected += examples
        total.non_finite_unprotected += 0 if bad is None else len(bad)
        total.norms.append(norms)
        return total

    def _put(self, total: ClippedSum, part: Part, weights: Tensor, bad: Tensor | None) -> None:
        measured, targets = part
        rooms = {id(t.parameter): self.shards.room(t.parameter.shape) for t in targets}
        into = [t.of(rooms[id(t.parameter)][0]) for t in targets]
        measured.put(weights, bad, into, [False] * len(into))
        for key, (_, memory) in rooms.items():
            name = self._plan.names[key]
            mine, outdated = total.claim(name)
            part_of_sum = self.shards.sum_of_rows(name, memory, mine)
            _ = mine.copy_(part_of_sum) if outdated else mine.add_(part_of_sum)


@final
class _ShardedPass(BackwardPass):
    """Every process makes the same passes, also one whose batch is empty."""

    def __init__(
        self, plan: Plan, recorder: Recorder, chooser: Chooser, *, wide: bool, shards: Shards
    ) -> None:
        super().__init__(plan, recorder, chooser, wide=wide)
        self._shards = shards

    @property
    def _leaves(self) -> dict[str, Tensor]:
        return {name: self._shards.gathered[name] for name in self._plan.parameters}

    def _must_check(self, wanted: bool) -> bool:
        return self._shards.any(wanted)

    def _measure(self, arrivals: list[tuple[Use, Tensor]], views: int) -> Part:
        if arrivals[0][0].rows:
            return super()._measure(arrivals, views)
        targets: dict[Any, Target] = {
            (id(t.parameter), str(t.rows)): t for use, _ in arrivals for t in use.site.targets
        }
        none = torch.zeros(0, dtype=torch.float64, device=arrivals[0][1].device)
        return Measured(none, lambda weights, bad, into: None), tuple(targets.values())
