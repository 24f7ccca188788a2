"""Per-example gradients of a model that FSDP2 (`fully_shard`) shards: no process holds it whole.

Each process keeps a block of rows of every parameter. FSDP2 gathers the parameters of a module
before its forward and its backward pass and lets go of them after it; that stays as it is.

Two backward passes over one forward. The first takes the norms of this process's examples, layer by
layer, and keeps nothing else; from them follow the weights. The second makes each layer's weighted
sum, adds it up over the processes, and keeps this process's rows of it. So the largest thing
that a process holds of a model besides its own rows is one layer, for a moment.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument, PrivetError
from privet.gradients.backward_pass import BackwardPass, GroupSum
from privet.gradients.clipped_sum import ClippedSum
from privet.gradients.clipping_rules import Clipping
from privet.gradients.device import is_sharded_tensor, local_part
from privet.gradients.engine import PerExampleGradients
from privet.gradients.find_layers import ModelLayers
from privet.gradients.forward_pass import ForwardRecorder
from privet.gradients.kernel_choice import KernelChooser
from privet.gradients.layer_protocol import ParameterSlice
from privet.gradients.norms_and_sum import NormsAndSum
from privet.gradients.tape import ForwardCall


@final
class Shards:
    """The parts of a model that this process holds, and sums over all processes by part."""

    def __init__(self, model: nn.Module) -> None:
        from torch.distributed.fsdp import FSDPModule

        self.modules = [m for m in model.modules() if isinstance(m, FSDPModule)]
        self.reshard()
        spread = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for name, p in spread.items():
            _check_rows(name, p)
        mesh = next(iter(spread.values())).device_mesh  # type: ignore[attr-defined]
        self.group, self.world, self.rank = mesh.get_group(), mesh.size(), mesh.get_local_rank()
        self.gathered = self._gathered(model, set(spread))
        self._order: list[str] = []

    def reshard(self) -> None:
        """Let go of gathered parameters; FSDP2 gathers them again where they are needed."""
        for module in self.modules:
            module.reshard()

    def _gathered(self, model: nn.Module, names: set[str]) -> dict[str, Tensor]:
        """The parameters as a pass sees them, by name; without memory while not gathered."""
        found: dict[str, Tensor] = {}
        for module in self.modules:
            module.unshard()
            found |= {
                n: p for n, p in model.named_parameters() if n in names and not is_sharded_tensor(p)
            }
            module.reshard()
        if set(found) != names:
            raise InvalidArgument(
                "model", sorted(names - set(found)), "parameters that fully_shard gathers"
            )
        return found

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; all must call this."""
        flags = torch.tensor([int(flag)], device=self._device)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self.group)
        return bool(flags)

    def total(self, value: Tensor) -> Tensor:
        """The sum of a small tensor over the processes."""
        value = value.to(self._device, copy=True)
        dist.all_reduce(value, group=self.group)
        return value

    def room(self, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Zeros of a parameter's shape, and the memory they lie in: equal blocks of rows."""
        rows = -(-shape[0] // self.world)
        size = rows * shape[1:].numel()
        memory = torch.zeros(self.world, size, dtype=torch.float64, device=self._device)
        return memory.view(-1)[: shape.numel()].view(shape), memory

    def sum_of_rows(self, name: str, memory: Tensor, like: Tensor) -> Tensor:
        """This process's rows of the sum over processes of what lies in `memory` (see `room`).

        Float64 in any order, each term rounded once a process at most: `EngineSummation` counts it.
        """
        self._order.append(name)
        mine = torch.empty_like(memory[0])
        dist.reduce_scatter(mine, list(memory.unbind(0)), group=self.group)
        return mine[: like.numel()].view(like.shape)

    def check_order(self) -> None:
        """Refuse processes that summed up in different orders: layers would have been mixed up."""
        checksum = zlib.crc32("\n".join(self._order).encode())
        self._order.clear()
        extremes = torch.tensor([checksum, -checksum], dtype=torch.int64, device=self._device)
        dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=self.group)
        if int(extremes[0]) != -int(extremes[1]):
            raise PrivetError(
                "the processes went through the layers in different orders; a sharded model must "
                "take the same way whatever its rows are"
            )

    def coordinates(self, parameters: dict[str, nn.Parameter]) -> list[tuple[int, int]]:
        """Which numbers of the whole flat model this process holds: [start, stop) each."""
        found, begin = [], 0
        for p in parameters.values():
            rows, width = -(-p.shape[0] // self.world), p.shape[1:].numel()
            start = begin + min(self.rank * rows, p.shape[0]) * width
            found.append((start, start + local_part(p).numel()))
            begin += p.numel()
        return found

    @property
    def _device(self) -> torch.device:
        return next(iter(self.gathered.values())).device


def _check_rows(name: str, p: Tensor) -> None:
    """Refuse what is not spread by rows over all processes."""
    from torch.distributed.tensor import Shard

    if not is_sharded_tensor(p):
        raise InvalidArgument(
            f"parameter {name!r}", "whole in a model of which others are spread by fully_shard",
            "spread like them", "call fully_shard(model) for the whole model too",
        )  # fmt: skip
    mesh: Any = p.device_mesh  # type: ignore[attr-defined]
    by_rows = tuple(p.placements) == (Shard(0),)  # type: ignore[attr-defined]
    if mesh.ndim != 1 or mesh.size() != dist.get_world_size() or not by_rows:
        raise InvalidArgument(
            f"parameter {name!r}", f"spread as {tuple(p.placements)} over {mesh.size()}",  # type: ignore[attr-defined]
            "spread by its first dimension over all processes, as fully_shard(module) does",
        )  # fmt: skip


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

    def _find_layers(self) -> None:
        super()._find_layers()
        self._backward = _ShardedPass(
            self._layers,
            self._recorder,
            self._chooser,
            float64_products=self.float64_products,
            shards=self.shards,
        )
        inside = {id(m) for m in self.shards.modules}
        for module, _ in self._layers.modules:
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
        mine: Any = {name: local_part(p) for name, p in self._layers.parameters.items()}
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
        squares = torch.zeros(len(self.layers), examples, dtype=torch.float64, device=self.device)
        again = torch.zeros_like(squares)

        def add_norms(layer: int, part: GroupSum) -> None:
            squares[layer] += part[0].squared_norms

        self._backward.run(tape, losses, views, add_norms, keep=True)
        weights, norms, bad = self._weights(squares, losses.detach(), clipping)

        def add_sum(layer: int, part: GroupSum) -> None:
            again[layer] += part[0].squared_norms
            self._add_part(total, part, weights[layer], bad)

        self._backward.run(tape, losses, views, add_sum)
        self.shards.check_order()
        same = (squares == again) | (squares.isnan() & again.isnan())
        if self.shards.any(not bool(same.all())):
            raise PrivetError(
                "two backward passes over the same losses gave different gradients; a sharded "
                "model needs operations that repeat (torch.use_deterministic_algorithms)"
            )
        total.examples_unprotected += examples
        total.non_finite_unprotected += 0 if bad is None else len(bad)
        total.norms.append(norms)
        return total

    def _add_part(
        self, total: ClippedSum, part: GroupSum, weights: Tensor, bad: Tensor | None
    ) -> None:
        norms_and_sum, targets = part
        rooms = {id(t.parameter): self.shards.room(t.parameter.shape) for t in targets}
        into = [t.of(rooms[id(t.parameter)][0]) for t in targets]
        norms_and_sum.add_to(weights, bad, into, [False] * len(into))
        for key, (_, memory) in rooms.items():
            name = self._layers.parameter_names[key]
            mine, stale = total.claim(name)
            part_of_sum = self.shards.sum_of_rows(name, memory, mine)
            _ = mine.copy_(part_of_sum) if stale else mine.add_(part_of_sum)


@final
class _ShardedPass(BackwardPass):
    """Every process makes the same passes, also one whose batch is empty."""

    def __init__(
        self,
        layers: ModelLayers,
        recorder: ForwardRecorder,
        chooser: KernelChooser,
        *,
        float64_products: bool,
        shards: Shards,
    ) -> None:
        super().__init__(layers, recorder, chooser, float64_products=float64_products)
        self._shards = shards

    @property
    def _leaves(self) -> dict[str, Tensor]:
        return {name: self._shards.gathered[name] for name in self._layers.parameters}

    def _must_check(self, wanted: bool) -> bool:
        return self._shards.any(wanted)

    def _norms_and_sum(
        self, arrivals: list[tuple[ForwardCall, Tensor]], rows: int, views: int
    ) -> GroupSum:
        if arrivals[0][0].rows:
            return super()._norms_and_sum(arrivals, rows, views)
        targets: dict[Any, ParameterSlice] = {
            (id(t.parameter), str(t.rows)): t for call, _ in arrivals for t in call.handler.targets
        }
        none = torch.zeros(0, dtype=torch.float64, device=arrivals[0][1].device)
        return NormsAndSum(none, lambda weights, bad, into: None), tuple(targets.values())
