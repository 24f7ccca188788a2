"""What every trained method must pass, looked at from outside: an estimator with a guarantee."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from privet.audit.conformance.noise_independence import streams_drawn_once
from privet.audit.conformance.report import Check, Report, run
from privet.errors import BudgetExceeded, InvalidArgument
from privet.guarantee import Guarantee, Standing
from privet.ledger import Ledger
from privet.noise import Source

LEFT_BY_A_RELEASE = ("guarantee_", "claim_", "model_")


@final
@dataclass(frozen=True, kw_only=True)
class EstimatorSubject:
    """A classifier in scikit-learn's manner: `make(epsilon=, random_state=, ledger=)`.

    It must declare all that is public (classes, bounds, number of records). `data()` gives rows in
    [0, 1] and labels 0 or 1 that can be learned; `ledger(cap_epsilon=, cap_delta=)` a ledger of its
    adjacency and unit. After `fit` it has `guarantee_`, `claim_` and `predict_proba`.
    """

    name: str
    make: Callable[..., Any]
    data: Callable[[], tuple[Any, Any]]
    ledger: Callable[..., Ledger] = Ledger.in_memory
    epsilon: float = 2.0

    def check(self, rng: Source) -> Report:
        """All checks; some twenty trainings."""
        checks: list[tuple[str, Check]] = [
            ("states what it promises", self._states),
            ("seeded runs repeat", self._repeats),
            ("noise is secret by default", self._secret),
            ("no noise is drawn twice", lambda: streams_drawn_once(self._fit)),
            ("a tiny budget teaches nothing", self._noise),
            ("the ledger is charged for what is promised", self._charged),
            ("a refused budget releases nothing", self._refused),
            ("the promise does not look at the data", self._promise),
            ("bad rows neither fail nor spread", self._bad_rows),
            ("bad budgets are refused", self._bad_budgets),
        ]
        return run(self.name, checks)

    def _fit(self, x: Any = None, y: Any = None, **settings: Any) -> Any:
        if x is None:
            x, y = self.data()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {"epsilon": self.epsilon, "random_state": 0, **settings}
            return self.make(**given).fit(x, y)

    def _states(self) -> str | None:
        promise = self._fit().guarantee_
        if not isinstance(promise, Guarantee) or not promise.theorem or not promise.premises:
            return "no theorem, or nothing that it rests on"
        if (promise.standing is Standing.NONE) != math.isinf(promise.epsilon):
            return f"epsilon {promise.epsilon} with standing {promise.standing.value}"
        if promise.standing is Standing.PROVED and promise.epsilon > self.epsilon:
            return f"promises {promise.epsilon} for a budget of {self.epsilon}"
        if Guarantee.from_dict(promise.to_dict()) != promise:
            return "the guarantee does not survive being written down"
        return None

    def _repeats(self) -> str | None:
        x, _ = self.data()
        first, second = self._fit(), self._fit()
        same = np.array_equal(first.predict(x), second.predict(x))
        return None if same and first.guarantee_ == second.guarantee_ else "one seed, two results"

    def _secret(self) -> str | None:
        x, _ = self.data()
        first, second = (self._fit(random_state=None).predict_proba(x) for _ in range(2))
        return "the same noise without a seed" if np.array_equal(first, second) else None

    def _noise(self) -> str | None:
        x, y = self.data()
        good = np.mean([self._fit(epsilon=8.0, random_state=s).score(x, y) for s in range(3)])
        bad = np.mean([self._fit(epsilon=1e-4, random_state=s).score(x, y) for s in range(12)])
        # two classes that are easy to tell apart, and an epsilon that leaves nothing of them
        if good > 0.8 and abs(bad - 0.5) < 0.3 and good > bad + 0.1:
            return None
        return f"scores {good:.2f} at epsilon 8 and {bad:.2f} at 0.0001"

    def _charged(self) -> str | None:
        ledger = self.ledger(cap_epsilon=50.0, cap_delta=1e-5)  # more than is asked for
        promised = self._fit(ledger=ledger).guarantee_.epsilon
        spent = ledger.spent() if len(ledger) else 0.0
        right = math.isclose(spent, promised, rel_tol=1e-6)  # the accountant's digits
        return None if right else f"charged {spent:.6g}, promised {promised:.6g}"

    def _refused(self) -> str | None:
        ledger = self.ledger(cap_epsilon=self.epsilon / 4, cap_delta=1e-5)
        model = self.make(epsilon=self.epsilon, random_state=0, ledger=ledger)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(*self.data())
        except BudgetExceeded:
            left = [name for name in LEFT_BY_A_RELEASE if name in vars(model)]
            return f"leaves {left[0]}" if left else ("charged" if len(ledger) else None)
        return "trained over the cap"

    def _promise(self) -> str | None:
        x, y = self.data()
        promise = self._fit().guarantee_
        others = {
            "other values": (1.0 - x, y),
            "far values, other labels": (1e6 * x, 1 - y),
            "a record less": (x[:-1], y[:-1]),
        }
        for what, (a, b) in others.items():
            if self._fit(a, b).guarantee_ != promise:
                return f"{what}: another guarantee"
        return None

    def _bad_rows(self) -> str | None:
        for bad in (math.nan, math.inf, 1e30):
            x, y = self.data()
            spoiled = np.array(x, dtype=np.float64)
            spoiled[5] = bad  # any record
            if not np.isfinite(self._fit(spoiled, y).predict_proba(x)).all():
                return f"a row of {bad} spoils the answers"
        return None

    def _bad_budgets(self) -> str | None:
        for bad in (0.0, -1.0, math.nan):
            try:
                self._fit(epsilon=bad)
            except InvalidArgument:
                continue
            return f"epsilon {bad} was accepted"
        return None
