"""Epsilon by the closed form beside exact accounting, Renyi and moments, and the claim tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, final

from privet.accounting import SampledGaussian
from privet.accounting.accountant_comparison import accountants
from privet.accounting.closed_form import closed_form_claim
from privet.accounting.renyi_and_moments_accountants import moments_guarantee
from privet.jobs import Cell, Tell
from privet.noise import seeded
from privet_papers.experiment import Experiment, Row, Settings, Shown, seconds_of, setting
from privet_papers.figure_style import INK, MUTED, new_figure, remove_frame, save_figure
from privet_papers.result_tables import Table
from privet_papers.tight_privacy_cost.baselines import abadi_shape, dwork_roth

PRINTED = {(0.01, 4.0, 10_000): {"closed_form": 1.136, "moments": 1.26}}
"""What the paper prints, by sample rate, noise multiplier and steps, at delta 1e-5."""
ALGORITHMS = {
    "HomogeneousDPDL": "sample_rate,sigma,clipping_bound,learning_rate,steps\n0.1,0.015,1,2,100\n",
    "HeterogeneousDPDL": "sample_rate,sigma,clipping_bound,learning_rate,steps\n"
    "0.05,0.03,1,2,40\n0.1,0.01,0.7,1,40\n0.2,0.003,0.5,0.5,20\n",
}
"""The paper's Figure 1, as tables of q_t, sigma_t, C_t, eta_t; it gives no numbers of its own."""
CURVES = {
    "closed_form": ("closed form", "#d1495b", "--"), "exact": ("exact", "#1b6ca8", "-"),
    "rdp": ("Renyi", "#2a9d8f", "-."), "moments": ("moments", "#6b7a88", ":"),
}  # fmt: skip
"""How each accountant is called and drawn."""


@final
@dataclass(frozen=True, kw_only=True)
class TightPrivacyCostSettings(Settings):
    """What is priced, and how hard the claim is tested."""

    sample_rates: tuple[float, ...] = setting(
        (0.01, 0.001), help="q.", option="sample-rate", least=1e-6, picks=True
    )
    noise_multipliers: tuple[float, ...] = setting(
        (4.0, 2.0, 1.0, 0.5), help="z, noise over clipping bound.", option="noise-multiplier",
        least=0.1, picks=True,
    )  # fmt: skip
    steps: tuple[int, ...] = setting(
        (10, 100, 1_000, 10_000), help="T.", option="step-count", least=1, picks=True
    )
    delta: float = setting(1e-5, help="At this delta.")
    claim_multipliers: tuple[float, ...] = setting(
        (0.5, 0.8, 1.0, 1.05, 2.0, 4.0, 10.0, 50.0, 95.0, 100.0, 200.0),
        help="z of the paper's claims about small and large noise, at q .01 and 10,000 steps.",
        option="claim-multiplier", least=0.1, picks=True,
    )  # fmt: skip
    canaries: int = setting(20_000, help="Of the audit; 0 leaves it out.", least=0)


