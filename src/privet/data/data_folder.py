"""Where data files are, and how missing ones are downloaded when the user asks for it."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from pathlib import Path

from privet._atomic_files import replacing
from privet.errors import InvalidArgument, MissingFile


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds data sets: the argument, `$PRIVET_DATA`, or where downloads go."""
    if folder is not None:
        return Path(folder).expanduser()
    return Path(os.environ.get("PRIVET_DATA") or download_folder())


def download_folder() -> Path:
    """Where downloads go: `$PRIVET_CACHE`/data, or ~/.cache/privet/data."""
    return Path(os.environ.get("PRIVET_CACHE") or Path.home() / ".cache" / "privet") / "data"


def find(name: str, *, folder: Path, hint: str = "") -> Path:
    """The path of a data file in `folder` or among downloads, or an error that names the folder."""
    for place in (folder, download_folder()):
        if (place / name).is_file():
            return place / name
    advice = "pass folder= or set PRIVET_DATA to the folder that holds it"
    raise MissingFile(folder / name, f"{advice}, or {hint}" if hint else advice)


def download(path: Path, *, urls: tuple[str, ...], sha256: str) -> Path:
    """Fetch a file from the first mirror that has it, whole and checked, or not at all."""
    if path.is_file():
        return path
    failures = []
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, replacing(path) as out:
                digest = hashlib.sha256()
                while block := answer.read(1 << 20):
                    digest.update(block)
                    out.write(block)
                if digest.hexdigest() != sha256:
                    found = digest.hexdigest()[:12]
                    raise OSError(f"checksum {found} instead of {sha256[:12]}")
            return path
        except OSError as error:  # what urllib raises too
            failures.append(f"{url}: {error}")
    raise MissingFile(path, "no mirror gave it (" + "; ".join(failures) + ")")


def damaged_file(path: Path, problem: str) -> InvalidArgument:
    """The error for a file that is there but is not what it should be."""
    shown = str(path) if len(str(path)) < 50 else f".../{path.name}"
    return InvalidArgument("file", shown, "a whole, readable data file", problem)
