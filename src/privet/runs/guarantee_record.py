"""guarantee.json, version 2: all that somebody who signs for a model asks, in one file.

What is in it follows from what was trained and charged, and from what the user says of purpose and
curator. It is sealed by a digest of itself, and names the digests of the files beside it: model,
config, card and page belong together or `privet verify` says which does not.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, final

from privet.accounting import Gaussian, PrivacyLoss
from privet.accounting import from_dict as loss_from_dict
from privet.accounting.trade_off import RATES, TradeOff, trade_off_of_statement
from privet.errors import InvalidArgument, MissingFile
from privet.guarantee import EXPERIMENT, Adjacency, Backing, Guarantee, Unit, number_to_json
from privet.report.explanation import explain

GUARANTEE = "guarantee.json"
VERSION = 2
GuaranteeRecord = dict[str, Any]
DELTAS = (
    0.0,
    1e-12,
    1e-10,
    1e-9,
    1e-8,
    1e-7,
    1e-6,
    1e-5,
    1e-4,
    1e-3,
    0.01,
    0.03,
    0.1,
    0.2,
    0.3,
    0.5,
)
"""Where the curve is written down."""

NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "two data sets, one of which has one {unit} more",
    Adjacency.ZERO_OUT: "two data sets of the same, public size; in one of them one {unit} counts "
    "for nothing",
    Adjacency.REPLACE_ONE: "two data sets of the same size that differ in one {unit}",
}
COVERED = {
    Unit.RECORD: "Each record. A person with several records is covered for one of them at a time, "
    "not as a person.",
    Unit.USER: "Each person, with all records that share that person's identifier.",
    Unit.SHARD: "Each teacher's part of the records, with everybody in it.",
    Unit.QUERY: "Each query.",
}
ACTORS = (
    ("the curator, and whoever runs the training", "the records, exact results and the ledger",
     "has to be trusted: the noise is drawn and added here, after the records were collected"),
    ("the machine that trains", "the records, the noise and how long things take",
     "has to be trusted: there is no defence against somebody inside it"),
    ("whoever is given the model, now or later", "the model, its card and this record",
     "not trusted: any computing power, any other knowledge, all other records"),
)  # fmt: skip
NOT_PROTECTED = (
    "what is true of a group of people: a model is there to learn it",
    "the declared ranges, classes and settings, which are public",
    "people whose records were kept for tests: they are not covered, and exact results on them are "
    "for the owner's eyes",
    "results of attacks, where some were added: they come from the records without noise",
    "whatever was released from these records without being charged to the ledger",
    "how long the training took",
)
PREPARED = ("preparation", "rows", "settings", "classes", "split", "questions", "labels", "model")
"""What premises about the records before training, and about choices, are about."""


@final
@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What only the user can say; all of it is optional, and empty where it was not said."""

    purpose: str = ""
    curator: str = ""
    region: str = ""
    justification: str = ""
    """Why this epsilon, and why these people's records."""
    lawful_basis: str = ""
    """Why the records may be used: consent, a law, a contract."""
    retention: str = ""
    """How long the records, and the model, are kept."""
    recipients: str = ""
    """Who is given the model."""
    contact: str = ""
    """Whom a person in the data can ask."""


