"""The closed form tested where sampling is most overrated: DP-SGD with canaries, in one run."""

from __future__ import annotations

from privet.audit import Finding
from privet.data import load
from privet.methods.dpsgd import canary_audit as audit_dpsgd
from privet.methods.dpsgd.schedule import Schedule
from privet.noise import Source


def audit_closed_form(*, delta: float, rng: Source, canaries: int = 20_000) -> Finding:
    """Softmax regression on digits at z = .5, q = .01, T = 100, priced by the closed form.

    **Guarantee** a true claim is called falsified with probability at most 5%.
    """
    digits = load("digits")
    target = audit_dpsgd.softmax_recipe(
        "DP-SGD on digits, priced by the closed form", digits.train_rows(), digits.y_train,
        digits.n_classes, Schedule(steps=100, sample_rate=0.01, noise_multiplier=0.5), delta,
    )  # fmt: skip
    (found,) = audit_dpsgd.one_run(target, rng, canaries=canaries, guesses=200, guesses_in=200)
    return found
