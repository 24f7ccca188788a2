"""One run in several processes: shards of a sample, one noise, the same weights everywhere.

Every process clips the part of the sample that lies in its shard of the records. The sums are added
up in the first process, which adds the noise, once, and sends the result to all. Sampling a union
of disjoint shards by independent coins is Poisson sampling of the whole, so the guarantee is that
of one process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from privet.errors import PrivetError
from privet.gradients.device import is_sharded_tensor
from privet.methods.dpsgd.gradient_check import Autograd, WholeAutograd
from privet.noise import Source
from privet.noise.torch_noise import Places


class Processes(ABC):
    """The processes of a run; number 0 pays, adds noise and writes files."""

    rank: int
    world: int
    spread = False
    """Whether the model, and so the sum of a step, lies in parts in all processes."""
    places: Places | None = None
    """Which numbers of the whole sum this process releases, where it lies in parts."""

    @property
    def first(self) -> bool:
        """Whether this is the one that pays and writes."""
        return self.rank == 0

    @property
    def adds_noise(self) -> bool:
        """Whether this one adds noise: once in all, or once to every part of a spread sum."""
        return self.first or self.spread

    def noise(self, rng: Source, step: int) -> Source:
        """The stream of the noise that this process adds in a step."""
        return rng.child("noise", step)

    def reduce_sum_(self, total: Tensor) -> None:
        """Add up a step's sum over the processes where its noise is added."""
        self.reduce_to_first_(total)

    def broadcast_sum_(self, released: Tensor) -> None:
        """Give every process that needs it the released sum."""
        self.broadcast_(released)

    def reshard(self) -> None:  # noqa: B027, only a spread model has to
        """Bring a spread model's parameters to rest: every process holds its part only."""

    def check_same_settings(self, facts: dict[str, Any]) -> None:  # noqa: B027, one has no other
        """Refuse processes that were given different things: the first one pays for all."""

    def all_last(self, last: bool) -> bool:
        """Whether a part ends the step: in a spread model all processes make as many passes."""
        return last

    def autograd(self, model: nn.Module) -> Autograd:
        """Plain gradients of the model, for the check before the first step."""
        return WholeAutograd(model)

    @abstractmethod
    def reduce_to_first_(self, tensor: Tensor) -> None:
        """Add up a tensor over the processes, in place, in the first one only."""

    @abstractmethod
    def broadcast_(self, tensor: Tensor) -> None:
        """Overwrite a tensor by that of the first process."""

    @abstractmethod
    def broadcast_object(self, value: Any) -> Any:
        """A small value of the first process, everywhere; an error there is raised everywhere."""


@final
class SingleProcess(Processes):
    """The only process of a training that is not distributed."""

    rank, world = 0, 1

    def reduce_to_first_(self, tensor: Tensor) -> None:
        pass

    def broadcast_(self, tensor: Tensor) -> None:
        pass

    def broadcast_object(self, value: Any) -> Any:
        if isinstance(value, PrivetError):
            raise value
        return value


@final
class ProcessGroup(Processes):
    """The processes of torch.distributed's default group, as `torchrun` starts them."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def check_same_settings(self, facts: dict[str, Any]) -> None:
        every: list[dict[str, Any]] = [{}] * self.world
        dist.all_gather_object(every, facts)
        names = sorted({name for one in every for name in one})
        other = [n for n in names if any(one.get(n) != every[0].get(n) for one in every)]
        if other:
            raise PrivetError(
                f"the processes of this run were given different things ({', '.join(other)}); give "
                "all of them the same: the first one pays for all"
            )

    def reduce_to_first_(self, tensor: Tensor) -> None:
        dist.reduce(tensor, dst=0)

    def broadcast_(self, tensor: Tensor) -> None:
        dist.broadcast(tensor, src=0)

    def broadcast_object(self, value: Any) -> Any:
        failed = isinstance(value, PrivetError)
        box = [(failed, str(value) if failed else value) if self.first else None]
        dist.broadcast_object_list(box, src=0)
        assert box[0] is not None
        bad, word = box[0]
        if bad:
            raise value if self.first else PrivetError(f"process 0: {word}")
        return word


def current_processes() -> Processes:
    """The processes that torch.distributed was initialised with, or this one alone.

    >>> current_processes().world
    1
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return ProcessGroup()
    return SingleProcess()


def disable_ddp_gradient_sync(model: nn.Module) -> None:
    """Keep torch's wrapper from adding up gradients by itself.

    `DistributedDataParallel` waits for a backward pass that never comes to it; here the sums of
    clipped gradients are added up, once, in the first process.
    """
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = False


def broadcast_parameters(processes: Processes, tensors: list[Tensor]) -> None:
    """Give all processes the first one's tensors, so that they start from the same weights.

    What is spread over the processes is nobody's whole, and left as it is.
    """
    with torch.no_grad():
        for tensor in tensors:
            if is_sharded_tensor(tensor):
                continue
            if tensor.is_contiguous():
                processes.broadcast_(tensor)
            else:
                plain = tensor.contiguous()
                processes.broadcast_(plain)
                tensor.copy_(plain)