def make_record(
    *,
    run: str,
    guarantee: Guarantee,
    claim: Guarantee | None,
    loss: PrivacyLoss,
    entries: Sequence[Any],
    account: Mapping[str, Any],
    config: Mapping[str, Any],
    domain: Mapping[str, Any],
    data: Mapping[str, Any],
    given: Provenance,
    measured: Mapping[str, Any] | None = None,
) -> GuaranteeRecord:
    """The record of a training, before the files beside it are hashed."""
    points, curve_of_loss = curve(loss, guarantee.delta), loss.trade_off()
    follows = consequences(guarantee, loss)
    return {
        "version": VERSION,
        "run": run,
        "status": "release" if guarantee.release else EXPERIMENT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "given": asdict(given),
        "guarantee": guarantee.to_dict(),
        "claim": None if claim is None else claim.to_dict(),
        "curve": {
            **follows.pop("curve"),
            "points": [{"epsilon": number_to_json(e), "delta": d} for e, d in points],
        },
        "attacker": _attacker(curve_of_loss),
        "explanation": explain(
            curve_of_loss, epsilon=guarantee.epsilon, delta=guarantee.delta, unit=guarantee.unit
        ).to_dict(),
        "domain": dict(domain),
        "mechanism": {
            "method": config["method"],
            "settings": config.get("settings", {}),
            "plan": config.get("plan", {}),
            "loss": loss.to_dict(),
            **follows.pop("mechanism"),
        },
        **follows,
        "made_by": made_by(),
        "data": dict(data),
        "measured": {} if measured is None else {"test": dict(measured)},
        "ledger": {
            **account,
            "entries": [
                {"sequence": e.sequence, "token": e.token, "hash": e.hash} for e in entries
            ],
        },
        "evidence": [],
    }


def consequences(guarantee: Guarantee, loss: PrivacyLoss) -> dict[str, Any]:
    """What a record says in words, and follows from its guarantee and its loss alone."""
    unit = guarantee.unit
    return {
        "curve": {
            "variant": variant_of(loss, guarantee.delta),
            "mu": loss.mu if isinstance(loss, Gaussian) else None,
        },
        "neighbours": NEIGHBOURS[guarantee.adjacency].format(unit=unit.value),
        "covered": COVERED[unit],
        "not_protected": not_protected(guarantee),
        "trust": {
            "model": "central",
            "actors": [dict(zip(("who", "sees", "trust"), a, strict=True)) for a in ACTORS],
        },
        "preparation": [
            {"about": p.about, "text": p.text, "how": _how(p.about, p.text, p.backing)}
            for p in guarantee.premises
            if p.about in PREPARED
        ],
        "mechanism": {
            "releases": sum(part.releases for part in loss.parts),
            "publication": "one release: the model, published once",
        },
        "defences": {
            "floating_point": [
                p.text for p in guarantee.premises if p.about in ("noise law", "sum", "company")
            ],
            "timing": "none: draws do not take constant time; keep the duration to yourself",
        },
    }


def variant_of(loss: PrivacyLoss, delta: float) -> str:
    """The kind of differential privacy that is stated."""
    if delta == 0.0:
        return "pure differential privacy"
    if isinstance(loss, Gaussian):
        return "Gaussian differential privacy, stated at a delta"
    return "approximate differential privacy"


def curve(loss: PrivacyLoss, delta: float) -> list[tuple[float, float]]:
    """epsilon at many deltas, the stated one among them; each pair holds by itself.

    >>> [(round(e, 2), d) for e, d in curve(Gaussian(mu=0.5), 1e-5) if d in (1e-5, 0.1)]
    [(1.99, 1e-05), (0.29, 0.1)]
    """
    return [(loss.epsilon(d), d) for d in sorted({*DELTAS, delta})]


def _attacker(curve: TradeOff) -> list[dict[str, float]]:
    """What no attack on membership exceeds at a few false-positive rates."""
    return [
        {"false_positive_rate": a, "true_positive_rate_at_most": curve.tpr(a)[1]} for a in RATES
    ]


def trade_off_of(record: Mapping[str, Any]) -> TradeOff:
    """The exact curve of a record's loss; of its epsilon and delta where it does not say the loss.

    Of a claim that no theorem bounds (an infinite epsilon) everything is possible.
    """
    loss, stated = loss_of(record), Guarantee.from_dict(record["guarantee"])
    if loss is None:
        return trade_off_of_statement(stated.epsilon, stated.delta, stated.adjacency)
    return loss.trade_off()


def not_protected(guarantee: Guarantee) -> list[str]:
    """What a reader might take to be covered, and is not."""
    own = []
    if guarantee.unit is Unit.RECORD:
        own.append("people who have several records, as people")
    if guarantee.adjacency is not Adjacency.ADD_REMOVE:
        own.append("the number of records, which is public")
    return [*own, *NOT_PROTECTED]


