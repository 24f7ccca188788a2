"""Epsilon by the closed form beside exact accounting, Renyi and moments, and the claim tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

from privet.loss import SampledGaussian
from privet.loss.compare import accountants
from privet.noise import seeded
from privet.papers.drawing import INK, MUTED, panels, quiet, save
from privet.papers.experiment import Cell, Experiment, Row, Settings, Shown, Told, setting
from privet.papers.tight_privacy_cost.comparators import abadi_shape, dwork_roth

PRINTED = {(0.01, 4.0, 10_000): {"closed_form": 1.136, "moments": 1.26}}
"""What the paper prints, by sample rate, noise multiplier and steps, at delta 1e-5."""
ALGORITHMS = {
    "HomogeneousDPDL": "sample_rate,sigma,clipping_bound,learning_rate,steps\n0.1,0.015,1,2,100\n",
    "HeterogeneousDPDL": "sample_rate,sigma,clipping_bound,learning_rate,steps\n"
    "0.05,0.03,1,2,40\n0.1,0.01,0.7,1,40\n0.2,0.003,0.5,0.5,20\n",
}
"""The paper's Figure 1, as tables of q_t, sigma_t, C_t, eta_t; it gives no numbers of its own."""
COLOURS = {"closed_form": "#d1495b", "exact": "#1b6ca8", "rdp": "#2a9d8f", "moments": "#b9c3cc"}


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
    canaries: int = setting(20_000, help="Of the audit; 0 leaves it out.", least=0)


@final
class TightPrivacyCostExperiment(Experiment[TightPrivacyCostSettings]):
    """The closed form beside exact accounting: where it is a bound, where not, and an audit."""

    name = "tight-privacy-cost"
    quick: ClassVar = {"digits": TightPrivacyCostSettings()}
    version = 2
    brief = True
    shows: ClassVar = (Shown(of="Figure 1", picture="epsilon-against-steps", rows="algorithms"),)

    def cells(self) -> Iterator[Cell]:
        """One for each schedule, then the audit."""
        s = self.settings
        for q in s.sample_rates:
            for z in s.noise_multipliers:
                for t in s.steps:
                    yield Cell(f"q {q:g}, z {z:g}, {t} steps", partial(self._priced, q, z, t))
        for name in ALGORITHMS:
            yield Cell(name, partial(self._trained, name))
        if s.canaries:
            yield Cell("audit", self._audited)

    def _priced(self, q: float, z: float, t: int, told: Told) -> Row:
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

    def _trained(self, name: str, told: Told) -> Row:
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

    def _audited(self, told: Told) -> Row:
        from privet.papers.tight_privacy_cost.audit import audit_published

        s = self.settings
        return self.kept(
            "audit",
            lambda: audit_published(delta=s.delta, rng=seeded(0), canaries=s.canaries).to_dict(),
        )

    def collect(self, found: list[Any]) -> Row:
        """Rows and the audit."""
        trained = [row for row in found if "algorithm" in row]
        rows = [row for row in found if "steps" in row]
        return {
            "rows": rows, "algorithms": trained, "audits": found[len(rows) + len(trained) :]
        }  # fmt: skip

    def draw(self, results: Row) -> list[Path]:
        """Epsilon against steps, a panel for each noise multiplier at the first rate."""
        s = self.settings
        figure, (line,) = panels(
            3.4 * len(s.noise_multipliers), 3.4, columns=len(s.noise_multipliers)
        )
        for axes, z in zip(line, s.noise_multipliers, strict=True):
            here = [
                row for row in results["rows"]
                if (row["sample_rate"], row["noise_multiplier"]) == (s.sample_rates[0], z)
            ]  # fmt: skip
            for name, colour in COLOURS.items():
                style = "--" if name == "closed_form" else "-"
                at = [row["steps"] for row in here]
                axes.plot(at, [row[name] for row in here], style, color=colour, label=name)
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"q {s.sample_rates[0]:g}, z {z:g}", loc="left", fontsize=10, color=INK)
            axes.set_xlabel("steps", color=MUTED)
            quiet(axes, grid="both")
        line[0].set_ylabel("epsilon", color=MUTED)
        line[0].legend(frameon=False, fontsize=8)
        return save(figure, self.out / "epsilon-against-steps")

    def text(self, results: Row) -> str:
        """A line for each schedule, and the audit."""
        lines = [
            f"{'q':>7} {'z':>5} {'T':>6} {'closed':>8} {'exact':>8} {'Renyi':>8} {'moments':>8} "
            f"{'D.-Roth':>8} {'Abadi':>8}"
        ]
        for r in results["rows"]:
            printed = r["printed"] or {}
            beside = "".join(f"; the paper prints {v:g} ({k})" for k, v in printed.items())
            lines.append(
                f"{r['sample_rate']:7g} {r['noise_multiplier']:5g} {r['steps']:6d} "
                f"{r['closed_form']:8.3f} {r['exact']:8.3f} {r['rdp']:8.3f} {r['moments']:8.3f}"
                f" {'none' if r['dwork_roth'] is None else format(r['dwork_roth'], '.3f'):>8}"
                f" {r['abadi_shape']:8.3f}  {r['verdict']}{beside}"
            )
        lines += [
            f"{a['algorithm']} on digits: {100 * a['accuracy']:.1f}%, epsilon {a['epsilon']:.3f} "
            f"(closed form: {a['claimed']:.3f})"
            for a in results["algorithms"]
        ]
        lines += [
            f"audit of {a['what']}: claimed {a['claimed']:.3f}, audited {a['audited']:.3f}, "
            f"proved {a['proved']:.3f}: {a['verdict']}"
            for a in results["audits"]
        ]
        return "\n".join(lines)
