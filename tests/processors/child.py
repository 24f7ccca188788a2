"""Runs every case in this process and writes what came out: `python -m tests.processors.child`.

A process of its own, because libraries choose their kernels when they are loaded.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any


def kernels() -> dict[str, Any]:
    """Which kernels the libraries say they use."""
    import torch
    from numpy._core._multiarray_umath import __cpu_features__
    from threadpoolctl import threadpool_info

    blas = [i for i in threadpool_info() if i["internal_api"] == "openblas"]
    return {
        "openblas": sorted({i["architecture"] for i in blas}),
        "blas_threads": max((i["num_threads"] for i in blas), default=0),
        "torch": torch.backends.cpu.get_cpu_capability(),
        "torch_threads": torch.get_num_threads(),
        "numpy": sorted(name for name, there in __cpu_features__.items() if there),
    }


def main() -> None:
    """Reads the folder for artefacts, prints one JSON object."""
    import numpy as np

    from tests.processors.case import digest
    from tests.processors.cases import CASES

    folder = Path(sys.argv[1])
    found: dict[str, dict[str, str]] = {}
    for case in CASES:
        try:
            with np.errstate(all="raise", under="ignore"):
                found[case.name] = {"digest": digest(case.run(folder))}
        except Exception:
            found[case.name] = {"error": traceback.format_exc()}
    print(json.dumps({"kernels": kernels(), "cases": found}))


if __name__ == "__main__":
    main()
