"""Premises and promises in the words of somebody who signs and does not know the field.

A premise that nobody checks is a question to ask before signing. The exact wording stands in the
record and under the engineer's part of the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUESTIONS = {
    "people": (
        "A person with several records is not protected as a person.",
        "Does every person occur once?",
    ),
    "preparation": (
        "Nobody scaled, cleaned or chose columns by looking at these people together.",
        "Who prepared the file, and by which fixed rules?",
    ),
    "settings": (
        "All settings were chosen without looking at these records.",
        "Was the model trained before, on the same records, to find good settings?",
    ),
    "classes": (
        "The list of possible answers was known beforehand.",
        "Could a rare answer in the list point at one person?",
    ),
    "split": (
        "Which records were kept for tests may be known to anybody.",
        "Were they set apart by a rule that has nothing to do with the people?",
    ),
    "number of records": (
        "The stated number of records may be known to anybody.",
        "Would the number itself tell something about somebody?",
    ),
    "number of users": (
        "The stated number of people may be known to anybody.",
        "Would the number itself tell something about somebody?",
    ),
    "questions": (
        "The inputs that the teachers were asked about may be known to anybody.",
        "Are they records of nobody, or of people who agreed?",
    ),
    "labels": ("The labels may be known to anybody.", "Is a label a secret about its person?"),
    "rows": (
        "What is computed from one person's record does not change with who else is in the file.",
        "Ask the engineer which reader or network makes the rows.",
    ),
    "company": (
        "Computing records together gives each the same result as computing it alone.",
        "Ask the engineer; it is a matter of the last digits.",
    ),
    "mixing": (
        "The network looks at one record at a time.",
        "Ask the engineer whether a layer mixes records.",
    ),
    "batches": (
        "Nothing of a training step was written down besides the step itself.",
        "Were examples, gradients or losses logged?",
    ),
    "shards": ("No person's records lie with two teachers.", "How were records dealt out?"),
    "model": (
        "The model that training started from was made without these records.",
        "Where does it come from?",
    ),
    "noise key": (
        "Nobody knows the random numbers that hide a person's share.",
        "Who else could read the memory of the machine?",
    ),
}
"""For each thing that a premise may be about: what it says, and what to ask before signing."""
PER_PERSON = (
    "All records of one person carry the same identifier.",
    "Could somebody appear under two identifiers, such as after a change of name?",
)


def believed(promise: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is only assumed or tested, and what to ask; premises of no question in their words."""
    told = []
    for p in promise["premises"]:
        if p["backing"] not in ("assumed", "tested"):
            continue
        plain = QUESTIONS.get(p["about"])
        if p["about"] == "people" and promise["unit"] != "record":
            plain = PER_PERSON
        statement, ask = plain or (f"{p['text'][:1].upper()}{p['text'][1:]}.", "Ask the engineer.")
        if p["backing"] == "tested":
            statement += " (Tests of the software look for the contrary.)"
        told.append((statement, ask))
    return told


def claim_in_words(claim: Mapping[str, Any] | None) -> str:
    """What a paper states of the same settings, and that it is not what is promised here."""
    if claim is None:
        return "Nothing."
    figure = "no bound" if claim["epsilon"] == "inf" else f"epsilon {claim['epsilon']:.4g}"
    if claim["standing"] == "claimed":
        return (
            f"A paper claims {figure} for the same settings. Nobody proved it; the promise above "
            "does not rest on it, and nobody should sign for it."
        )
    return (
        f"The formula of a paper gives {figure} for the same settings, and holds for these. It is "
        "another, coarser way to compute the promise above, not a second promise."
    )
