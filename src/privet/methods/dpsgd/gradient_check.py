"""Per-example gradients must be the model's own: a check against plain autograd, on made-up rows.

Before the first step the loop body runs once more on the made-up rows, without the engine. Every
trainable parameter's gradient of a weighted sum of the losses, and the gradient norms of a handful
of examples taken one after the other, must be what the engine gave. A layer of a new kind, a rule
of one's own or an adapter that goes another way than the engine thinks is found here, before
anything is spent. Where a network draws at random in another order than the engine does, both run
once more in evaluation mode; where that does not help there is nothing to compare.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.methods.dpsgd.mixing import Company
from privet.nets import ClippedSum

HANDFUL = 3
"""Examples whose gradient is taken by itself."""
NARROW = (torch.float16, torch.bfloat16)
"""Types whose rounding shows."""


def weights_of(examples: int) -> Tensor:
    """1, 1/2, 1/3, ..."""
    return 1.0 / torch.arange(1, examples + 1, dtype=torch.float64)


@final
@dataclass(frozen=True, kw_only=True)
class _Gradients:
    """Losses, the weighted sum of gradients by parameter, and some norms."""

    losses: Tensor
    total: dict[str, Tensor]
    norms: Tensor


class Autograd(ABC):
    """Plain gradients of a model by torch's autograd, or those of the part that is here."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @abstractmethod
    def gradient(self, of: Tensor, *, last: bool) -> dict[str, Tensor]:
        """The gradient of a number by parameter name; the graph stays unless it is the last."""

    @abstractmethod
    def norm(self, gradients: dict[str, Tensor]) -> Tensor:
        """The norm of the gradient of the whole model."""

    def of_engine(self, total: ClippedSum) -> dict[str, Tensor]:
        """What `gradient` has to agree with."""
        return {name: g.float() for name, g in total.gradients.items()}

    def is_narrow(self) -> bool:
        """Whether the weights of a pass are in half precision."""
        return any(p.dtype in NARROW for p in self.model.parameters())


@final
class WholeAutograd(Autograd):
    """Of a model that is here as a whole."""

    def gradient(self, of: Tensor, *, last: bool) -> dict[str, Tensor]:
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(
            of, list(named.values()), retain_graph=not last, allow_unused=True
        )
        pairs = zip(named.items(), found, strict=True)
        return {n: torch.zeros_like(p) if g is None else g for (n, p), g in pairs}

    def norm(self, gradients: dict[str, Tensor]) -> Tensor:
        total: Tensor = torch.stack([g.double().norm().cpu() for g in gradients.values()]).norm()
        return total


@final
class AgreementCheck:
    """Asks for plain passes over made-up rows and compares; use it like a `MixingCheck`."""

    def __init__(self, autograd: Autograd, *, views: int) -> None:
        self._autograd, self._model, self._views = autograd, autograd.model, views
        self._seen: list[_Gradients] = []
        self._lowered = False

    def passes(self, first: Company) -> Iterator[Company]:
        """The passes to make; the engine has answered `first` already."""
        if self._seen:
            yield from self._asked(first)
        self._seen.clear()  # gradients of the whole model

    def _asked(self, first: Company) -> Iterator[Company]:
        yield first.but(plain=True)
        if self._same_losses(0, 1):
            self._compare(0, 1)
            return
        yield first.but(plain=True, seed=first.seed + 1)
        if self._same_losses(1, 2):
            raise _disagreement("losses", "the model's own forward pass gives others")
        with evaluating(self._model):
            yield first.but(plain=True)
            yield first
        if self._same_losses(3, 4):
            self._compare(4, 3)

    def saw_engine(self, losses: Tensor, total: ClippedSum, *, lowered: bool) -> None:
        """What the engine gave, with the weights of `weights_of`; `lowered` under autocast."""
        self._lowered = self._lowered or lowered
        gradients = self._autograd.of_engine(total)
        norms = total.norms_unprotected[:HANDFUL].clone()
        self._seen.append(_Gradients(losses=losses.detach(), total=gradients, norms=norms))

    def saw_plain(self, losses: Tensor) -> None:
        """The losses of a pass without the engine."""
        by, examples = self._autograd, losses.view(-1, self._views).mean(1)
        norms = [by.norm(by.gradient(one, last=False)) for one in examples[:HANDFUL]]
        weights = weights_of(len(examples)).to(examples.device, examples.dtype)
        total = by.gradient((weights * examples).sum(), last=True)
        self._seen.append(_Gradients(losses=losses.detach(), total=total, norms=torch.stack(norms)))

    def _same_losses(self, one: int, other: int) -> bool:
        a, b = self._seen[one].losses.double(), self._seen[other].losses.double()
        size = a.nan_to_num(0.0, 0.0, 0.0).abs().amax()
        return torch.allclose(a, b, rtol=0.0, atol=float(self._room * size), equal_nan=True)

    @property
    def _room(self) -> float:
        """What rounding may explain, relative to the size of a value."""
        return 0.1 if self._lowered or self._autograd.is_narrow() else 1e-3

    def _compare(self, engine: int, plain: int) -> None:
        found, own = self._seen[engine], self._seen[plain]
        whole = self._autograd.norm(own.total)
        if not bool(whole.isfinite()) or not bool(own.losses.isfinite().all()):
            return
        room = self._room
        for name, expected in own.total.items():
            off = (found.total[name].double() - expected.double()).norm()
            if not float(off) <= room * (float(expected.double().norm()) + 0.01 * float(whole)):
                raise _disagreement(f"the gradient of parameter {name!r}", "that of plain autograd")
        if not torch.allclose(found.norms.cpu(), own.norms, rtol=room, atol=room * float(whole)):
            raise _disagreement("gradient norms of single examples", "those of plain autograd")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, in which most networks draw nothing at random."""
    training = [m for m in model.modules() if m.training]
    model.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


def _disagreement(what: str, expected: str) -> InvalidArgument:
    return InvalidArgument(
        what,
        "as the per-example engine computes it",
        expected,
        "name the module that differs in through_func=[...], mend its rule in layers={...}, or "
        "call the model itself where torch.compile made another of it "
        "(seen on made-up rows, before anything was released)",
    )
