"""What is published depends on nobody's record exactly: not on tests, not on training."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.cli.main import main
from privet.methods.catalogue import method_names, method_type
from privet.runs.run_folder import PUBLISHED

OWN_METHODS = [
    name for name in method_names() if method_type(name).__module__.startswith("privet.")
]


def made(folder: Path, name: str, *, swapped: str = "") -> dict[str, bytes]:
    """The public files of a seeded run; the labels of one part may be turned round."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, n in (("train", 300), ("test", 60)):
        x = rng.uniform(size=(n, 4)).astype(np.float32)
        y = (x[:, 0] > x[:, 1]).astype(np.int64)
        arrays |= {f"x_{part}": x, f"y_{part}": 1 - y if part == swapped else y}
    folder.mkdir()
    data = folder / "clinic.npz"
    np.savez(data, **arrays)
    (folder / "ranges.json").write_text(json.dumps({"bounds": [0, 1], "classes": ["no", "yes"]}))
    kind, out = method_type(name), folder / "run"
    more = ["--public", "40"] if kind.public_inputs_field is not None else []
    more += ["--epochs", "1"] if "epochs" in kind.__dataclass_fields__ else []
    with pytest.raises(SystemExit) as left:
        main(["train", name, "--data", str(data), "--bounds", str(folder / "ranges.json"), "--out",
              str(out), "--epsilon", "4", "--seed", "0", "--anyway", *more])  # fmt: skip
    assert not left.value.code
    assert "test_accuracy" in json.loads((out / "private" / "metrics.json").read_text())
    assert (out / "private").stat().st_mode & 0o077 == 0
    return {name: (out / name).read_bytes() for name in PUBLISHED}


def masked(content: bytes) -> str:
    """Without names drawn by lot, digests and dates."""
    text = re.sub(r"run-[0-9a-f]{16}", "RUN", content.decode())
    text = re.sub(r"(hmac-sha256:)?[0-9a-f]{12,64}…?", "HEX", text)
    return re.sub(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d\+00:00)?)?", "DATE", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_METHODS)
def test_no_public_file_tells_an_exact_fact(tmp_path: Path, name: str) -> None:
    """Other labels of test records change nothing; of training records, the noised model alone."""
    plain = made(tmp_path / "plain", name)
    tests = made(tmp_path / "tests", name, swapped="test")
    trained = made(tmp_path / "trained", name, swapped="train")
    assert plain["model.safetensors"] == tests["model.safetensors"]
    assert plain["model.safetensors"] != trained["model.safetensors"]
    for file in sorted(set(plain) - {"model.safetensors"}):
        assert masked(plain[file]) == masked(tests[file]), file
        assert masked(plain[file]) == masked(trained[file]), file
    assert str(tmp_path).encode() not in b"".join(plain.values())
