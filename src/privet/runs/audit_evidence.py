"""Add the verdicts of attacks and audits to the record of a run, and seal it anew."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from privet._formatting import percent
from privet.audit import Finding
from privet.audit.finding import Verdict
from privet.audit.membership import MembershipFinding
from privet.errors import InvalidArgument
from privet.runs.guarantee_record import GuaranteeRecord, read_record
from privet.runs.run_folder import later_records, write_record
from privet.runs.verify import verify

METHOD_AUDIT = "audit of the method"
"""How a record calls an audit of many runs in small, which says nothing of the one model."""
RATE = 0.01
"""The false-positive rate at which a membership attack is held against the bound."""


def add_audit(folder: Path, found: Finding) -> GuaranteeRecord:
    """What an audit reached of the stated epsilon: of the method in small, not of this model."""
    text = (
        f"{found.verdict.value} ({percent(found.confidence)} confidence). The method was run in "
        f"small, on made-up records at this budget; this model was not looked at. {found.in_words}"
    )
    return _add_evidence(folder, METHOD_AUDIT, text, found.verdict)


def add_attack(folder: Path, found: MembershipFinding) -> GuaranteeRecord:
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
    return _add_evidence(folder, "attack", text, verdict)


def _add_evidence(folder: Path, kind: str, text: str, verdict: Verdict) -> GuaranteeRecord:
    """One more verdict; the same one twice is told once.

    A record that was signed stays as it is: a second one with its date in its name adds to it.
    """
    found = verify(folder)
    if not found.ok:
        raise InvalidArgument("run", str(folder), "one that verifies", found.problems[0])
    first, later = read_record(folder), later_records(folder)
    latest = read_record(folder, later[-1].name) if later else first
    now = datetime.now(UTC)
    evidence = {"kind": kind, "verdict": verdict.value, "text": text}
    if any(evidence.items() <= e.items() for e in latest["evidence"]):
        return latest
    evidence["date"] = now.isoformat(timespec="seconds")
    record = {**latest, "evidence": [*latest["evidence"], evidence]}
    if "signature" not in first:
        return write_record(folder, record)
    stamp = now.strftime("%Y-%m-%dT%H-%M-%S-%fZ")
    return write_record(folder, {**record, "adds_to": first["digest"]}, date=stamp)
