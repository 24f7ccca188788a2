"""What is claimed for every processor, under the kernels of several.

Libraries choose their kernels by the processor; environment variables make them choose others. Each
setting is a process that runs all cases (`cases.py`): every claim must hold there, and where a
result is claimed to be the same bits everywhere, it must be the same as with the kernels of this
machine. A setting that this processor cannot run is skipped by name, and one that the libraries did
not follow is an error: a test that changed nothing would show nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy._core import _multiarray_umath

from tests.processors.cases import CASES

ROOT = Path(__file__).parents[2]
NEEDS = {"avx": "AVX", "avx2": "AVX2", "fma": "FMA3", "avx512": "AVX512_SKX"}


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Environment variables that make the libraries take another processor's kernels."""

    name: str
    needs: tuple[str, ...] = ()
    openblas: str | None = None
    """The name that OpenBLAS gives to the kernels, where they are chosen."""
    torch: str | None = None
    threads: int = 1
    numpy_without: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


PROCESSORS = (
    Processor(name="this one"),
    Processor(
        name="Haswell",
        needs=("avx2", "fma"),
        openblas="Haswell",
        torch="AVX2",
        numpy_without=("X86_V4",),
        environment={
            "OPENBLAS_CORETYPE": "Haswell",
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
        },
    ),
    Processor(
        name="Zen, two threads",
        needs=("avx2", "fma"),
        openblas="Haswell",  # the same kernels
        torch="AVX2",
        threads=2,
        environment={
            "OPENBLAS_CORETYPE": "Zen",
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
        },
    ),
    Processor(
        name="SkylakeX",
        needs=("avx512",),
        openblas="SkylakeX",
        torch="AVX512",
        environment={
            "OPENBLAS_CORETYPE": "SkylakeX",
            "ATEN_CPU_CAPABILITY": "avx512",
            "MKL_ENABLE_INSTRUCTIONS": "AVX512",
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        },
    ),
    Processor(
        name="Sandybridge",
        needs=("avx",),
        openblas="Sandybridge",
        torch="DEFAULT",
        numpy_without=("X86_V3", "X86_V4"),
        environment={
            "OPENBLAS_CORETYPE": "Sandybridge",
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "AVX",
            "ONEDNN_MAX_CPU_ISA": "AVX",
        },
    ),
    Processor(
        name="Prescott",
        openblas="Katmai",  # what OpenBLAS answers for it
        torch="DEFAULT",
        numpy_without=("X86_V3", "X86_V4"),
        environment={
            "OPENBLAS_CORETYPE": "Prescott",
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
        },
    ),
)

QUICK = (
    "tests/test_rowwise_arithmetic.py",
    "tests/sensitivity",
    "tests/mechanisms",
    "tests/gradients/test_clipped_sum.py",
    "tests/gradients/test_engine.py",
    "tests/methods/dpsgd/test_linear_head.py",
    "tests/methods/dpsgd/test_noise_addition.py",
    "tests/methods/moments/test_one_shot.py",
    "tests/methods/autoencoder/test_sound.py",
)
"""The quick suite's numeric tests that are run again with other kernels."""


def environment(processor: Processor) -> dict[str, str]:
    """The variables of the process; nothing that was set outside stays."""
    chosen = {name for p in PROCESSORS for name in p.environment}
    found = {k: v for k, v in os.environ.items() if k not in chosen}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    found |= dict.fromkeys(threads, str(processor.threads))
    known = [name for name in processor.numpy_without if name in _multiarray_umath.__cpu_dispatch__]
    there = [name for name in known if _multiarray_umath.__cpu_features__.get(name)]
    found.pop("NPY_DISABLE_CPU_FEATURES", None)
    if there:
        found["NPY_DISABLE_CPU_FEATURES"] = " ".join(there)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), found.get("PYTHONPATH", "")])
    return found | processor.environment | {"PYTHONPATH": path}


def skip_if_missing(processor: Processor) -> None:
    """Skips what this processor has no instructions for."""
    missing = [n for n in processor.needs if not _multiarray_umath.__cpu_features__.get(NEEDS[n])]
    if missing:
        pytest.skip(f"this processor has no {', '.join(missing)}")


@cache
def run(processor_name: str, folder: Path) -> dict[str, Any]:
    """What the cases gave there."""
    (processor,) = (p for p in PROCESSORS if p.name == processor_name)
    done = subprocess.run(
        [sys.executable, "-m", "tests.processors.child", str(folder)],
        env=environment(processor),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of public artefacts, made by the first process that needs them."""
    return tmp_path_factory.mktemp("artefacts")


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda p: p.name)
def test_every_claim_holds_and_the_bits_are_the_same(processor: Processor, artefacts: Path) -> None:
    skip_if_missing(processor)
    here, there = run(PROCESSORS[0].name, artefacts), run(processor.name, artefacts)
    kernels = there["kernels"]
    if processor.openblas is not None and kernels["openblas"]:  # numpy may come with another BLAS
        assert kernels["openblas"] == [processor.openblas]
    if processor.torch is not None:
        assert kernels["torch"] == processor.torch
    assert not set(processor.numpy_without) & set(kernels["numpy"])
    for case in CASES:
        found = there["cases"][case.name]
        assert "error" not in found, f"{case.name}:\n{found['error']}"
        if case.same_bits:
            assert found == here["cases"][case.name], f"{case.name}: other bits"


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS[1:], ids=lambda p: p.name)
def test_the_numeric_tests_pass(processor: Processor) -> None:
    skip_if_missing(processor)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", *QUICK]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--durations=0"],
        env=environment(processor),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_check_of_rows_sees_a_row_that_depends_on_its_place() -> None:
    """A product that rounds by place, as some kernels do, must not pass."""
    from tests.processors.case import same_alone

    def by_place(x: Any) -> Any:
        out = x.sum(axis=1)
        out[5::6] = np.nextafter(out[5::6], np.inf)
        return out

    def by_size(x: Any) -> Any:
        return x.sum(axis=1) * (1.0 + 2.0**-52 * (len(x) % 2))

    x = np.random.default_rng(0).random((53, 9)) + 1.0
    for wrong in (by_place, by_size):
        with pytest.raises(AssertionError):
            same_alone(wrong, x)
