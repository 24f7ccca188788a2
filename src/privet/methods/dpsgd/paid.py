"""What a run has paid for, and what is proved of it so far."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

from privet import premises
from privet.errors import PrivetError
from privet.guarantee import Guarantee
from privet.ledger import Entry
from privet.loss import Gaussian, PrivacyLoss, SampledGaussian, from_dict
from privet.loss.closed_form import closed_form_claim
from privet.methods.dpsgd.checkpoint import Meter
from privet.methods.dpsgd.distributed import Processes
from privet.methods.dpsgd.plan import PREMISES, clipped
from privet.methods.dpsgd.records import Records
from privet.methods.dpsgd.run import Settings
from privet.methods.dpsgd.sampling import Sampler
from privet.methods.dpsgd.schedule import Schedule
from privet.methods.dpsgd.summing import EngineSummation
from privet.noise import Source


class PaidRun(ABC):
    """The account of a run: the first process pays, and every process knows how it stands."""

    schedule: Schedule
    sampler: Sampler
    delta: float
    _settings: Settings
    _records: Records
    _rng: Source
    _processes: Processes
    _meter: Meter
    _state: dict[str, Any]
    _step: int

    @property
    @abstractmethod
    def summation(self) -> EngineSummation:
        """How the sums of this run are added up, and what that may be off by."""

    def _paid(self, t: int) -> bool:
        """Whether step t is paid for; every process learns it from the first."""
        if t >= self._state["until"]:
            self._state = self._account(t)
        return t < int(self._state["until"])

    def _account(self, step: int | None) -> dict[str, Any]:
        """The state of the meter, which the first process keeps; it pays for `step` if given."""
        answer: dict[str, Any] | PrivetError = {}
        if self._processes.first:
            try:
                if step is not None:
                    self._meter.covers(step)
                answer = {
                    "until": self._meter.charged_until,
                    "loss": self._meter.loss.to_dict(),
                    "exhausted": self._meter.exhausted is not None,
                }
            except PrivetError as error:
                answer = error
        return dict(self._processes.word_from_first(answer))

    @property
    def steps_done(self) -> int:
        """How many steps have been made."""
        return self._step

    @property
    def stopped_early(self) -> bool:
        """Whether the ledger's cap ended the run before its schedule did."""
        return bool(self._state["exhausted"]) and self._step < self.schedule.steps

    @property
    def loss(self) -> PrivacyLoss:
        """All that this run has charged so far, in all attempts: at least what was released."""
        return from_dict(self._state["loss"])

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ledger entries of this run (in the first process)."""
        return tuple(self._meter.entries)

    @property
    def epsilon_spent(self) -> float:
        """epsilon of the steps charged so far, at `delta`; reading it changes nothing."""
        return self.loss.epsilon(self.delta)

    @property
    def guarantee(self) -> Guarantee:
        """What is proved about all steps charged so far.

        Before the schedule is charged in full this is a figure of the moment: it rests on the end
        not being chosen by looking at the model (docs/theory/ledger.md, "Filter and odometer").
        """
        ended = int(self._state["until"]) >= self.sampler.steps
        proved = self.loss.guarantee(
            self.delta, theorem="exact composition of Gaussian releases on random samples"
        )
        key = self._rng.premise
        check = self._settings.check_mixing
        mixing = premises.NO_MIXING if check else premises.UNCHECKED_MIXING
        end = () if ended else (premises.END_NOT_CHOSEN,)
        whose = clipped(self.sampler.unit, self._settings.rows_each, self._records.several)
        n = self.sampler.expected_batch(0) / max(float(self.sampler.rates[0]), 1e-300)
        large = (premises.large_delta(self.delta, round(n)),) if self.delta * n >= 1.0 else ()
        told = (
            *self.sampler.premises, *whose, *PREMISES, *self.summation.premises, mixing, *end,
            *self._settings.evaluation, premises.OWN_MAP, *large, key,
        )  # fmt: skip
        return replace(
            proved, adjacency=self.sampler.relation, unit=self.sampler.unit, premises=told
        )

    def save_guarantee(self, folder: str | Path) -> Path:
        """Write guarantee.json, to lie beside a model that is saved by its own means."""
        path = Path(folder) / "guarantee.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.guarantee.to_dict(), indent=2))
        return path

    @property
    def claim(self) -> Guarantee | None:
        """What the paper's closed form states for all charged so far; None where it has none."""
        loss = self.loss
        if any(not isinstance(part, Gaussian | SampledGaussian) for part in loss.parts):
            return None
        return replace(closed_form_claim(loss, self.delta), unit=self.sampler.unit)
