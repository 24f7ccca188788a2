"""Verdicts of attacks and audits in the record of a run: added when asked, and sealed anew."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from privet._words import percent
from privet.audit import Finding
from privet.audit.finding import Verdict
from privet.audit.membership import MembershipFinding
from privet.errors import InvalidArgument
from privet.runs.folder import write_record
from privet.runs.record import Record, read_record
from privet.runs.verify import verify

RATE = 0.01
"""The false-positive rate at which a membership attack is held against the bound."""


def add_audit(folder: Path, found: Finding) -> Record:
    """What an audit reached of the stated epsilon."""
    text = f"{found.verdict.value} ({found.confidence:.0%} confidence). {found.in_words}"
    return _added(folder, "audit", text, found.verdict)


def add_attack(folder: Path, found: MembershipFinding) -> Record:
    """What a membership attack reached, against what no attacker can exceed.

    It is about the records without noise: whoever adds it publishes that.
    """
    record = read_record(folder)
    most = next(a for a in record["attacker"] if a["false_positive_rate"] == RATE)
    bound, rate = most["true_positive_rate_at_most"], found.tpr_at[RATE]
    verdict = Verdict.FALSIFIED if rate.low > bound else Verdict.CONSISTENT
    text = (
        f"{verdict.value}: {found.attack}, AUC {found.auc.value:.3f} (0.5 is guessing); finds "
        f"{percent(rate.value)} of those inside at {percent(RATE)} false alarms, where no attack "
        f"exceeds {percent(bound)}"
    )
    return _added(folder, "attack", text, verdict)


def _added(folder: Path, kind: str, text: str, verdict: Verdict) -> Record:
    found = verify(folder)
    if not found.ok:
        raise InvalidArgument("run", str(folder), "one that verifies", found.problems[0])
    record = read_record(folder)
    told = {
        "kind": kind,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": verdict.value,
        "text": text,
    }
    return write_record(folder, {**record, "evidence": [*record["evidence"], told]})
