"""Counts the bytes of all tensors made inside, as they come and go."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):
    """`peak`: most bytes alive at once of those made or filled inside; `largest`: the largest one.

    Memory that is resized, as FSDP2 does with gathered parameters, counts as what it is at the time.
    """

    def __init__(self):
        super().__init__()
        self.peak = self.largest = 0
        self._alive = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves((args, kwargs, out)):
            if isinstance(t, torch.Tensor) and type(t) in (torch.Tensor, torch.nn.Parameter):
                storage = t.untyped_storage()
                self._alive[storage._cdata] = StorageWeakRef(storage)
        total = 0
        for key, weak in list(self._alive.items()):
            if weak.expired():
                del self._alive[key]
                continue
            storage = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if storage is not None:
                size = storage.nbytes()
                total, self.largest = total + size, max(self.largest, size)
        self.peak = max(self.peak, total)
        return out
