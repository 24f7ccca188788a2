"""A model that `fully_shard` (FSDP2) spread over processes: who holds which part, and sums by part.

Each process keeps a block of rows of every parameter. FSDP2 gathers the parameters of a module
before its forward and its backward pass and lets go of them after it; that stays as it is. Sums
over the processes are made one parameter at a time, and each process gets its own rows of them.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from privet.errors import InvalidArgument, PrivetError


def is_spread(t: Any) -> bool:
    """Whether a tensor lies in parts in several processes."""
    kinds = sys.modules.get("torch.distributed.tensor")
    if kinds is None:
        return False  # nobody has spread anything, and importing it takes most of a second
    return isinstance(t, kinds.DTensor)


def local_of(t: Tensor) -> Tensor:
    """This process's part of a spread tensor, in the same memory; any other tensor as it is."""
    if not is_spread(t):
        return t
    local: Tensor = t.to_local()  # type: ignore[attr-defined]
    return local


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
            found |= {n: p for n, p in model.named_parameters() if n in names and not is_spread(p)}
            module.reshard()
        if set(found) != names:
            raise InvalidArgument(
                "model", sorted(names - set(found)), "parameters that fully_shard gathers"
            )
        return found

    def any(self, flag: bool) -> bool:
        """Whether any process says so; all must ask."""
        said = torch.tensor([int(flag)], device=self._device)
        dist.all_reduce(said, op=dist.ReduceOp.MAX, group=self.group)
        return bool(said)

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
        told = zlib.crc32("\n".join(self._order).encode())
        self._order.clear()
        both = torch.tensor([told, -told], dtype=torch.int64, device=self._device)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        if int(both[0]) != -int(both[1]):
            raise PrivetError(
                "the processes went through the layers in different orders; a spread model must "
                "take the same way whatever its rows are"
            )

    def coordinates(self, parameters: dict[str, nn.Parameter]) -> list[tuple[int, int]]:
        """Which numbers of the whole flat model this process holds: [start, stop) each."""
        found, begin = [], 0
        for p in parameters.values():
            rows, width = -(-p.shape[0] // self.world), p.shape[1:].numel()
            start = begin + min(self.rank * rows, p.shape[0]) * width
            found.append((start, start + local_of(p).numel()))
            begin += p.numel()
        return found

    @property
    def _device(self) -> torch.device:
        return next(iter(self.gathered.values())).device


def _check_rows(name: str, p: Tensor) -> None:
    """Refuse what is not spread by rows over all processes."""
    from torch.distributed.tensor import Shard

    if not is_spread(p):
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
