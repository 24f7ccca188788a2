"""What a teacher sends: clipped codes as whole numbers, in memory or in a file."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.bounds import clip_l2
from privet.errors import InvalidArgument, MissingFile, PrivetError
from privet.methods.pate import storage

Units = NDArray[np.int32] | NDArray[np.int64]

FORMAT = 1
BLOCK = 1 << 16
"""Numbers that are handled at a time, everywhere: memory does not depend on the size of answers."""


class RefusedAnswers(PrivetError):
    """Answers that must not be aggregated: whose, and why."""

    def __init__(self, source: str, problem: str, hint: str = "") -> None:
        self.source, self.problem, self.hint = source, problem, hint
        super().__init__(f"answers {source}: {problem}" + (f"; {hint}" if hint else ""))


@dataclass(frozen=True, kw_only=True)
class Header:
    """The public facts of a set of answers.

    `reducer` and `queries` are hashes: of the map that made the codes, and of the public inputs in
    their order. A code is a row of whole numbers that count multiples of `spacing`. `share` is the
    standard deviation of the noise that the site itself has added, 0 for none; `seeded` says that
    it was drawn from a seed, which is no secret.
    """

    site: str
    reducer: str
    queries: str
    rows: int
    dimension: int
    radius: float
    spacing: float
    share: float = 0.0
    seeded: bool = False

    @property
    def size(self) -> int:
        """How many numbers there are in all."""
        return self.rows * self.dimension

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"format": FORMAT, **vars(self)}


class AnswerSource(ABC):
    """One teacher's answers, read in pieces."""

    header: Header
    """The public facts."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What to call it in an error."""

    @abstractmethod
    def flat(self, start: int, stop: int) -> Units:
        """Numbers start to stop of all rows behind one another, in units of the spacing."""

    def blocks(self) -> Iterator[tuple[int, Units]]:
        """All numbers, a block at a time."""
        for start in range(0, self.header.size, BLOCK):
            yield start, self.flat(start, min(start + BLOCK, self.header.size))

    def longest(self) -> float:
        """The length of the longest row, in one pass over blocks."""
        h = self.header
        squares = np.zeros(h.rows)
        for start, units in self.blocks():
            first = start // h.dimension
            rows = np.arange(first * h.dimension, start + len(units), h.dimension) - start
            part = np.add.reduceat(np.square(units, dtype=np.float64), np.maximum(rows, 0))
            squares[first : first + len(part)] += part
        return float(np.sqrt(squares.max(initial=0.0))) * h.spacing

    @abstractmethod
    def refuse_if_damaged(self) -> None:
        """Raise when the content is not what its maker wrote."""

    def refuse_if_too_long(self) -> None:
        """Raise when a row is longer than the radius (by more than float64 can mistake)."""
        h = self.header
        longest = self.longest()
        if longest > h.radius * (1.0 + (h.dimension + 16) * 2.0**-52):
            raise RefusedAnswers(
                self.label,
                f"a code has length {longest:.6g}, over the radius {h.radius:.6g}",
                "the site must clip its codes: make the file with `privet pate answer`",
            )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Answers(AnswerSource):
    """Clipped codes in memory; make them with `clipped`.

    >>> answers = Answers.clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), radius=1.0, site="a")
    >>> answers.codes().round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """

    header: Header
    units: Units = field(repr=False)

    @classmethod
    def clipped(
        cls, codes: Any, *, radius: float, site: str, reducer: str = "", queries: str = ""
    ) -> Self:
        """Clip each row to `radius` in exact arithmetic (`privet.bounds.clip_l2`).

        A row that is not finite becomes zero.
        """
        radius = _check.positive("radius", radius)
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.size == 0:
            raise InvalidArgument("codes", codes.shape, "of shape (queries, dimension)")
        rows, dimension = codes.shape
        units = np.empty((rows, dimension), dtype=np.int32)
        step, spacing = max(1, BLOCK // dimension), 0.0
        for start in range(0, rows, step):
            part = clip_l2(codes[start : start + step], radius)
            units[start : start + step] = part.units
            spacing = part.spacing
        header = Header(
            site=site,
            reducer=reducer,
            queries=queries,
            rows=rows,
            dimension=dimension,
            radius=radius,
            spacing=spacing,
        )
        return cls(header=header, units=units.reshape(-1))

    @property
    def label(self) -> str:
        return f"of {self.header.site!r}"

    def flat(self, start: int, stop: int) -> Units:
        return self.units[start:stop]

    def refuse_if_damaged(self) -> None:
        """Nothing to compare with: it never left this process."""

    def codes(self) -> NDArray[np.float64]:
        """The codes as numbers."""
        h = self.header
        return self.units.reshape(h.rows, h.dimension).astype(np.float64) * h.spacing

    def write(self, path: str | Path) -> Path:
        """A safetensors file with these answers and nothing else, a checksum inside."""
        note = {**self.header.to_dict(), "checksum": checksum(self)}
        return storage.write(path, {"units": self.units}, note)


@final
class AnswerFile(AnswerSource):
    """Answers in a file, read as they are needed; nothing in it is run.

    `AnswerFile(path)` reads the header; the two checks read all of it, block by block.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise MissingFile(self.path, "make it with `privet pate answer`")
        try:
            file, note = storage.opened(self.path)
            kind = note.pop("format")
            self._checksum = note.pop("checksum")
            self.header = Header(**note)
            _refuse_other_types(self.header)
            length = tuple(file.get_slice("units").get_shape())
            self._dtype, self._start = _place_of_units(self.path)
        except Exception:  # whatever a foreign file makes of itself
            raise RefusedAnswers(
                str(self.path), "is not a file of answers", "make it with `privet pate answer`"
            ) from None
        if kind != FORMAT:
            raise RefusedAnswers(str(self.path), f"has format {kind}, not {FORMAT}")
        if length != (self.header.size,) or self.header.size == 0:
            raise RefusedAnswers(
                str(self.path), f"holds {length} numbers, its header speaks of {self.header.size}"
            )

    @property
    def label(self) -> str:
        return f"{self.path} (site {self.header.site!r})"

    def flat(self, start: int, stop: int) -> Units:
        # read, not mapped: pages of hundreds of mapped files would pile up in memory
        width = self._dtype.itemsize
        with self.path.open("rb") as file:
            file.seek(self._start + start * width)
            units = np.frombuffer(file.read((stop - start) * width), dtype=self._dtype)
        if len(units) != stop - start:
            raise RefusedAnswers(self.label, "it was cut short while it was read")
        return units

    def refuse_if_damaged(self) -> None:
        if checksum(self) != self._checksum:
            raise RefusedAnswers(
                self.label, "content and checksum disagree", "the file was changed; ask for a copy"
            )


def _refuse_other_types(h: Header) -> None:
    whole = all(type(n) is int and n > 0 for n in (h.rows, h.dimension))
    texts = all(isinstance(t, str) for t in (h.site, h.reducer, h.queries))
    numbers = all(type(v) is float and v >= 0.0 for v in (h.radius, h.spacing, h.share))
    if not (whole and texts and numbers and type(h.seeded) is bool):
        raise TypeError


def _place_of_units(path: Path) -> tuple[np.dtype[Any], int]:
    """Type and first byte of the numbers: a safetensors file is a length, a JSON header, data."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(size))["units"]
    types: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
    return types[entry["dtype"]], 8 + size + int(entry["data_offsets"][0])


def checksum(source: AnswerSource) -> str:
    """SHA-256 over the header and all numbers, little-endian.

    It shows damage and careless edits, not a forger, who can compute it anew.
    """
    h = hashlib.sha256(json.dumps(source.header.to_dict(), sort_keys=True).encode())
    for _, units in source.blocks():
        h.update(np.ascontiguousarray(units, dtype=units.dtype.newbyteorder("<")).data)
    return h.hexdigest()
