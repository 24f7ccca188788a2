"""The answers of a teacher: clipped codes as whole numbers, in memory or in a file."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument, MissingFile, PrivetError
from privet.ledger import fingerprint
from privet.methods.pate.reducer_and_label_files import open_tensors, write_tensors
from privet.methods.pate.reducers import Reducer
from privet.sensitivity import clip_l2

Units = NDArray[np.int32] | NDArray[np.int64]

FORMAT = 1
BLOCK = 1 << 16
"""Numbers that are handled at a time, so that memory does not depend on the size of answers: half a
megabyte of int64, which stays in a processor's cache."""


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
    def display_name(self) -> str:
        """What to call it in an error."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Units:
        """Numbers start to stop of all rows behind one another, in units of the spacing."""

    def blocks(self, block: int = BLOCK) -> Iterator[tuple[int, Units]]:
        """All numbers, a block at a time."""
        for start in range(0, self.header.size, block):
            yield start, self.read(start, min(start + block, self.header.size))

    recorded_checksum: str | None = None
    """What its maker wrote down as `checksum`; None of answers that never left this process."""

    def inspect(self, block: int = BLOCK) -> CheckedAnswers:
        """Read all numbers once, and note what they are: lengths of rows, checksum, digests.

        Costs one read, one square and two hashes for each number; 32 bytes of memory a block.
        """
        h = self.header
        if not 0.0 < h.spacing < math.inf:
            raise RefusedAnswers(self.display_name, f"its spacing is {h.spacing!r}")
        squares, digests = np.zeros(h.rows), bytearray()
        whole = hashlib.sha256(json.dumps(h.to_dict(), sort_keys=True).encode())
        for start, live in self.blocks(block):
            units = live.copy()  # a view of memory may change under our eyes
            whole.update(np.ascontiguousarray(units, dtype=units.dtype.newbyteorder("<")).data)
            digests += _digest_numbers(units)
            first = start // h.dimension
            rows = np.arange(first * h.dimension, start + len(units), h.dimension) - start
            part = np.add.reduceat(np.square(units, dtype=np.float64), np.maximum(rows, 0))
            squares[first : first + len(part)] += part
        found = CheckedAnswers(
            source=self,
            header=h,
            checksum=whole.hexdigest(),
            max_norm=float(np.sqrt(squares.max(initial=0.0))) * h.spacing,
            block=block,
            digests=bytes(digests),
        )
        if self.recorded_checksum not in (None, found.checksum):
            raise RefusedAnswers(
                self.display_name,
                "content and checksum disagree",
                "the file was changed; ask for a copy",
            )
        return found


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedAnswers:
    """Answers of which every number was read once: what is read again must be the same.

    **Guarantee** `read_block` gives numbers with the digest that `AnswerSource.inspect` noted, or
    raises: a file that is changed between the check and the sum is never summed.
    """

    source: AnswerSource = field(repr=False)
    header: Header
    checksum: str
    """SHA-256 over the header and all numbers, little-endian: it shows damage and careless edits,
    not a forger, who can compute it anew."""
    max_norm: float
    """The length of the longest row."""
    block: int
    """How many numbers are read at a time."""
    digests: bytes = field(repr=False)
    """SHA-256 of the numbers of each block, behind one another."""

    @property
    def display_name(self) -> str:
        """What to call it in an error."""
        return self.source.display_name

    def check_norms(self) -> None:
        """Raise when a row is longer than the radius (by more than float64 can mistake)."""
        h = self.header
        # as `sensitivity.clipping.rounding_room` leaves
        if not self.max_norm <= h.radius * (1.0 + (h.dimension + 16) * 2.0**-52):
            raise RefusedAnswers(
                self.display_name,
                f"a code has length {self.max_norm:.6g}, over the radius {h.radius:.6g}",
                "the site must clip its codes: make the file with `privet pate answer`",
            )

    def read_block(self, start: int) -> Units:
        """The block of numbers from `start` on, as it was when it was checked."""
        units = self.source.read(start, min(start + self.block, self.header.size)).copy()
        size, place = hashlib.sha256().digest_size, start // self.block
        if _digest_numbers(units) != self.digests[place * size : (place + 1) * size]:
            raise RefusedAnswers(
                self.display_name,
                "it was changed between the check and the sum",
                "leave the files alone while they are aggregated, then aggregate again",
            )
        return units


def _digest_numbers(units: Units) -> bytes:
    """SHA-256 of whole numbers, the same whether they are stored in 32 or in 64 bits."""
    narrow = np.iinfo(np.int32)
    fits = narrow.min <= units.min(initial=0) and units.max(initial=0) <= narrow.max
    plain = np.ascontiguousarray(units, dtype="<i4" if fits else "<i8")
    return hashlib.sha256(plain.data).digest()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Answers(AnswerSource):
    """Clipped codes in memory; make them with `clip`.

    >>> answers = Answers.clip(np.array([[3.0, 4.0], [0.3, 0.4]]), radius=1.0, site="a")
    >>> answers.codes().round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """

    header: Header
    units: Units = field(repr=False)

    @classmethod
    def clip(
        cls, codes: Any, *, radius: float, site: str, reducer: str = "", queries: str = ""
    ) -> Self:
        """Clip each row to `radius` in exact arithmetic (`privet.sensitivity.clip_l2`).

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
    def display_name(self) -> str:
        return f"of {self.header.site!r}"

    def read(self, start: int, stop: int) -> Units:
        return self.units[start:stop]

    def codes(self) -> NDArray[np.float64]:
        """The codes as numbers."""
        h = self.header
        return self.units.reshape(h.rows, h.dimension).astype(np.float64) * h.spacing

    def write(self, path: str | Path) -> Path:
        """A safetensors file with these answers and nothing else, a checksum inside."""
        note = {**self.header.to_dict(), "checksum": self.inspect().checksum}
        return write_tensors(path, {"units": self.units}, note)