@final
class TightPrivacyCostExperiment(Experiment[TightPrivacyCostSettings]):
    """The closed form beside exact accounting: where it is a bound, where not, and an audit."""

    name = "tight-privacy-cost"
    quick: ClassVar = {"digits": TightPrivacyCostSettings()}
    version = 3
    brief = True
    shows: ClassVar = (
        Shown(of="Figure 1", picture="epsilon-against-steps", rows="algorithms"),
        Shown(of="claims about sigma", rows="claims"),
        Shown(of="efficiency", rows="efficiency"),
    )

    def cells(self) -> Iterator[Cell]:
        """One for each schedule, then the audit."""
        s = self.settings
        for q in s.sample_rates:
            for z in s.noise_multipliers:
                for t in s.steps:
                    yield Cell(f"q {q:g}, z {z:g}, {t} steps", partial(self._price, q, z, t))
        for z in s.claim_multipliers:
            yield Cell(f"claim at z {z:g}", partial(self._claim, z))
        yield Cell("efficiency", self._efficiency)
        for name in ALGORITHMS:
            yield Cell(name, partial(self._train, name))
        if s.canaries:
            yield Cell("audit", self._audit)

    def _price(self, q: float, z: float, t: int, report: Tell) -> Row:
        def run() -> Row:
            loss = SampledGaussian(sample_rate=q, noise_multiplier=z, steps=t)
            found = accountants(loss, self.settings.delta)
            assert found.verdict is not None
            return {
                "sample_rate": q, "noise_multiplier": z, "steps": t,
                **{name: g.epsilon for name, g in found.rows()},
                "dwork_roth": dwork_roth(loss, self.settings.delta),
                "abadi_shape": abadi_shape(loss, self.settings.delta),
                "verdict": found.verdict.value,
                "printed": PRINTED.get((q, z, t)) if self.settings.delta == 1e-5 else None,
            }  # fmt: skip

        return self.kept([q, z, t], run)

    def _claim(self, z: float, report: Tell) -> Row:
        """At the paper's q and T: does each accountant work here, and by how much is one below?"""

        def run() -> Row:
            loss = SampledGaussian(sample_rate=0.01, noise_multiplier=z, steps=10_000)
            found = accountants(loss, self.settings.delta)
            assert found.verdict is not None and found.closed_form is not None
            closed = found.closed_form.epsilon
            return {
                "claim_at": z, "region": _region(z, 0.01), "closed_form": closed,
                "exact": found.exact.epsilon, "moments": found.moments.epsilon,
                "gain": found.moments.epsilon / closed, "verdict": found.verdict.value,
            }  # fmt: skip

        return self.kept(["claim", z], run)

    def _efficiency(self, report: Tell) -> Row:
        """Seconds of the closed form and of the 32 moments that Abadi et al. compute."""

        def run() -> Row:
            delta, tries = self.settings.delta, count(1)

            def fresh() -> SampledGaussian:
                # what was solved is kept: with a hair more noise it is solved anew
                noise = 4.0 * (1.0 + 1e-9 * next(tries))
                return SampledGaussian(sample_rate=0.01, noise_multiplier=noise, steps=10_000)

            return {
                "efficiency_of": "q .01, z 4, 10,000 steps",
                "closed_form_seconds": seconds_of(lambda: closed_form_claim(fresh(), delta)),
                "moments_seconds": seconds_of(lambda: moments_guarantee(fresh(), delta)),
                "exact_seconds": seconds_of(lambda: fresh().epsilon(delta)),
            }

        return self.kept("efficiency", run)

    def _train(self, name: str, report: Tell) -> Row:
        """One of the paper's two algorithms on digits: a linear model, sigma on the mean."""

        def run() -> Row:
            from privet.data import load
            from privet.estimators import PrivateClassifier
            from privet.methods.dpsgd import LinearDPSGD

            digits, delta = load("digits"), self.settings.delta
            method = LinearDPSGD(schedule=ALGORITHMS[name])
            cost = method.fixed_epsilon(len(digits.x_train), delta)
            assert cost is not None
            clf = PrivateClassifier(
                method, epsilon=cost, delta=delta, classes=range(10), bounds=(0.0, 1.0),
                random_state=0,
            ).fit(digits.train_rows(), digits.y_train)  # fmt: skip
            claim = clf.claim_
            return {
                "algorithm": name, "accuracy": float(clf.score(digits.test_rows(), digits.y_test)),
                "epsilon": clf.guarantee_.epsilon, "claimed": claim and claim.epsilon,
            }  # fmt: skip

        return self.kept(name, run)

    def _audit(self, report: Tell) -> Row:
        from privet_papers.tight_privacy_cost.counter_example import audit_closed_form

        s = self.settings
        return self.kept(
            "audit",
            lambda: audit_closed_form(delta=s.delta, rng=seeded(0), canaries=s.canaries).to_dict(),
        )

    def collect(self, found: list[Any]) -> Row:
        """Rows and the audit."""

        def with_key(key: str) -> list[Row]:
            return [row for row in found if key in row]

        return {
            "rows": with_key("steps"), "algorithms": with_key("algorithm"),
            "claims": with_key("claim_at"), "efficiency": with_key("efficiency_of"),
            "audits": with_key("audited"),
        }  # fmt: skip

    def draw(self, results: Row) -> list[Path]:
        """Epsilon against steps, a line of panels for each rate, a panel for each z."""
        s = self.settings
        rates, widths = s.sample_rates, s.noise_multipliers
        figure, panels = new_figure(
            max(3.5, 1.8 * len(widths)), 1.9 * len(rates) + 0.5, rows=len(rates),
            columns=len(widths), sharex=True, sharey=True,
        )  # fmt: skip
        for line, q in zip(panels, rates, strict=True):
            for axes, z in zip(line, widths, strict=True):
                here = [
                    row for row in results["rows"]
                    if (row["sample_rate"], row["noise_multiplier"]) == (q, z)
                ]  # fmt: skip
                for name, (label, colour, style) in CURVES.items():
                    at = [row["steps"] for row in here]
                    axes.plot(at, [row[name] for row in here], style, color=colour, label=label)
                axes.set(xscale="log", yscale="log")
                axes.set_title(f"q = {q:g}, z = {z:g}", loc="left", fontsize=8, color=INK)
                remove_frame(axes, grid="both")
            line[0].set_ylabel(f"epsilon at delta {s.delta:g}", color=MUTED, fontsize=8)
        for axes in panels[-1]:
            axes.set_xlabel("steps T", color=MUTED, fontsize=8)
        panels[0][0].legend(frameon=False, fontsize=6)
        return save_figure(figure, self.out / "epsilon-against-steps")

    def tables(self, results: Row) -> Iterator[Table]:
        """A row for each schedule, the claims about sigma, both algorithms and the audit."""

        def three(x: float | None) -> str:
            return "none" if x is None else f"{x:.3f}"

        delta = f"{self.settings.delta:g}"
        yield Table.of(
            f"Epsilon at delta {delta}",
            ("q", "z", "T", *(name for name, *_ in CURVES.values()), "Dwork-Roth", "Abadi's shape",
             "verdict", "printed"),
            (
                (
                    f"{r['sample_rate']:g}", f"{r['noise_multiplier']:g}", r["steps"],
                    *(three(r[k]) for k in (*CURVES, "dwork_roth", "abadi_shape")), r["verdict"],
                    "; ".join(f"{CURVES[k][0]} {v:g}" for k, v in (r["printed"] or {}).items()),
                )
                for r in results["rows"]
            ),
        )  # fmt: skip
        yield Table.of(
            f"Claims about sigma: q .01, 10,000 steps, delta {delta}",
            ("z", "region", "closed form", "moments", "exact", "moments / closed form", "verdict"),
            (
                (f"{c['claim_at']:g}", c["region"],
                 *(three(c[k]) for k in ("closed_form", "moments", "exact")), f"{c['gain']:.2f}",
                 c["verdict"])
                for c in results["claims"]
            ),
        )  # fmt: skip
        yield Table.of(
            "Algorithms on digits",
            ("algorithm", "accuracy, per cent", "epsilon, proved", "closed form, claimed"),
            (
                (a["algorithm"], f"{100 * a['accuracy']:.1f}", three(a["epsilon"]),
                 three(a["claimed"]))
                for a in results["algorithms"]
            ),
        )  # fmt: skip
        yield Table.of(
            "Audit of the closed form",
            ("what", "claimed", "audited", "proved", "verdict"),
            (
                (a["what"], three(a["claimed"]), three(a["audited"]), three(a["proved"]),
                 a["verdict"])
                for a in results["audits"]
            ),
        )  # fmt: skip

    def remarks(self, results: Row) -> Iterator[str]:
        """How long each takes."""
        for e in results["efficiency"]:
            yield (
                f"{e['efficiency_of']}: the closed form takes {1e6 * e['closed_form_seconds']:.0f} "
                f"microseconds, 32 moments {1e3 * e['moments_seconds']:.1f} milliseconds, exact "
                f"accounting {1e3 * e['exact_seconds']:.0f} milliseconds"
            )


def _region(z: float, q: float) -> str:
    """Where the moments accountant is said not to work, and where it is."""
    return "z < 1" if z < 1.0 else "z >= 1/q" if z >= 1.0 / q else "1 <= z < 1/q"
