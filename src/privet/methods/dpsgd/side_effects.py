"""Refuses what changes a model beside its private steps, such as running statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from privet.errors import InvalidArgument, PrivetError
from privet.gradients.device import local_part, on_host
from privet.gradients.module_validator import all_modules_of, named_modules_of
from privet.noise.torch_noise import compile_on_first_use

_BLOCK = 4096  # words of the digest's key: 16 kB, half of a first-level cache


class _Bits(NamedTuple):
    """The bits of a tensor, read where they lie, which is remembered: asking costs more."""

    where: tuple[Any, ...] | None
    words: NDArray[np.uint32]
    rest: NDArray[np.uint8]


@final
class StateGuard:
    """Refuses a forward pass that changes buffers or parameters.

    A running mean is a function of the records that is released with the model; so is a counter of
    batches. Changes are noticed by identity and version after every part of a step, and by value
    before the step is released, since writing through `.data` leaves no trace in the version. On
    the host the values are remembered by a digest: a change escapes with a probability of some
    2^-32.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._key = np.frombuffer(os.urandom(4 * _BLOCK), dtype=np.uint32)
        self._values: dict[str, Tensor | tuple[Any, ...]] = {}
        self._marks: dict[tuple[int, str], tuple[Tensor, int]] = {}
        self._read: dict[int, _Bits] = {}

    def begin_step(self) -> None:
        """Note the values of buffers and parameters."""
        everything = _everything(self._model)
        self._read = {id(t): self._read[id(t)] for _, t in everything if id(t) in self._read}
        self._values = {
            name: self._fingerprint(t) or local_part(t.detach()).clone() for name, t in everything
        }

    def begin_part(self) -> None:
        """Note who and how old everything is."""
        self._marks = _marks(self._model)

    def check_part(self) -> None:
        """Refuse what was changed, replaced or added since `begin_part`."""
        before, now = self._marks, _marks(self._model)
        other = {key for key, mark in now.items() if not _is(mark, before.get(key))}
        if not other and before.keys() == now.keys():
            return
        for name, module in named_modules_of(self._model):
            for key in (*module._parameters, *module._buffers):
                if (id(module), key) in other:
                    raise _changed(f"{name}.{key}" if name else key)
        raise _changed("a buffer or parameter that is gone")

    def check_step(self) -> None:
        """Refuse values that are not those of `begin_step`."""
        for name, t in _everything(self._model):
            before = self._values.get(name)
            if isinstance(before, Tensor):
                same = _same(before, local_part(t.detach()))
            else:
                same = before is not None and self._fingerprint(t, anyhow=True) == before
            if not same:
                raise _changed(name)

    def _fingerprint(self, t: Tensor, *, anyhow: bool = False) -> tuple[Any, ...] | None:
        """Shape, type and a keyed digest of the bits; None where they cannot be read in place.

        `anyhow`: values count, not how they lie in memory, which may have changed.
        """
        where, bits = _where(t), self._read.get(id(t))
        if bits is None or where is None or bits.where != where:
            mine = local_part(t.detach())
            bits = _bits(mine.contiguous() if anyhow else mine, where)
            if bits is None:
                return None
            if where is not None and mine.is_contiguous():
                self._read[id(t)] = bits
        return t.shape, t.dtype, int(_digest(bits.words, self._key)), bits.rest.tobytes()


@contextmanager
def watch_loop_body(
    model: nn.Module, optimizer: Optimizer, on_forward: Callable[[], None]
) -> Iterator[None]:
    """Refuse a step of the optimiser inside, and tell of forward passes of the model."""

    def refuse(*_: Any) -> None:
        raise PrivetError(
            "the private step was made before the loop body, with losses=: take loss.backward() "
            "and optimizer.step() out of it, for what they add has no noise"
        )

    hooks = [
        model.register_forward_pre_hook(lambda *_: on_forward()),
        optimizer.register_step_pre_hook(refuse),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _where(t: Tensor) -> tuple[Any, ...] | None:
    """Where a plain tensor of numbers lies, and how; None for one of another kind."""
    plain = type(t) in (Tensor, nn.Parameter) and t.layout == torch.strided
    if not plain or t.is_complex() or t.is_neg():
        return None
    return t.data_ptr(), t.shape, t.stride(), t.dtype


def _bits(t: Tensor, where: tuple[Any, ...] | None) -> _Bits | None:
    """The bits of a tensor in its own memory; None where they cannot be read so."""
    if not (on_host(t) and t.layout == torch.strided and t.is_contiguous()):
        return None
    flat = t.resolve_conj().resolve_neg().view(-1)
    if flat.stride() != (1,):  # a single number, of which torch calls any stride contiguous
        return None
    bits = flat.view(torch.uint8).numpy()
    whole = len(bits) // 8 * 8
    return _Bits(where, bits[:whole].view(np.uint32), bits[whole:])


@compile_on_first_use
def _digest(words: NDArray[np.uint32], key: NDArray[np.uint32]) -> np.uint64:
    """NH (Black et al. 1999, UMAC) of each block, joined by a polynomial: sums of (a + k)(b + l).

    Two blocks that differ have the same sum for one key in 2^32.
    """
    total, odd = np.uint64(0), (np.uint64(key[0]) << np.uint64(32)) | np.uint64(key[1] | 1)
    for start in range(0, len(words), len(key)):
        some, block = words[start : start + len(key)], np.uint64(0)
        for i in range(len(some) // 2):
            a = np.uint64(np.uint32(some[2 * i] + key[2 * i]))
            block += a * np.uint64(np.uint32(some[2 * i + 1] + key[2 * i + 1]))
        total = total * odd + block
    return total


def _marks(model: nn.Module) -> dict[tuple[int, str], tuple[Tensor, int]]:
    """Parameters and buffers with their versions; held, so that none is another's successor."""
    kinds = [
        (m, kind) for m in all_modules_of(model) for kind in (m._parameters, m._buffers) if kind
    ]
    return {
        (id(module), key): (t, t._version)
        for module, kind in kinds
        for key, t in kind.items()
        if t is not None
    }


def _is(mark: tuple[Tensor, int], other: tuple[Tensor, int] | None) -> bool:
    return other is not None and mark[0] is other[0] and mark[1] == other[1]


def _everything(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers with their names, each once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, module in named_modules_of(model):
        for kind in (module._parameters, module._buffers):
            for key, t in kind.items():
                if t is not None:
                    found.setdefault(id(t), (f"{name}.{key}" if name else key, t))
    return list(found.values())


def _same(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if torch.equal(before, after):
        return True
    if not before.is_floating_point():
        return False
    return bool(torch.isclose(before, after, rtol=0.0, atol=0.0, equal_nan=True).all())


def _changed(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name!r} of the model",
        "changed by the forward pass",
        "buffers and parameters that only the optimiser changes",
        "running statistics would be released without noise; use layers without them, or "
        "model.eval() where that keeps them as they are",
    )
