"""Whether a model, its record, its card and its ledger belong together; and if not, what does not.

**Guarantee**: without a signature none against somebody who rewrites everything; with one, and a
public key from elsewhere, none but the holder of the key can have written the record. The ledger is
held against the record's head, so that an older state of it is noticed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from privet.errors import LedgerError, MissingFile, PrivetError
from privet.guarantee import EXPERIMENT, Guarantee
from privet.ledger import Ledger
from privet.loss import compose
from privet.runs.folder import (
    CARD,
    CONFIG,
    DATA_KEY,
    METRICS,
    MODEL,
    PAGE,
    digest_of,
    file_digest,
    told_by,
)
from privet.runs.record import (
    GUARANTEE,
    Record,
    loss_of,
    made_by,
    most_true_positives,
    read_record,
)
from privet.runs.signature import signature_problem

KEPT = (CONFIG, METRICS)
"""What the owner of the records may keep: who is given the rest can verify that."""
CLOSE = 1e-9
"""How far a recomputed epsilon may be from the stated one, on another processor."""


@final
@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was checked and what was found wrong; `ok` where nothing was."""

    folder: Path
    checked: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that was checked belongs together."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "ok": self.ok, "run": str(self.folder),
            "checked": list(self.checked), "problems": list(self.problems),
        }  # fmt: skip


def verify(
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    key: Path | None = None,
    data: str | None = None,
) -> Verified:
    """Hold a folder's model, config, card and page, and the ledger, against its record.

    `ledger`: the file that was charged; the folder's own unless told. `key`: the public key that
    must have signed. `data`: a data set's fingerprint, held against the record's.
    """
    folder = Path(folder)
    record = read_record(folder)
    checked, problems = ["record"], []
    if record.get("digest") is None and record.get("migrated_from") == 1:
        problems.append(
            f"{GUARANTEE} is of version 1, which ties nothing together; "
            "`privet record migrate FOLDER` seals it as it is now"
        )
        return Verified(folder=folder, checked=("record",), problems=tuple(problems))
    try:
        problems += _own(record)
        problems += _files(folder, record)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        broken = f"{GUARANTEE} is not the whole record of a run: {type(e).__name__}, {e}"
        return Verified(folder=folder, checked=("record",), problems=(*problems, broken))
    checked += [name for name in record["files"] if (folder / name).exists()]
    if record.get("signature") is not None or key is not None:
        checked.append("signature")
        problem = signature_problem(record, key)
        problems += [problem] if problem else []
    own = folder / "run.ledger"
    path = own if ledger is None and own.exists() else ledger
    if path is not None:
        checked.append("ledger")
        problems += _ledger(Path(path), record)
    if data is not None:
        checked.append("data")
        problems += _data(folder, record, data)
    return Verified(folder=folder, checked=tuple(checked), problems=tuple(problems))


def _own(record: Record) -> Iterator[str]:
    """The record by itself: its seal, and its epsilon against its loss."""
    if record.get("digest") != digest_of(record):
        yield f"{GUARANTEE} was changed after it was written: its digest is not that of its content"
    loss, stated = loss_of(record), Guarantee.from_dict(record["guarantee"])
    if loss is not None and loss.epsilon(stated.delta) > stated.epsilon * (1.0 + CLOSE):
        yield (
            f"{GUARANTEE} states epsilon {stated.epsilon:.4g}, its loss costs "
            f"{loss.epsilon(stated.delta):.4g}"
        )
    status = "release" if stated.release else EXPERIMENT
    if (record["status"], record["guarantee"].get("release", stated.release)) != (
        status, stated.release,
    ):  # fmt: skip
        yield f"{GUARANTEE} is marked {record['status']!r}, and its premises make it {status!r}"
    points = [(float(p["epsilon"]), float(p["delta"])) for p in record["curve"]["points"]]
    if loss is not None and any(loss.epsilon(d) > e * (1.0 + CLOSE) for e, d in points):
        yield f"{GUARANTEE} has a curve below what its loss costs"
    for a in record["attacker"]:
        most = most_true_positives(points, a["false_positive_rate"])
        if a["true_positive_rate_at_most"] < most * (1.0 - CLOSE):
            yield f"{GUARANTEE} promises a weaker attacker than its curve does"


def _files(folder: Path, record: Record) -> Iterator[str]:
    """The files beside the record, each by its digest; card and page also by what they say."""
    config = folder / CONFIG
    if config.exists():
        run = json.loads(config.read_text()).get("run")
        if run != record["run"]:
            yield f"{GUARANTEE} is the record of another run: {record['run']}, here is {run}"
    for name in (MODEL, CONFIG, METRICS, CARD, PAGE):
        if name not in record["files"]:
            yield f"{GUARANTEE} does not say what {name} is"
    for name, digest in record["files"].items():
        path = folder / name
        if not path.exists():
            if name not in KEPT:
                yield f"{name} is missing"
        elif file_digest(path) != digest:
            what = "the model" if name == MODEL else "the file"
            yield f"{name} is not {what} of this record: its content is another"
    if record["made_by"] != made_by():
        return  # another version may tell the same in other words
    for name, text in told_by(record).items():
        path = folder / name
        if path.exists() and path.read_bytes() != text.encode():
            yield f"{name} does not say what the record says: it was edited by hand"


def _ledger(path: Path, record: Record) -> Iterator[str]:
    """The ledger: the same one, no older than the record, with the charges of this run."""
    noted = record["ledger"]
    if noted is None:
        yield "the record names no ledger"
        return
    if not path.exists():
        raise MissingFile(path, "give the ledger that the run was charged to")
    try:
        ledger = Ledger.open(path)
        exported = ledger.export()
    except LedgerError as e:
        yield f"the ledger is damaged: {e}"
        return
    if exported["terms"]["identity"] != noted["identity"]:
        yield f"{path.name} is another ledger than the one that was charged"
        return
    try:
        ledger.verify(head=noted["head"])
    except PrivetError:
        yield (
            f"{path.name} was restored to an older state or rewritten: the head that the record "
            f"noted, {noted['head'][:12]}…, is not in its chain"
        )
    entries = {e.sequence: e for e in ledger.entries()}
    mine = [entries.get(e["sequence"]) for e in noted["entries"]]
    for told, found in zip(noted["entries"], mine, strict=True):
        if found is None or (found.hash, found.token) != (told["hash"], told["token"]):
            yield f"{path.name} has no entry {told['sequence']} as it was charged for this run"
    charged = [e for e in mine if e is not None]
    if len(charged) == len(mine):
        stated = Guarantee.from_dict(record["guarantee"])
        cost = compose([e.loss for e in charged]).epsilon(stated.delta)
        if not math.isclose(cost, stated.epsilon, rel_tol=1e-6):
            states = f"the record states {stated.epsilon:.4g}"
            yield f"the entries of this run cost epsilon {cost:.4g}, {states}"
    more = [e.sequence for e in entries.values() if e.run == record["run"]]
    known = {e["sequence"] for e in noted["entries"]}
    if extra := sorted(set(more) - known):
        yield f"{path.name} has charges of this run that the record does not name: {extra}"


def _data(folder: Path, record: Record, fingerprint: str) -> Iterator[str]:
    """The records, through the key that the folder keeps."""
    noted, key = record["data"]["fingerprint"], folder / DATA_KEY
    if noted is None or not key.exists():
        yield f"the record has no fingerprint of its data, or {DATA_KEY} is missing"
        return
    secret = bytes.fromhex(key.read_text())
    found = "hmac-sha256:" + hmac.new(secret, fingerprint.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(found, noted):
        yield "the data are not those that the model was trained on"
