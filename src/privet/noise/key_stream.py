"""Random bits: an AES-256-CTR key stream whose keys are derived, never reused."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from typing import Any, NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from privet.errors import InvalidArgument, PrivetError

Words = NDArray[np.uint64]
_ZEROS = bytes(1 << 16)
_forked, _forks = threading.Lock(), 0
"""Held while a stream is given its key after a fork, and how many forks led to this process."""


def _after_fork() -> None:
    global _forked, _forks
    _forked, _forks = threading.Lock(), _forks + 1


if sys.platform != "win32":  # where there is no fork
    os.register_at_fork(after_in_child=_after_fork)


def _process() -> tuple[int, int]:
    """This process and no other: its id alone could be that of a forebear who has died."""
    return os.getpid(), _forks


class Watcher(Protocol):
    """Who is told of every draw, in tests (`privet.noise.record`)."""

    def named(self, parent: bytes, key: bytes, label: str) -> None:
        """A stream was made from another one."""

    def given(self, key: bytes, start: int, blocks: int) -> None:
        """Blocks of 16 bytes of a key stream were handed out."""


watcher: Watcher | None = None


class NoiseReuse(PrivetError, TypeError):
    """Something would have made two holders of one secret key, who would draw the same noise."""


def derive(key: bytes, purpose: bytes, *label: str | int | bytes) -> bytes:
    """A 32-byte key from a parent key, a purpose and a label.

    Keyed BLAKE2b is a pseudo-random function (RFC 7693), so distinct (purpose, label) pairs give
    keys that cannot be told from independent ones. The label is encoded without ambiguity: every
    part carries its type and its length.

    >>> derive(b"k", b"child", "step", 1) == derive(b"k", b"child", "step1")
    False
    """
    message = b""
    for part in label:
        if isinstance(part, bytes):
            tag, raw = b"b", part
        elif isinstance(part, str):
            tag, raw = b"s", part.encode()
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            tag, raw = b"i", str(int(part)).encode()
        else:
            raise InvalidArgument("label", part, "made of strings, whole numbers or bytes")
        message += tag + len(raw).to_bytes(8, "big") + raw
    return hashlib.blake2b(message, digest_size=32, key=key, person=b"privet." + purpose).digest()


class Stream:
    """The key stream AES-256-CTR(derive(key)), read as little-endian 64-bit words.

    A stream hands out every counter value at most once (a lock makes that true for threads). After
    a fork the child process of a *secret* stream draws a new key, since it would otherwise repeat
    the parent's bits; copying or pickling one is refused for the same reason. A *seeded* stream is
    meant to be repeated: it may be copied, and a forked process goes on as its parent does.

    **Assumes** that AES-256 is a pseudo-random permutation, that `os.urandom` is unpredictable, and
    that nobody duplicates the process by other means than fork (a virtual-machine snapshot restored
    twice repeats noise; this cannot be seen from inside).
    """

    __slots__ = ("_cipher", "_counter", "_key", "_lock", "_process", "_secret", "_serial")

    def __init__(self, key: bytes, *, secret: bool, counter: int = 0, serial: int = 0) -> None:
        self._key, self._secret = key, secret
        self._counter, self._serial = counter, serial
        self._renew()

    @property
    def secret(self) -> bool:
        """Whether nobody can know the key; nobody can say so afterwards."""
        return self._secret

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._cipher: CipherContext | None = None
        self._process = _process()

    def _guard(self) -> None:
        """Notice a fork: a new lock (a thread that is gone may hold the old one), a new key."""
        if self._process == _process():
            return
        with _forked:
            if self._process != _process():  # no other thread was first
                if self.secret:
                    self._key = derive(self._key, b"fork", os.getpid(), os.urandom(32))
                    self._counter = self._serial = 0
                self._renew()

    def words(self, n: int) -> Words:
        """The next n words of the key stream (each call starts on a fresh 16-byte cipher block)."""
        out = np.empty(2 * ((n + 1) // 2), dtype=np.uint64)
        self.fill(out)
        return out[:n]

    def fill(self, out: Words) -> None:
        """Overwrite an array of even length with the next words."""
        raw = out.data.cast("B")
        size = len(raw)
        self._guard()
        with self._lock:
            if self._cipher is None:
                key = algorithms.AES(derive(self._key, b"stream"))
                start = modes.CTR(self._counter.to_bytes(16, "big"))
                self._cipher = Cipher(key, start).encryptor()
            if watcher is not None:
                watcher.given(self._key, self._counter, size // 16)
            self._counter += size // 16
            for i in range(0, size, len(_ZEROS)):
                part = raw[i : i + len(_ZEROS)]
                self._cipher.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def split(self) -> Stream:
        """A fresh independent stream; the n-th split of equal seeded streams is equal."""
        key, serial = self._next()
        return Stream(self._made(key, derive(key, b"split", serial), serial), secret=self.secret)

    def bulk(self) -> Bulk:
        """A fresh independent key stream for one large request, made and used up in one call."""
        key, serial = self._next()
        own = self._made(key, derive(key, b"bulk", serial), serial)
        if watcher is not None:
            watcher.given(own, 0, 1)
        return Bulk(own)

    def child(self, *label: str | int | bytes) -> Stream:
        """The stream named by a label; of a secret stream, a new one at every call."""
        if not self.secret:
            own = derive(self._key, b"child", *label)
            return Stream(self._made(self._key, own, label), secret=False)
        key, serial = self._next()
        return Stream(self._made(key, derive(key, b"child", serial, *label), label), secret=True)

    @staticmethod
    def _made(parent: bytes, key: bytes, label: object) -> bytes:
        if watcher is not None:
            watcher.named(parent, key, str(label))
        return key

    def _next(self) -> tuple[bytes, int]:
        """The key, which a fork has changed by now, and a number that was never used with it."""
        self._guard()
        with self._lock:
            self._serial += 1
            return self._key, self._serial

    def __reduce__(self) -> tuple[Any, ...]:
        if self.secret:
            _refuse_copy()
        return _restore, (self._key, self._counter, self._serial)


class Bulk:
    """AES-256-CTR again, at twice the speed: the key stream inside AES-256-GCM.

    GCM encrypts by counter mode, block i with the counter i + 2, and computes a tag, which is not
    asked for here; ciphers libraries have tuned it most. One key serves 2^36 - 32 bytes. For use
    within one call: no lock, no notice of a fork.
    """

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.GCM(bytes(12))).encryptor()

    def fill(self, out: Words) -> None:
        """Overwrite an array of even length with the next words."""
        raw = out.data.cast("B")
        for i in range(0, len(raw), len(_ZEROS)):
            part = raw[i : i + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)


def _restore(key: bytes, counter: int, serial: int) -> Stream:
    return Stream(key, secret=False, counter=counter, serial=serial)


def _refuse_copy() -> NoReturn:
    raise NoiseReuse(
        "a secure noise source cannot be pickled or copied, since the copy would repeat its noise; "
        "call privet.noise.secure() in the other process"
    )
