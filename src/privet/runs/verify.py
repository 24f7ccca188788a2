"""Whether a model, its record, its card and its ledger belong together; and if not, what does not.

**Guarantee**: without a signature none against somebody who rewrites everything; with one, and a
public key from elsewhere, none but the holder of the key can have written the record. The ledger is
held against the record's head, so that an older state of it is noticed.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, final

from privet._canonical_json import sha256_hex
from privet.accounting.trade_off import RATES
from privet.errors import InvalidArgument, PrivetError
from privet.guarantee import EXPERIMENT, Guarantee
from privet.ledger import CuratorKey
from privet.ledger.curator_key import key_path, read_key
from privet.report.explanation import Explanation, explain
from privet.runs.guarantee_record import (
    DELTAS,
    GUARANTEE,
    GuaranteeRecord,
    loss_of,
    made_by,
    read_record,
    trade_off_of,
)
from privet.runs.ledger_check import check_ledger
from privet.runs.run_folder import (
    CARD,
    CONFIG,
    DECLARATION,
    MODEL,
    PAGE,
    WHERE,
    dated,
    later_records,
    packed_config,
    record_digest,
    render_record,
)
from privet.runs.signature import UNSIGNED, Signature, read_signature
from privet.runs.statement_check import (
    CLOSE,
    Findings,
    check_statement,
    is_same_software,
    schema_problems,
)

KEPT = (CONFIG, DECLARATION)
"""What may be left out: who is given the rest can verify that."""
CHECKPOINT = "checkpoint.safetensors"
OWN = (CHECKPOINT, "run.ledger")
"""What a training leaves besides: how the names of these files begin."""
UNSEALED = (
    f"{GUARANTEE} is of version 1, which ties nothing together; "
    "`privet record migrate FOLDER` seals it as it is now"
)
_BROKEN = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""What reading a record, or a file beside it, raises that is not what `privet` writes."""
A_DAY = timedelta(days=1)
"""By how much the clocks of two machines may differ."""
CLOSE_RATES = 5e-3
"""How far a rate may lie below the one computed here, relative to it: the accountant chooses where
to compute by what it finds, so that another machine gives away a little more or less (0.2%)."""


