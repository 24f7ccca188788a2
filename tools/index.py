"""A folder that pip takes as an index, to install privet by its name.

    pip install --extra-index-url file://$PWD/dist/simple 'privet[train,plot]'

    python tools/index.py dist        # after a wheel was built into dist/

The layout is that of PEP 503: one page of projects, one page of files a project, with their
SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from html import escape
from pathlib import Path


def write_index(folder: Path) -> Path:
    """Write folder/simple for every wheel in the folder."""
    by_name: dict[str, list[Path]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name = re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
        by_name.setdefault(name, []).append(wheel)
    if not by_name:
        raise SystemExit(f"error: no wheel in {folder}; build one first")
    simple = folder / "simple"
    shutil.rmtree(simple, ignore_errors=True)
    for name, wheels in by_name.items():
        (simple / name).mkdir(parents=True)
        for wheel in wheels:
            shutil.copy2(wheel, simple / name)
        _page(simple / name, {f"{w.name}#sha256={_digest(w)}": w.name for w in wheels})
    _page(simple, {f"{name}/": name for name in by_name})
    return simple


def _page(folder: Path, links: dict[str, str]) -> None:
    body = "".join(f'<a href="{escape(to)}">{escape(text)}</a><br>' for to, text in links.items())
    page = f'<!doctype html><html><head><meta charset="utf-8"></head><body>{body}</body></html>\n'
    (folder / "index.html").write_text(page)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    print(write_index(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")).resolve())
