"""A toy method that lives outside privet, installed as an entry point for one test session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from privet import plugins
from privet.methods import catalogue

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `pip install` would leave of a package with one entry point."""
    info = tmp_path / "site" / "nearest_mean-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nearest-mean\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[privet.methods]\nnearest-mean = nearest_mean:NearestMean\n"
    )
    monkeypatch.syspath_prepend(str(OUTSIDE))
    monkeypatch.syspath_prepend(str(info.parent))
    for cached in (catalogue.method_names, plugins.plugins):
        cached.cache_clear()
    yield info.parent
    sys.modules.pop("nearest_mean", None)
    for cached in (catalogue.method_names, plugins.plugins):
        cached.cache_clear()