@final
@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a record says, what was checked, what was found wrong, and what nobody looked at."""

    folder: Path
    record: GuaranteeRecord = field(repr=False)
    checked: tuple[str, ...]
    problems: tuple[str, ...]
    not_checked: tuple[str, ...] = ()
    signature: Signature = UNSIGNED
    unanswered: tuple[str, ...] = ()
    """Later records that the key which the caller named did not sign."""

    @property
    def ok(self) -> bool:
        """Whether nothing that was looked at contradicts the record."""
        return not self.problems

    @property
    def verified(self) -> bool:
        """Whether besides it is signed by the key that the caller named."""
        return self.ok and self.signature.by_named_key

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        promise = self.record["guarantee"]
        return {
            "ok": self.ok, "verified": self.verified, "run": str(self.folder),
            "status": self.record["status"],
            **{k: promise.get(k) for k in ("epsilon", "delta", "unit", "adjacency", "protects",
                                           "standing")},
            "signed": self.signature.to_dict(), "not_verified": list(self.unanswered),
            "checked": list(self.checked), "problems": list(self.problems),
            "not_checked": list(self.not_checked),
        }  # fmt: skip


def verify(
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    key: Path | None = None,
    data: str | None = None,
    curator: CuratorKey | None = None,
) -> Verified:
    """Hold a folder's model, config, card and page, and the ledger, against its record.

    `ledger`: the file that was charged; the folder's own unless told. `key`: the public key that
    must have signed. `data`: a data set's fingerprint, held against the record's under the
    key of its `curator`, by default the one of this user.
    """
    folder = Path(folder)
    record = read_record(folder)
    if not is_sealed(record):
        return Verified(folder=folder, record=record, checked=("record",), problems=(UNSEALED,))
    found, checked = Findings(), ["record"]
    signature = read_signature(record, key)
    try:
        found.problems += _own(record)
        found.problems += _files(folder, record)
        if (folder / MODEL).exists():
            config = packed_config((folder / MODEL).read_bytes())
            found.problems += _config(folder, config)
            check_statement(record, config, found, trusted=signature.by_named_key)
            checked.append("statement of the method")
    except _BROKEN as e:
        found.problems.append(
            f"{GUARANTEE} is not the whole record of a run: {type(e).__name__}, {e}"
        )
        return Verified(
            folder=folder, record=record, checked=("record",), problems=tuple(found.problems),
            signature=signature,
        )  # fmt: skip
    checked += [name for name in record["files"] if (folder / name).exists()]
    if signature.public_key or key is not None:
        checked.append("signature")
    found.problems += [p for p in signature.problems if p not in found.problems]
    unanswered = []
    for later in later_records(folder):
        checked.append(later.name)
        wrong, by = _later(folder, later.name, record, key)
        found.problems += wrong
        if not by.by_named_key:
            unanswered.append(later.name)
            why = f"signed by {by.public_key}" if by.public_key else "it is not signed"
            found.not_checked.append(f"who wrote {later.name}: {why}")
    if strange := _strange(folder, record):
        found.not_checked.append(f"files that the record does not name: {', '.join(strange)}")
    if (folder / CHECKPOINT).exists():
        found.not_checked.append(f"{CHECKPOINT}: training goes on from it; do not give it away")
    own = folder / "run.ledger"
    path = own if ledger is None and own.exists() else ledger
    if path is not None:
        checked.append("ledger")
        check_ledger(Path(path), record, found)
    if data is not None:
        checked.append("data")
        found.problems += _data(record, data, curator or read_key(key_path()))
    found.not_checked += _left_open(record, signature, ledger=path is not None, data=data)
    return Verified(
        folder=folder, record=record, checked=tuple(checked), problems=tuple(found.problems),
        not_checked=tuple(found.not_checked), signature=signature, unanswered=tuple(unanswered),
    )  # fmt: skip


def _left_open(
    record: GuaranteeRecord, signature: Signature, *, ledger: bool, data: str | None
) -> Iterator[str]:
    """What nobody looked at, and what nobody can look at."""
    if record["made_by"] != made_by():
        yield "whether card and page say what the record says: another version wrote them"
    if not signature.public_key:
        yield "who wrote this record: it is not signed"
    elif not signature.by_named_key:
        yield f"whose key {signature.public_key} is: name the one you trust (--key FILE)"
    if not ledger:
        noted = record["ledger"]
        gone = noted is not None and noted["in_memory"]
        hint = "it was kept in memory, and is gone" if gone else "give the ledger (--ledger FILE)"
        yield f"what was charged, and what else: {hint}"
    if data is None:
        yield "which records it was trained on: give them, where you have them (--data FILE)"
    if said := [name for name, value in record["given"].items() if value]:
        yield f"what somebody said: {', '.join(said)}"
    if record["measured"]:
        yield "released test metrics: their noise cannot be drawn again"
    if record["evidence"]:
        yield "audits and attacks that were added: run them again"
    assumed = [p["about"] for p in record["guarantee"]["premises"] if p["backing"] == "assumed"]
    if assumed:
        yield f"{len(assumed)} premises that are assumed: {', '.join(assumed)}"


def is_sealed(record: GuaranteeRecord) -> bool:
    """Whether a record has a seal at all; one of version 1 had none."""
    return not (record.get("digest") is None and record.get("migrated_from") == 1)


def seal_problems(record: GuaranteeRecord) -> Iterator[str]:
    """The record against its own digest, and against its signature where it has one."""
    if record.get("digest") != record_digest(record):
        yield f"{GUARANTEE} was changed after it was written: its digest is not that of its content"
    yield from read_signature(record, None).problems


def file_problems(record: GuaranteeRecord, contents: Mapping[str, bytes]) -> Iterator[str]:
    """The content of files by their names, against the digests that the record has of them."""
    for name, content in contents.items():
        if name not in record["files"]:
            yield f"{GUARANTEE} does not say what {name} is"
        elif sha256_hex(content) != record["files"][name]:
            what = "the model" if name == MODEL else "the file"
            yield f"{name} is not {what} of this record: its content is another"


def check_sealed(folder: Path, record: GuaranteeRecord, contents: Mapping[str, bytes]) -> None:
    """Raise unless a sealed record and these files of its folder are as they were written.

    Quick: one hash of each file, and one epsilon. Its whole curve, the card, the page and the
    ledger are held against it by `verify`.
    """
    try:
        problems = [*seal_problems(record), *file_problems(record, contents)]
        problems += statement_problems(record)
    except _BROKEN as e:
        problems = [f"{GUARANTEE} is not the whole record of a run: {type(e).__name__}, {e}"]
    if problems:
        hint = f"{problems[0]}; get the run again, `privet verify` tells all that differs"
        raise InvalidArgument("run", str(folder), "as it was written", hint)


def statement_problems(record: GuaranteeRecord) -> Iterator[str]:
    """What a record states, in figures and in words, against its own loss and premises."""
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
    text = record["guarantee"].get("text", str(stated))
    figures = str(stated).split(",")[:2]  # other versions may word the rest otherwise
    if text != str(stated) and (text.split(",")[:2] != figures or is_same_software(record)):
        yield f"{GUARANTEE} says in words {text!r}, and its figures and premises {str(stated)!r}"


def _own(record: GuaranteeRecord) -> Iterator[str]:
    """The record by itself: its seal, what it states, its curve and what follows from it."""
    yield from seal_problems(record)
    yield from statement_problems(record)
    loss, same = loss_of(record), is_same_software(record)
    stated = Guarantee.from_dict(record["guarantee"])
    if loss is not None and record["ledger"] is None:
        yield f"{GUARANTEE} names no ledger: nothing was charged"
    if (date := record["date"]) and datetime.fromisoformat(date) > datetime.now(UTC) + A_DAY:
        yield f"{GUARANTEE} has a date that is still to come: {date}"
    order = [p["about"] for p in record["guarantee"]["premises"] if "about" in p]
    if same and order != [p.about for p in stated.premises]:
        yield f"{GUARANTEE} lists its premises in another order than the weakest first"
    points = [(float(p["epsilon"]), float(p["delta"])) for p in record["curve"]["points"]]
    if loss is not None and any(loss.epsilon(d) > e * (1.0 + CLOSE) for e, d in points):
        yield f"{GUARANTEE} has a curve below what its loss costs"
    told_at = [d for _, d in points]
    if loss is not None and same and told_at != sorted({*DELTAS, stated.delta}):
        yield f"{GUARANTEE} leaves points of its curve out"
    if same and [a["false_positive_rate"] for a in record["attacker"]] != list(RATES):
        yield f"{GUARANTEE}: attacker is not told at the rates {RATES}"
    attacks = trade_off_of(record)
    for a in record["attacker"]:
        most = attacks.tpr(a["false_positive_rate"])[1]
        if a["true_positive_rate_at_most"] < most * (1.0 - CLOSE_RATES):
            yield f"{GUARANTEE} promises a weaker attacker than its curve does"
    if (told := record.get("explanation")) is None:
        if loss is not None:
            yield f"{GUARANTEE} lacks its explanation, with its warnings"
        return
    said = Explanation.from_dict(told)
    due = explain(attacks, epsilon=stated.epsilon, delta=stated.delta, unit=stated.unit)
    low = any(a < b * (1.0 - CLOSE_RATES) for a, b in zip(said.bounds, due.bounds, strict=True))
    if said.asked != due.asked:
        yield f"{GUARANTEE}: explanation speaks of other rates of false alarms, or other beliefs"
    if low or (said.epsilon, said.delta, said.unit) != (due.epsilon, due.delta, due.unit):
        yield f"{GUARANTEE}: explanation promises a weaker attacker than its curve does"
    if same and told != said.to_dict():
        yield f"{GUARANTEE}: explanation says in words something else than in numbers"


def _files(folder: Path, record: GuaranteeRecord) -> Iterator[str]:
    """The files beside the record, each by its digest; card and page also by what they say."""
    config = folder / CONFIG
    if config.exists():
        run = json.loads(config.read_text()).get("run")
        if run != record["run"]:
            yield f"{GUARANTEE} is the record of another run: {record['run']}, here is {run}"
    for name in (MODEL, CONFIG, CARD, PAGE):
        if name not in record["files"]:
            yield f"{GUARANTEE} does not say what {name} is"
    for name in record["files"]:
        path = folder / name
        if path.exists():
            yield from file_problems(record, {name: path.read_bytes()})
        elif name not in KEPT:
            yield f"{name} is missing"
    yield from _told(folder, record, "")


def _told(folder: Path, record: GuaranteeRecord, date: str) -> Iterator[str]:
    """Card and page against what would be written from the record; of another version, the mark."""
    same = record["made_by"] == made_by()  # another version may tell the same in other words
    for name, text in render_record(record).items() if same else ((CARD, ""), (PAGE, "")):
        path = folder / dated(name, date)
        if not path.exists():
            continue
        said = path.read_bytes()
        if same and said != text.encode():
            yield f"{path.name} does not say what the record says: one of them was edited by hand"
        elif record["status"] == EXPERIMENT and EXPERIMENT.encode() not in said:
            yield f"{path.name} does not say {EXPERIMENT}, as the record does"


def _later(
    folder: Path, name: str, first: GuaranteeRecord, key: Path | None
) -> tuple[list[str], Signature]:
    """A record that evidence was added to: it must say the same as the signed one otherwise."""
    date = name.split(".", 1)[1].rsplit(".", 1)[0]
    try:
        later = read_record(folder, name)
        wrong = [problem.replace(GUARANTEE, name) for problem in seal_problems(later)]
        if later.get("adds_to") != first["digest"]:
            wrong.append(f"{name} does not add to the record in {GUARANTEE}")
        apart = ("evidence", "adds_to", "files", "digest", "signature")
        wrong += [
            f"{name} says something else than {GUARANTEE} about {field_name}"
            for field_name in sorted({*first, *later} - set(apart))
            if later.get(field_name) != first.get(field_name)
        ]
        due = {**first["files"], dated(CARD, date): "", dated(PAGE, date): ""}
        wrong += [
            f"{name} does not say what {file} is"
            for file in sorted({*due} - {CARD, PAGE, *later["files"]})
        ]
        for file in later["files"]:
            if (folder / file).exists():
                content = {file: (folder / file).read_bytes()}
                wrong += [p.replace(GUARANTEE, name) for p in file_problems(later, content)]
        wrong += _told(folder, later, date)
        wrong += [p.replace(GUARANTEE, name) for p in schema_problems(later)]
        by = read_signature(later, None if "signature" not in later else key)
        return wrong + [p for p in by.problems if p not in wrong], by
    except (*_BROKEN, PrivetError) as e:
        return [f"{name} is not the whole record of a run: {type(e).__name__}, {e}"], UNSIGNED


def _config(folder: Path, header: Mapping[str, Any]) -> Iterator[str]:
    """config.json against what the model has of it; `load` reads classes and ranges from there."""
    path = folder / CONFIG
    if not path.exists():
        return
    told = dict(json.loads(path.read_text()))
    told.pop("run", None)
    names = {*header, *told} if "origin" in header else {*header}  # older ones said more beside it
    for name in sorted(names):
        if name not in header or told.get(name) != header[name]:
            yield f"{CONFIG} says otherwise than the model about {name}"


def _strange(folder: Path, record: GuaranteeRecord) -> list[str]:
    """Files of which no record says what they are: nobody answers for them."""
    named = {*record["files"], GUARANTEE}
    for later in later_records(folder):
        parts = later.name.split(".", 1)[1].rsplit(".", 1)[0]
        named |= {later.name, dated(CARD, parts), dated(PAGE, parts)}
    private = Path(WHERE).parts[0]
    return sorted(
        p.name
        for p in folder.iterdir()
        if p.name not in named and p.name != private and not p.name.startswith(OWN)
    )


def _data(record: GuaranteeRecord, fingerprint: str, key: CuratorKey) -> Iterator[str]:
    """The records, under the curator's key."""
    noted, by = record["data"]["fingerprint"], record["data"].get("curator_key")
    if noted is None:
        yield "the record names no data: it was made without a curator's key"
    elif by != key.name:
        yield f"the data were named under another curator's key, {by}; this one is {key.name}"
    elif not hmac.compare_digest(key.identify(fingerprint), noted):
        yield "the data are not those that the model was trained on"
