"""What values show of themselves in a notebook: whole HTML, names escaped, marks in sight."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.accounting import Gaussian
from privet.audit import Finding
from privet.audit.membership.membership_finding import evaluate
from privet.compare.comparison import Comparison
from privet.guarantee import EXPERIMENT

ROW = {
    "method": "a <method>", "accuracy": 0.9, "claimed_epsilon": None, "proved_epsilon": "inf",
    "audited_epsilon": 0.5, "verdict": "consistent", "learned": True,
}  # fmt: skip


class Whole(HTMLParser):
    """Every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def things(tmp_path: Path) -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(size=(300, 3))
    clf = privet.AdaptiveLaplaceClassifier(bounds=(0, 1), classes=[False, True], random_state=0)
    clf.fit(x, x[:, 0] > 0.5)
    ledger = privet.Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5)
    for k in range(12):
        ledger.charge(Gaussian(mu=0.1), what=f"mean <{k}>", who="ada")
    finding = Finding(
        what="a <thing>", claimed=None, proved=1.0, audited=0.5, ceiling=9.0, control=9.0,
        delta=1e-5, confidence=0.95, trials=100, method="m", parametric=False, seconds=0.1,
    )  # fmt: skip
    scores = np.arange(8.0)
    return {
        "guarantee": clf.guarantee_,
        "plan": clf.plan_,
        "run": privet.load(clf.save(tmp_path / "run", purpose="to <see>")),
        "ledger": ledger,
        "finding": finding,
        "attack": evaluate(scores, scores > 3, attack="an <attack>"),
        "comparison": Comparison(data={"name": "d"}, epsilon=1.0, rows=[ROW]),
    }


@pytest.mark.slow
def test_everything_shows_itself(things: dict[str, Any]) -> None:
    shown = {name: thing._repr_html_() for name, thing in things.items()}
    for text in shown.values():
        whole = Whole()
        whole.feed(text)
        assert whole.open == [] and "1e-05" not in text
    for name in ("guarantee", "run", "comparison"):
        assert EXPERIMENT in shown[name]
    assert "1 in 100,000" in shown["guarantee"] and "to &lt;see&gt;" in shown["run"]
    spent = things["ledger"].spent()
    assert (
        f"ε {spent:.3g} of 9" in shown["ledger"]
        and "2 earlier charges not shown" in shown["ledger"]
    )
    assert "a &lt;thing&gt;: consistent" in shown["finding"]
    assert "an &lt;attack&gt;" in shown["attack"] and "a &lt;method&gt;" in shown["comparison"]
    assert "before anything is read or spent" in shown["plan"]
