"""The bit stream: the right bits, and never the same ones twice."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from privet import premises
from privet.errors import InvalidArgument
from privet.noise import NoiseReuse, Source, secure, seeded
from privet.noise.key_stream import KeyStream, derive

PARTS = st.lists(st.one_of(st.text(max_size=4), st.integers(-20, 300)), min_size=1, max_size=4)
PINNED_ROOT = ["0x51f3d43eae59064d", "0x59910391ae7bb400"]
PINNED_CHILD = ["0x16642e252d5da5e5", "0x80ad2bc9738cc029"]


def overlap(a: np.ndarray, b: np.ndarray) -> int:
    """How many 64-bit words two draws share; by chance 2^-64 times the product of the lengths."""
    return len(np.intersect1d(a, b))


def test_words_are_the_block_cipher_applied_to_a_counter() -> None:
    """CTR is E_k(0), E_k(1), ...: here computed block by block in another mode."""
    key = bytes(range(32))
    block = Cipher(algorithms.AES(derive(key, b"stream")), modes.ECB()).encryptor()
    expected = b"".join(block.update(i.to_bytes(16, "big")) for i in range(6000))
    got = KeyStream(key, secret=False).words(12000)
    assert got.tobytes() == expected


def test_the_cipher_is_aes_256() -> None:
    """NIST SP 800-38A, F.1.5, first block."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(plain)
    assert cipher.hex() == "f3eed1bdb5d2a03c064b5a7e3db181f8"


def test_a_seed_means_the_same_bits_for_ever() -> None:
    """Pinned: a change here silently changes every seeded experiment."""
    assert [hex(w) for w in seeded(0).uint64(2)] == PINNED_ROOT
    assert [hex(w) for w in seeded(0).child("step", 1).uint64(2)] == PINNED_CHILD


@pytest.mark.slow
def test_the_same_in_another_process() -> None:
    code = "from privet.noise import seeded; print(seeded(5).child('a').gaussian(3).tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(seeded(5).child("a").gaussian(3).tolist())


def test_pieces_of_any_size_are_one_stream_of_whole_blocks() -> None:
    one, many = seeded(1), seeded(1)
    whole = one.uint64(20_000)
    parts = np.concatenate([many.uint64(n) for n in (2, 8192, 4, 10_000, 1802)])
    assert np.array_equal(whole, parts)


@pytest.mark.slow
@given(PARTS, PARTS)
def test_different_labels_different_keys(a: list[str | int], b: list[str | int]) -> None:
    same = [(type(x), x) for x in a] == [(type(x), x) for x in b]
    assert (derive(b"k", b"child", *a) == derive(b"k", b"child", *b)) == same


def test_children_do_not_depend_on_what_was_drawn() -> None:
    first, second = seeded(3), seeded(3)
    second.gaussian(100)
    second.child("other").gaussian(5)
    assert np.array_equal(first.child("step", 2).uint64(4), second.child("step", 2).uint64(4))


def test_children_share_nothing_with_parents_or_siblings() -> None:
    root = seeded(4)
    draws = [root.uint64(5000)]
    draws += [root.child("step", i).uint64(5000) for i in range(4)]
    draws += [root.child("step", 0).child("step", 0).uint64(5000)]
    words = np.concatenate(draws)
    assert len(np.unique(words)) == len(words)


def test_a_secure_source_never_repeats_a_label() -> None:
    root = secure()
    assert overlap(root.child("step", 1).uint64(1000), root.child("step", 1).uint64(1000)) == 0
    assert root.child("step", 1).secret
    assert overlap(secure().uint64(1000), secure().uint64(1000)) == 0


def test_a_secure_source_cannot_be_copied() -> None:
    source = secure().child("x")
    for act in (pickle.dumps, copy.deepcopy):
        with pytest.raises(NoiseReuse, match="repeat its noise"):
            act(source)
    alias = copy.copy(source)  # shallow: both read on in one stream
    assert overlap(alias.uint64(1000), source.uint64(1000)) == 0


def declare(source: Source) -> None:
    source.secret = True  # type: ignore[misc]


def exchange(source: Source) -> None:
    source.stream = secure().stream  # type: ignore[misc]


def declare_the_stream(source: Source) -> None:
    source.stream.secret = True  # type: ignore[misc]


