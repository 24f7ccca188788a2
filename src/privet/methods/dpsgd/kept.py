"""A run that is saved, and taken up again where it was."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from privet.methods.dpsgd import checkpoint as saved
from privet.methods.dpsgd.averaging import Average
from privet.methods.dpsgd.distributed import same_everywhere
from privet.methods.dpsgd.masters import Float32Masters
from privet.methods.dpsgd.paid import PaidRun
from privet.methods.dpsgd.run import new_run
from privet.nets import PerExampleGradients


class KeptRun(PaidRun, ABC):
    """What a run keeps in files between its attempts; the first process writes."""

    model: nn.Module
    optimizer: Optimizer
    run: str
    _kept: saved.Kept
    _engine: PerExampleGradients
    _average: Average | None
    _bound: float
    _size: int | None

    def _stepped(self) -> dict[str, nn.Parameter]:
        """What the optimiser changes, by the names of the model's parameters."""
        if isinstance(self.optimizer, Float32Masters):
            return self.optimizer.masters
        return dict(self.model.named_parameters())

    def save(self) -> Path | None:
        """Write a checkpoint now (done by itself every so many steps)."""
        where = self._settings.checkpoints
        if where is None or not self._processes.first:
            return None
        tensors, facts = self._kept.state()
        facts |= {"run": self.run, "step": self._step, "bound": self._bound, "size": self._size}
        where.write(tensors, facts | {"same": self._sameness()})
        return where.path

    def _open(self, run: str | None) -> tuple[str, bool]:
        """Restore the last checkpoint, or start: the name of the run, and whether it goes on."""
        self._processes.agree(self._sameness(lambda key: "not compared"))
        weights = {id(t): t for t in (*self.model.parameters(), *self._stepped().values())}
        same_everywhere(self._processes, [*weights.values(), *self.model.buffers()])
        where = self._settings.checkpoints
        found = None if where is None else where.read()
        started = self._processes.word_from_first(found is not None)
        if started and found is not None:
            self._restore(*found)
            return str(found[1]["run"]), True
        self.run = str(self._processes.word_from_first(run or new_run()))
        self.save()
        return self.run, False

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        saved.check_same(self._settings.checkpoints, self._sameness(), facts["same"])
        self._kept.restore(tensors, facts)
        self._size = facts["size"]
        self._step, self._bound = int(facts["step"]), float(facts["bound"])

    def _sameness(self, fingerprint: Callable[[bytes], str] | None = None) -> dict[str, Any]:
        decay = None if self._average is None else self._average.decay
        model: list[Any] = [(name, list(p.shape)) for name, p in self.model.named_parameters()]
        model.append(("C", self._settings.clipping(1.0).sensitivity(self._engine.layers)))
        return saved.sameness(
            self.schedule,
            self.sampler,
            self._rng,
            fingerprint or self._records.fingerprint,
            model=model,
            micro_batch=self._settings.micro_batch,
            views=self._settings.views,
            ema=decay,
        )