@final
class AnswerFile(AnswerSource):
    """Answers in a file, read as they are needed; nothing in it is run.

    `AnswerFile(path)` reads the header; `inspect` reads all of it, block by block.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise MissingFile(self.path, "make it with `privet pate answer`")
        try:
            file, note = open_tensors(self.path)
            kind = note.pop("format")
            self.recorded_checksum = str(note.pop("checksum"))
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
    def display_name(self) -> str:
        return f"{self.path} (site {self.header.site!r})"

    def read(self, start: int, stop: int) -> Units:
        # read, not mapped: pages of hundreds of mapped files would pile up in memory
        width = self._dtype.itemsize
        with self.path.open("rb") as file:
            file.seek(self._start + start * width)
            units = np.frombuffer(file.read((stop - start) * width), dtype=self._dtype)
        if len(units) != stop - start:
            raise RefusedAnswers(self.display_name, "it was cut short while it was read")
        return units


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


def encode_predictions(
    site: str, predictions: Any, *, reducer: Reducer, inputs_hash: str, expected: int
) -> Answers:
    """What a site sends of its teacher's predictions: one clipped code a public input."""
    codes = reducer.encode(np.asarray(predictions))
    if len(codes) != expected:
        raise InvalidArgument("answers", len(codes), f"one for each of {expected} inputs")
    return Answers.clip(
        codes, radius=reducer.radius, site=site, reducer=reducer.name, queries=inputs_hash
    )


def hash_inputs(public_inputs: Any) -> str:
    """A hash of the public inputs in their order: of an array, or of a list of arrays or names."""
    if isinstance(public_inputs, np.ndarray) and not public_inputs.dtype.hasobject:
        return fingerprint(public_inputs)
    return fingerprint(
        *(str(x).encode() if isinstance(x, str | Path) else np.asarray(x) for x in public_inputs)
    )