@pytest.mark.parametrize("attack", [declare, exchange, declare_the_stream])
def test_a_seeded_source_cannot_be_called_secret(attack: Callable[[Source], None]) -> None:
    """A guarantee would say that nobody knows the key, of noise that anybody can draw again."""
    source = seeded(9)
    with pytest.raises(AttributeError):
        attack(source)
    for found in (source, source.child("step", 1), pickle.loads(pickle.dumps(source))):
        assert not found.secret and found.premise is premises.SECRET_SEED
    assert np.array_equal(source.uint64(4), seeded(9).uint64(4))


def test_a_secure_source_cannot_be_given_a_known_key() -> None:
    source = secure()
    with pytest.raises(AttributeError):
        source.stream = seeded(9).stream  # type: ignore[misc]
    assert overlap(source.uint64(1000), seeded(9).uint64(1000)) == 0


def test_a_pickled_seeded_source_goes_on_where_it_was() -> None:
    source = seeded(9)
    source.gaussian(7)
    source.stream.split()
    again: Source = pickle.loads(pickle.dumps(source))
    assert np.array_equal(source.uint64(9), again.uint64(9))
    assert np.array_equal(source.stream.split().words(9), again.stream.split().words(9))


def in_fork(act: object) -> np.ndarray:
    """What a forked child draws."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, act().tobytes())  # type: ignore[operator]
        finally:
            os._exit(0)
    os.close(write)
    data = b""
    while more := os.read(read, 1 << 16):
        data += more
    os.close(read)
    os.waitpid(pid, 0)
    return np.frombuffer(data, dtype=np.uint64)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_fork_of_a_secure_source_draws_its_own_noise() -> None:
    source = secure()
    source.uint64(10)  # the cipher is running when the fork happens
    children = [in_fork(lambda: source.uint64(1000)) for _ in range(2)]
    below = in_fork(lambda: source.child("step", 1).uint64(1000))
    own = np.concatenate([source.uint64(1000), source.child("step", 1).uint64(1000)])
    words = np.concatenate([own, *children, below])
    assert len(words) == 5000
    assert len(np.unique(words)) == 5000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_fork_of_a_secure_source_draws_its_own_bulk_and_floats() -> None:
    """What is derived from the key first after a fork is derived from the new key."""
    source = secure()

    def bulk() -> np.ndarray:
        out = np.empty(1000, dtype=np.uint64)
        source.stream.bulk().fill(out)
        return out

    def floats() -> np.ndarray:
        return source.gaussian(1000).view(np.uint64)

    for draw in (bulk, floats, lambda: source.stream.split().words(1000)):
        words = np.concatenate([draw(), *(in_fork(draw) for _ in range(2))])
        assert len(words) == 3000 and len(np.unique(words)) == 3000


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_process_id_that_is_given_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grandchild may have the id of the process that made the source."""
    monkeypatch.setattr(os, "getpid", lambda: 4)
    source = secure()
    words = np.concatenate([in_fork(lambda: source.uint64(1000)), source.uint64(1000)])
    assert len(words) == 2000 and len(np.unique(words)) == 2000


def test_threads_of_a_forked_process_agree_on_one_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two new keys would let one thread's counter be set back while another draws."""
    stream, keys, draws = secure().stream, [], []
    real = os.urandom

    def slow(n: int) -> bytes:
        keys.append(n)
        time.sleep(0.02)
        return real(n)

    monkeypatch.setattr(os, "urandom", slow)
    monkeypatch.setattr(stream, "_process", (-1, 0))  # as after a fork
    threads = [threading.Thread(target=lambda: draws.append(stream.words(8))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(keys) == 1 and len(np.unique(np.concatenate(draws))) == 32


def test_threads_never_share_bits() -> None:
    source, draws = secure(), []

    def work() -> None:
        for _ in range(50):
            draws.append(source.uint64(64))
            draws.append(source.child("same").uint64(64))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    words = np.concatenate(draws)
    assert len(np.unique(words)) == len(words) == 8 * 50 * 128


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, None])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(InvalidArgument, match="seed must be a whole number"):
        seeded(seed)  # type: ignore[arg-type]


def test_long_seeds_are_not_rounded() -> None:
    assert overlap(seeded(2**60).uint64(10), seeded(2**60 + 1).uint64(10)) == 0


@pytest.mark.parametrize("label", [(), (1.5,), (True,), (None,)])
def test_bad_labels(label: tuple[object, ...]) -> None:
    with pytest.raises(InvalidArgument, match="label must be"):
        seeded(0).child(*label)  # type: ignore[arg-type]