def _how(about: str, text: str, backing: Backing) -> str:
    if about == "model" and "paid for" in text:
        return "charged"
    told = {Backing.ASSUMED: "assumed", Backing.NOT_MET: "not met"}
    return told.get(backing, "public")


def made_by() -> dict[str, Any]:
    """The software, with the commit where it runs from a git checkout."""
    versions = {"python": platform.python_version()}
    for name in ("privet", "torch", "numpy", "scipy", "matplotlib", "jinja2"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {**versions, "commit": _commit()}


@cache
def _commit() -> str | None:
    """The commit of the source tree that is running; None for an installed package."""
    folder = Path(__file__).parents[3]
    if not (folder / ".git").exists():
        return None
    try:
        told = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None


# Reading it back


def read_record(folder: Path, name: str = GUARANTEE) -> GuaranteeRecord:
    """guarantee.json of a folder; one of version 1 as it would be in version 2."""
    path = folder / name
    if not path.exists():
        raise MissingFile(path, "give the folder of a finished run")
    try:
        record = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as e:
        raise InvalidArgument(GUARANTEE, str(path), "JSON", str(e)) from None
    if not isinstance(record, dict) or "guarantee" not in record:
        raise InvalidArgument(GUARANTEE, str(path), "the record of a run")
    version = record.get("version", 1)
    if version == 1:
        return migrate_record(record, json.loads((folder / "config.json").read_text()))
    if version != VERSION:
        raise InvalidArgument(GUARANTEE, version, f"version 1 or {VERSION}", "upgrade privet")
    return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says each thing once: of two values another reader may take the other."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for k, (name, _) in enumerate(pairs) if name in dict(pairs[:k]))
        raise ValueError(f"{twice!r} is said twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def migrate_record(old: Mapping[str, Any], config: Mapping[str, Any]) -> GuaranteeRecord:
    """A record of version 1 as one of version 2: what it did not say is null, and stays unknown.

    Nothing ties it to a model or a ledger, since nothing did; its curve is the one point it stated.
    """
    guarantee = Guarantee.from_dict(old["guarantee"])
    point = (guarantee.epsilon, guarantee.delta)
    unit = guarantee.unit
    return {
        "version": VERSION,
        "migrated_from": 1,
        "run": config.get("run"),
        "status": "release" if guarantee.release else EXPERIMENT,
        "date": None,
        "given": asdict(Provenance()),
        "guarantee": guarantee.to_dict(),
        "claim": old["claim"],
        "curve": {
            "variant": "approximate differential privacy"
            if guarantee.delta
            else "pure differential privacy",
            "mu": None,
            "points": [{"epsilon": number_to_json(point[0]), "delta": point[1]}],
        },
        "attacker": _attacker(trade_off_of_statement(*point)),
        "neighbours": NEIGHBOURS[guarantee.adjacency].format(unit=unit.value),
        "covered": COVERED[unit],
        "not_protected": not_protected(guarantee),
        "trust": None,
        "domain": config.get("domain", {}),
        "preparation": [],
        "mechanism": {
            "method": config["method"],
            "settings": config.get("settings", {}),
            "plan": config.get("plan", {}),
            "loss": None,
            "releases": None,
            "publication": None,
        },
        "defences": None,
        "made_by": {"privet": config.get("privet", "0.1"), "commit": None},
        "data": {
            "name": config.get("data"),
            "fingerprint": None,
            "curator_key": None,
            "records": None,
        },
        "measured": {},
        "ledger": None,
        "evidence": [],
        "files": {},
        "digest": None,
    }


def loss_of(record: Mapping[str, Any]) -> PrivacyLoss | None:
    """The loss that a record was charged for; None in one that did not say."""
    told = record["mechanism"]["loss"]
    return None if told is None else loss_from_dict(told)
