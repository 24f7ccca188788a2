"""A record against the ledger that was charged: the same one, no older, with this run's charges."""

from __future__ import annotations

import math
from pathlib import Path

from privet import premises
from privet.accounting import compose
from privet.errors import LedgerError, MissingFile, PrivetError
from privet.guarantee import Guarantee, number_to_json
from privet.ledger import Entry, Ledger
from privet.ledger.curator_key import is_identity
from privet.runs.guarantee_record import GuaranteeRecord, loss_of
from privet.runs.statement_check import Findings, falls_below


def check_ledger(path: Path, record: GuaranteeRecord, found: Findings) -> None:
    """Hold what the record says was charged, and of whom, against the ledger's entries."""
    noted, problems = record["ledger"], found.problems
    if noted is None:
        problems.append("the record names no ledger")
        return
    if not path.exists():
        raise MissingFile(path, "give the ledger that the run was charged to")
    try:
        ledger = Ledger.open(path)
        statement, entries = ledger.statement(), ledger.entries()
    except LedgerError as e:
        problems.append(f"the ledger is damaged: {e}")
        return
    if statement["identity"] != noted["identity"]:
        problems.append(f"{path.name} is another ledger than the one that was charged")
        return
    try:
        ledger.verify(head=noted["head"])
    except PrivetError:
        problems.append(
            f"{path.name} was restored to an older state or rewritten: the head that the record "
            f"noted, {noted['head'][:12]}…, is not in its chain"
        )
    mine = _entries_of_run(path, record, entries, found)
    if mine is not None:
        _check_cost(ledger, mine, record, found)
        _check_scope(path, mine, record, found)
    _check_total(ledger, entries, record, found)


def _entries_of_run(
    path: Path, record: GuaranteeRecord, entries: tuple[Entry, ...], found: Findings
) -> list[Entry] | None:
    """The entries that the record names, which must be all of this run; None where one is not."""
    noted, by_number = record["ledger"]["entries"], {e.sequence: e for e in entries}
    mine = [by_number.get(e["sequence"]) for e in noted]
    for told, entry in zip(noted, mine, strict=True):
        if entry is None or (entry.hash, entry.token) != (told["hash"], told["token"]):
            found.problems.append(
                f"{path.name} has no entry {told['sequence']} as it was charged for this run"
            )
    for entry in filter(None, mine):
        if entry.run not in (None, record["run"]):
            where = f"entry {entry.sequence} of {path.name}"
            found.differs("run", record["run"], entry.run, where)
    known = {e["sequence"] for e in noted}
    if extra := [e.sequence for e in entries if e.run == record["run"] and e.sequence not in known]:
        found.problems.append(
            f"{path.name} has entries of this run that the record does not name: {extra}"
        )
    if not mine:
        found.problems.append(f"the record names no entries of {path.name}: nothing was charged")
    return [e for e in mine if e is not None] if mine and None not in mine else None


def _check_cost(
    ledger: Ledger, mine: list[Entry], record: GuaranteeRecord, found: Findings
) -> None:
    stated, paid = Guarantee.from_dict(record["guarantee"]), compose([e.loss for e in mine])
    cost, loss = paid.epsilon(stated.delta), loss_of(record)
    if loss is not None and falls_below(loss, paid, record):
        found.problems.append("the record's loss has a curve below that of what was charged")
    if not math.isclose(cost, stated.epsilon, rel_tol=1e-6):
        found.problems.append(
            f"the entries of this run cost epsilon {cost:.4g}, the record states "
            f"{stated.epsilon:.4g}"
        )
    if record["date"] is not None and record["date"][:19] < mine[-1].when[:19]:
        found.differs("date", record["date"], mine[-1].when, "the last charge")
    said = record["given"]["purpose"]
    charged = {e.purpose for e in mine}
    if charged - {None} and charged != {said}:
        found.differs("purpose", said, "; ".join(sorted(filter(None, charged))), "the ledger")


def _check_scope(path: Path, mine: list[Entry], record: GuaranteeRecord, found: Findings) -> None:
    """Whose contribution was charged for, and by whose noise."""
    stated = Guarantee.from_dict(record["guarantee"])
    key = next((p for p in stated.premises if p.about == premises.SECRET_SEED.about), None)
    for entry in mine:
        scope = entry.scope
        if scope is None:
            found.not_checked.append(f"what entry {entry.sequence} is about: it does not say")
            continue
        charged = {
            "unit": scope.unit,
            "adjacency": scope.adjacency or entry.loss.adjacency,
            "protects": scope.protects,
        }
        for name, value in charged.items():
            if getattr(stated, name) is not value:
                where = f"entry {entry.sequence} of {path.name}"
                found.differs(name, getattr(stated, name), value, where)
        if scope.secret is False and key != premises.SECRET_SEED:
            words = None if key is None else key.text
            found.differs("noise key", words, "a seed", f"entry {entry.sequence} of {path.name}")
        named = record["data"]["fingerprint"]
        if is_identity(entry.dataset) and entry.dataset != named:
            where = f"entry {entry.sequence} of {path.name}"
            found.differs("data", named, entry.dataset, where)
        elif named is not None and entry.dataset != named:
            found.not_checked.append(f"which data entry {entry.sequence} is about: it has no name")


def _check_total(
    ledger: Ledger, entries: tuple[Entry, ...], record: GuaranteeRecord, found: Findings
) -> None:
    """What the record says of the ledger as it stood at the head that it noted."""
    noted, count = record["ledger"], record["ledger"]["count"]
    if not 0 < count <= len(entries) or entries[count - 1].hash != noted["head"]:
        if noted["head"] in {e.hash for e in entries}:
            found.differs("count", noted["count"], "another number of entries", "the ledger's head")
        return
    if later := len({e.run or e.sequence for e in entries[count:]}):
        now = ledger.guarantee()
        found.not_checked.append(
            f"{later} release{'s' * (later > 1)} charged after this one: by now the ledger "
            f"promises epsilon {now.epsilon:.4g}"
        )
    then = ledger.statement(count)
    if noted.get("releases") != then.pop("releases"):
        found.problems.append("the record's list of releases is not the one in the ledger")
    loss = loss_of(record)
    if loss is not None and "after_one_more" in noted:  # a student of labels does not say it
        parts = [*(e.loss_to_compose for e in entries[:count]), loss]
        total = compose(parts, adjacency=ledger.adjacency.of_losses)
        then["after_one_more"] = number_to_json(total.epsilon(ledger.cap_delta))
    for name, value in then.items():
        said = noted.get(name)
        numbers = isinstance(value, float) and isinstance(said, int | float)
        if said != value and not (numbers and math.isclose(said, value, rel_tol=1e-6)):
            found.differs(name, said, value, "the ledger")
