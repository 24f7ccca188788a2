"""Random bits: an AES-256-CTR key stream whose keys are derived, never reused."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from privet.errors import InvalidArgument
from privet.noise import noise_reuse
from privet.noise.fork_safety import refuse_copy, rekeying_lock, this_process

Words = NDArray[np.uint64]
_ZEROS = bytes(1 << 16)  # what is encrypted at a time: it fits the cache


def derive(key: bytes, purpose: bytes, *label: str | int | bytes) -> bytes:
    """A 32-byte key from a parent key, a purpose and a label.

    Keyed BLAKE2b is a pseudo-random function (RFC 7693), so distinct (purpose, label) pairs give
    keys that cannot be distinguished from independent ones. The label is encoded without ambiguity:
    every part carries its type and its length.

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


class KeyStream:
    """The key stream AES-256-CTR(derive(key)), read as little-endian 64-bit words.

    A stream hands out every counter value at most once (a lock makes that true for threads). After
    a fork the child process of a *secret* stream draws a new key, since it would otherwise repeat
    the parent's bits; copying or pickling one is refused for the same reason. A *seeded* stream is
    meant to be repeated: it may be copied, and a forked process goes on as its parent does.

    A virtual machine that is restored twice from one snapshot cannot be seen from inside. Every
    child, split and bulk draw of a secret stream therefore takes fresh bytes of the operating
    system into its key: what repeats is what was left of streams already begun, such as the rest of
    one step's noise, and, where the hypervisor does not tell the kernel (VM generation ID), what
    follows until the kernel has gathered new entropy.

    **Assumes** that AES-256 is a pseudo-random permutation, and that `os.urandom` is unpredictable.
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
        self._process = this_process()

    def _guard(self) -> None:
        """Notice a fork: a new lock (a thread that is gone may hold the old one), a new key."""
        if self._process == this_process():
            return
        with rekeying_lock():
            if self._process != this_process():  # no other thread was first
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
            if noise_reuse.active_log is not None:
                noise_reuse.active_log.add_draw(self._key, self._counter, size // 16)
            self._counter += size // 16
            for i in range(0, size, len(_ZEROS)):
                part = raw[i : i + len(_ZEROS)]
                self._cipher.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def split(self) -> KeyStream:
        """A fresh independent stream; the n-th split of equal seeded streams is equal."""
        key, *number = self._next()
        return KeyStream(
            self._log_stream(key, derive(key, b"split", *number), number[0]), secret=self.secret
        )

    def bulk(self) -> Bulk:
        """A fresh independent key stream for one large request, made and used up in one call."""
        key, *number = self._next()
        own = self._log_stream(key, derive(key, b"bulk", *number), number[0])
        if noise_reuse.active_log is not None:
            noise_reuse.active_log.add_draw(own, 0, 1)
        return Bulk(own)

    def child(self, *label: str | int | bytes) -> KeyStream:
        """The stream named by a label; of a secret stream, a new one at every call."""
        if not self.secret:
            own = derive(self._key, b"child", *label)
            return KeyStream(self._log_stream(self._key, own, label), secret=False)
        key, *number = self._next()
        return KeyStream(
            self._log_stream(key, derive(key, b"child", *number, *label), label), secret=True
        )

    @staticmethod
    def _log_stream(parent: bytes, key: bytes, label: object) -> bytes:
        if noise_reuse.active_log is not None:
            noise_reuse.active_log.add_stream(parent, key, str(label))
        return key

    def _next(self) -> tuple[Any, ...]:
        """The key, which a fork has changed by now, and a number that was never used with it.

        Of a secret stream also fresh bytes of the operating system, which a virtual machine that
        was restored from a snapshot has not in common with another one.
        """
        self._guard()
        with self._lock:
            self._serial += 1
            return self._key, self._serial, *((os.urandom(32),) if self.secret else ())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.secret:
            refuse_copy()
        return _restore, (self._key, self._counter, self._serial)


class Bulk:
    """AES-256-CTR again, at twice the speed: the key stream inside AES-256-GCM.

    GCM encrypts by counter mode, block i with the counter i + 2, and computes a tag, which is not
    asked for here; ciphers libraries have tuned it most. One key serves 2^36 - 32 bytes. For use
    within one call: no lock, no notice of a fork.
    """

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        # nonce 0: the key is used once
        self._cipher = Cipher(algorithms.AES(key), modes.GCM(bytes(12))).encryptor()

    def fill(self, out: Words) -> None:
        """Overwrite an array of even length with the next words."""
        raw = out.data.cast("B")
        for i in range(0, len(raw), len(_ZEROS)):
            part = raw[i : i + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)


def _restore(key: bytes, counter: int, serial: int) -> KeyStream:
    return KeyStream(key, secret=False, counter=counter, serial=serial)
