"""A run whose model is spread over the processes by `fully_shard`: sum, noise and steps by part.

The part of the clipped sum that belongs to a process's part of the model is already summed over all
processes when a step ends (`privet.gradients.fsdp_gradients`). The process adds the noise of its
own numbers, and the optimiser makes its step there; nothing is sent around any more.
"""

from __future__ import annotations

import sys
from typing import Any, final

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.gradients import ClippedSum
from privet.gradients.device import is_sharded_tensor, local_part
from privet.gradients.fsdp_gradients import ShardedGradients, Shards
from privet.methods.dpsgd.distributed import Processes, ProcessGroup
from privet.methods.dpsgd.gradient_check import NARROW, Autograd
from privet.noise import Source
from privet.noise.torch_noise import Places


def is_sharded(model: nn.Module) -> bool:
    """Whether `fully_shard` was called on the model or on parts of it.

    >>> is_sharded(nn.Linear(2, 1))
    False
    """
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)  # if imported
    gathered = kind is not None and any(isinstance(m, kind) for m in model.modules())
    return gathered or any(is_sharded_tensor(p) for p in model.parameters())


@final
class ShardedProcesses(Processes):
    """All processes of torch.distributed, each with its part of one model.

    A moving average and checkpoints are refused: both need the whole model in one place.
    """

    spread = True

    def __init__(self, engine: ShardedGradients, *, ema: Any = None, checkpoints: Any = None):
        for name, given in (("ema", ema), ("checkpoints", checkpoints)):
            if given is not None:
                raise InvalidArgument(
                    name, given, "None for a model spread by fully_shard",
                    "save it with torch.distributed.checkpoint after the run",
                )  # fmt: skip
        self._all, self._shards = ProcessGroup(), engine.shards
        self.rank, self.world = self._all.rank, self._all.world
        whole = {n: p for n, p in engine.model.named_parameters() if p.requires_grad}
        self.places = Places(
            total=sum(p.numel() for p in whole.values()),
            runs=tuple(self._shards.coordinates(whole)),
        )

    def check_same_settings(self, facts: dict[str, Any]) -> None:
        self._all.check_same_settings(facts)

    def reduce_to_first_(self, tensor: Tensor) -> None:
        self._all.reduce_to_first_(tensor)

    def broadcast_(self, tensor: Tensor) -> None:
        self._all.broadcast_(tensor)

    def broadcast_object(self, value: Any) -> Any:
        return self._all.broadcast_object(value)

    def noise(self, rng: Source, step: int) -> Source:
        """One stream for all where it is seeded; one of its own for each part where it is not."""
        return rng.child("noise", step, self.rank) if rng.secret else rng.child("noise", step)

    def reduce_sum_(self, total: Tensor) -> None:
        """Nothing: each layer's sum was added up by part when it was made."""

    def broadcast_sum_(self, released: Tensor) -> None:
        """Nothing: each process steps with its own part."""

    def reshard(self) -> None:
        self._shards.reshard()

    def all_last(self, last: bool) -> bool:
        return not self._shards.any(not last)

    def autograd(self, model: nn.Module) -> Autograd:
        return PartAutograd(model, self._shards)


@final
class PartAutograd(Autograd):
    """This process's part of the gradients as FSDP2 itself makes them.

    All processes run the same made-up rows, so that FSDP2's mean over them is everybody's gradient.
    """

    def __init__(self, model: nn.Module, shards: Shards) -> None:
        super().__init__(model)
        self._shards = shards

    def gradient(self, of: Tensor, *, last: bool) -> dict[str, Tensor]:
        of.backward(retain_graph=not last)
        found = {}
        for name, p in self.model.named_parameters():
            given, p.grad = p.grad, None
            if p.requires_grad:
                found[name] = local_part(torch.zeros_like(p) if given is None else given).detach()
        return found

    def norm(self, gradients: dict[str, Tensor]) -> Tensor:
        squares = torch.stack([g.double().square().sum() for g in gradients.values()]).sum()
        return self._shards.total(squares).sqrt().cpu()

    def of_engine(self, total: ClippedSum) -> dict[str, Tensor]:
        """The engine's is a sum over the processes."""
        return {name: (g / self._shards.world).float() for name, g in total.gradients.items()}

    def is_narrow(self) -> bool:
        passing = [p.dtype for p in self._shards.gathered.values()]
        return super().is_narrow() or any(kind in NARROW for kind in passing)
