"""A record as an entry of OpenDP's registry of deployments.

Its fields are those of github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml
(commit 3e9c812, July 2026), which are its third and fullest tier. What only people know (region,
use, authors) is taken from the record where it was given, and left to fill in otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from privet._formatting import Facts, promise_in_words
from privet.errors import InvalidArgument

UNSAID = "TO FILL IN"


def entry(record: Facts) -> dict[str, Any]:
    """The entry as a mapping; an experiment is refused: nothing was deployed."""
    promise, given, made = record["guarantee"], record["given"], record["made_by"]
    if not promise.get("release", True):
        raise InvalidArgument("run", record["status"], "a release", "train without a seed")
    name = f"{record['mechanism']['method']} on {record['data']['name']}"
    m, paid = record["mechanism"], record["ledger"]
    commit = "" if made.get("commit") is None else f", commit {made['commit']}"
    defences = record["defences"] or {"floating_point": [], "timing": UNSAID}
    curator, day = given["curator"] or UNSAID, (record["date"] or UNSAID)[:10]
    return {
        "url_slug": _slug(name, curator, day.split("-")[0]),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [curator],
                "intended_use": given["purpose"] or UNSAID,
                "data_product_type": "Machine learning model",
                "data_product_region": given["region"] or UNSAID,
                "description": f"A model trained with privet by the method {m['method']}.",
                "publication_date": day,
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if promise["delta"] else "Pure DP",
                "data_domain": f"As declared, without the data: {json.dumps(record['domain'])}",
                "unprotected_quantities": _lines(record["not_protected"]),
            },
            "privacy_loss": {
                "privacy_unit": promise["unit"],
                "privacy_unit_details": f"{record['covered']} Adjacent are {record['neighbours']}.",
                "privacy_parameters": {"epsilon": promise["epsilon"], "delta": promise["delta"]},
                "privacy_parameters_details": promise_in_words(promise),
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": _lines(
                    f"{a['who']}: sees {a['sees']}; {a['trust']}"
                    for a in (record["trust"] or {"actors": []})["actors"]
                ),
                "release_type": "One release",
                "release_type_details": m["publication"] or UNSAID,
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Predictions of the model.",
                "composition": "Exact composition of all releases, charged to a ledger beforehand"
                + ("." if paid is None else f": {paid['identity']}, head {paid['head']}, "
                   f"epsilon {paid['spent']} spent in it; what was spent elsewhere on the same "
                   "data is not known here."),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _lines(
                    f"{a['how']}: {a['text']}" for a in record["preparation"]
                ),
                "mechanisms": _lines(
                    (
                        f"{promise['theorem']}; loss {json.dumps(m['loss'])}",
                        f"privet {made['privet']}{commit}",
                        *(f"floating point: {line}" for line in defences["floating_point"]),
                        f"timing: {defences['timing']}",
                    )
                ),
                "justification": given["justification"] or UNSAID,
            },
            "administrative": {"registry_authors": [curator]},
        },
    }  # fmt: skip


def _slug(*parts: str) -> str:
    """The name of an entry, which the registry computes in this way and compares.

    >>> _slug("dpsgd on blobs", "A clinic (Bern)", "2026")
    'dpsgd-on-blobs-a-clinic-bern--2026'
    """
    return "_".join(re.sub(r"\W+", "_", part.lower()) for part in parts).replace("_", "-")


def _lines(lines: Any) -> str:
    return "".join(f"- {line}\n" for line in lines)


def to_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """Mappings, lists of words, words and numbers as YAML; long words as literal blocks.

    >>> print(to_yaml({"a": {"b": 1e-5, "c": "- x\\n- y\\n", "d": ["e: f"]}}), end="")
    a:
      b: 0.00001
      c: |
        - x
        - y
      d:
        - "e: f"
    """
    pad, out = " " * indent, []
    for key, item in value.items():
        if isinstance(item, Mapping):
            out.append(f"{pad}{key}:\n{to_yaml(item, indent + 2)}")
        elif isinstance(item, list):
            rows = "".join(f"{pad}  - {_scalar(one)}\n" for one in item)
            out.append(f"{pad}{key}:\n{rows}")
        elif isinstance(item, str) and item.endswith("\n"):
            block = "".join(f"{pad}  {line}\n" for line in item.splitlines())
            out.append(f"{pad}{key}: |\n{block}")
        else:
            plain = key == "url_slug"  # the registry reads it by a pattern that takes no quotes
            out.append(f"{pad}{key}: {item if plain else _scalar(item)}\n")
    return "".join(out)


def _scalar(value: Any) -> str:
    """YAML takes 1e-05 for a word: numbers are written in full."""
    if isinstance(value, float) and value < 1e-3:
        return f"{value:.20f}".rstrip("0") if value else "0.0"
    return json.dumps(value, ensure_ascii=False)
