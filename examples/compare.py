"""Several methods at one budget on one split: trained, attacked, audited, and one page.

python examples/compare.py

On the command line: privet compare --data digits --epsilon 1 --delta 1e-5
"""

import tempfile
from pathlib import Path

from privet import data
from privet.compare import catalogue_participants, compare
from privet.report import comparison_page
from privet_papers.participants import PARTICIPANTS

METHODS = ["dpsgd", "adaptive-laplace", "adaptive-laplace as published"]


def shown(epsilon):
    return "none" if epsilon is None else epsilon if epsilon == "inf" else f"{epsilon:.3g}"


with tempfile.TemporaryDirectory() as folder:
    results = compare(
        data.load("digits").subset(600), Path(folder), epsilon=1.0, delta=1e-5, methods=METHODS,
        participants=(*catalogue_participants(), *PARTICIPANTS), jobs=1,
    )  # fmt: skip
    for row in results["rows"]:
        print(
            f"{row['method']:30s} accuracy {row['accuracy']:.1%}, epsilon claimed "
            f"{shown(row['claimed_epsilon'])}, proved {shown(row['proved_epsilon'])}, audited "
            f"{shown(row['audited_epsilon'])}: {row['verdict']}"
        )
    written = comparison_page.write(results, Path(folder) / "report.html")
    print(f"page of {written.stat().st_size / 1e6:.1f} MB")
