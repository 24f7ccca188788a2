"""The torch path: the same noise as numpy's, in place."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privet.errors import InvalidArgument
from privet.noise import grid, seeded
from privet.noise.key_stream import Bulk, KeyStream
from privet.noise.torch_noise import BLOCK, CHUNK, LARGEST, add_gaussian_, gaussian_
from tests.noise.test_ziggurat import exact_draw

SIZES = [0, 1, 2, 7, BLOCK - 1, BLOCK + 1]


def by_the_book(stream: KeyStream, n: int, scale: float) -> np.ndarray:
    """The noise of `gaussian_` from the same bits, exactly, one by one; n <= CHUNK."""
    bulk, out = stream.bulk(), np.empty(n)
    step = grid.spacing(scale)
    more = np.empty(2, dtype=np.uint64)

    def draw() -> int:
        bulk.fill(more)
        return int(more[0])

    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        whole = -(-m // 8) * 8
        words = np.empty(whole + BLOCK // 32, dtype=np.uint64)
        bulk.fill(words)
        spare = iter(words[whole:].tolist())
        for i, word in enumerate(words[:whole].tolist()):
            units = exact_draw(word, spare, draw, Fraction(scale) / Fraction(step))
            if i < m:
                out[start + i] = units * step
    return out


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_the_same_bits_by_the_book(n: int) -> None:
    x = gaussian_(torch.empty(n, dtype=torch.float64), 2.5, seeded(3))
    assert np.array_equal(x.numpy(), by_the_book(seeded(3).stream, n, 2.5))


@pytest.mark.slow
def test_chunks_have_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privet.noise.torch_noise.CHUNK", BLOCK)
    n = BLOCK + 3
    x = gaussian_(torch.empty(n, dtype=torch.float64), 1.0, seeded(3)).numpy()
    stream = seeded(3).stream
    for i in range(0, n, BLOCK):
        part = x[i : i + BLOCK]
        assert np.array_equal(part, by_the_book(stream, len(part), 1.0))
    assert CHUNK % BLOCK == 0 and BLOCK % 64 == 0


def test_bulk_is_counter_mode() -> None:
    """The key stream inside GCM is AES-256-CTR from counter 2, whatever the sizes asked for."""
    key = bytes(range(32))
    bulk, out = Bulk(key), np.empty(20_000, dtype=np.uint64)
    for part in (out[:2], out[2:9_002], out[9_002:]):
        bulk.fill(part)
    counter = Cipher(algorithms.AES(key), modes.CTR((2).to_bytes(16, "big"))).encryptor()
    assert out.astype("<u8").tobytes() == counter.update(bytes(8 * len(out)))


def test_bulks_differ() -> None:
    def first(stream: KeyStream) -> list[int]:
        out = np.empty(2, dtype=np.uint64)
        stream.bulk().fill(out)
        return out.tolist()  # type: ignore[no-any-return]

    stream = seeded(1).stream
    seen = [first(stream), first(stream), first(stream.split()), stream.words(2).tolist()]
    assert len({tuple(s) for s in seen}) == 4
    assert first(seeded(1).stream) == seen[0]


@pytest.mark.parametrize("n", [1, 1001, 2 * BLOCK + 3])
def test_float32_is_a_rounding_of_float64(n: int) -> None:
    wide = gaussian_(torch.empty(n, dtype=torch.float64), 0.3, seeded(4))
    narrow = gaussian_(torch.empty(n, dtype=torch.float32), 0.3, seeded(4))
    assert torch.equal(narrow, wide.to(torch.float32))


def test_shapes_are_kept_and_parameters_allowed() -> None:
    x = torch.nn.Parameter(torch.zeros(3, 4, 5))
    assert gaussian_(x, 1.0, seeded(0)) is x
    assert x.requires_grad and float(x.detach().abs().min()) > 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 0.37, 900.0])
def test_addition_on_the_grid(dtype: torch.dtype, scale: float) -> None:
    n, step = 5000, grid.spacing(scale)
    value = torch.linspace(-3, 3, n, dtype=dtype)
    out = add_gaussian_(value.clone(), scale, seeded(5)).double().numpy()
    noise = gaussian_(torch.empty(n, dtype=torch.float64), scale, seeded(5)).numpy()
    expected = np.rint(value.double().numpy() / step) * step + noise
    if dtype is torch.float32:
        coarse = grid.spacing(scale, bits=grid.BITS_FLOAT32)
        expected = np.rint(expected / coarse) * coarse
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_large_values_are_held(dtype: torch.dtype) -> None:
    """1e30 scales are held at 2^50 steps, and the noise is still added on the grid there."""
    step = grid.spacing(1.0)
    value = torch.tensor([1e30, -1e30, 3.0, 2.0**23], dtype=dtype).repeat(1000)
    out = add_gaussian_(value, 1.0, seeded(5)).double()
    assert torch.equal((out / step).round() * step, out)
    near = torch.tensor([LARGEST * step, -LARGEST * step, 3.0, 2.0**23]).double().repeat(1000)
    assert float((out - near).abs().max()) < 6.0
    if dtype is torch.float64:
        assert float((out - near).view(-1, 4).std(0).sub(1.0).abs().max()) < 0.1


@pytest.mark.parametrize("scale", [2.0**-140, 1e-30, 1e30, 2.0**100])
def test_extreme_scales(scale: float) -> None:
    out = add_gaussian_(torch.zeros(2000, dtype=torch.float64), scale, seeded(5)) / scale
    assert float(out.std()) == pytest.approx(1.0, rel=0.1)
    assert bool(add_gaussian_(torch.zeros(2000), scale, seeded(5)).isfinite().all())


def test_noise_is_added_once_and_at_its_scale() -> None:
    out = add_gaussian_(torch.full((40_000,), 5.0, dtype=torch.float64), 1000.0, seeded(6))
    assert float(out.std()) == pytest.approx(1000.0, rel=0.03)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.int64), torch.zeros(4, 4).T],
)
def test_bad_tensors(tensor: torch.Tensor) -> None:
    if tensor.dtype is torch.float32:
        tensor = torch.zeros(4, 6).T
    for act in (gaussian_, add_gaussian_):
        with pytest.raises(InvalidArgument, match="tensor must be"):
            act(tensor, 1.0, seeded(0))


@pytest.mark.slow
def test_the_rest_does_not_import_torch() -> None:
    code = (
        "import sys, privet.noise, privet.sensitivity, privet.mechanisms;"
        "privet.noise.secure().gaussian(3); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_the_same_noise_on_every_processor(tmp_path: Path) -> None:
    """Compiled for the least x86-64 processor (no fused operations, short vectors): the same bits."""
    code = (
        "import hashlib, torch; from privet.noise import seeded;"
        "from privet.noise.torch_noise import add_gaussian_;"
        "x = [add_gaussian_(torch.arange(300_000, dtype=t) / 1024, 1.3, seeded(4)).numpy()"
        " for t in (torch.float32, torch.float64)];"
        "print(hashlib.sha256(b''.join(a.tobytes() for a in x)).hexdigest())"
    )
    seen = set()
    for least in (False, True):
        plain = {
            "NUMBA_CPU_NAME": "generic",
            "NUMBA_CPU_FEATURES": "",
            "ATEN_CPU_CAPABILITY": "default",
        }
        env = {
            **os.environ,
            "NUMBA_CACHE_DIR": str(tmp_path / str(least)),
            **(plain if least else {}),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout)
    assert len(seen) == 1
