"""Checks per-example gradients against plain autograd, on made-up rows.

Before the first step the loss function runs once more on made-up rows, without the engine. Every
trainable parameter's gradient of a weighted sum of the losses, and the gradient norms of a handful
of examples taken one after the other, must be what the engine gave. A layer of a new kind, a rule
of one's own or an adapter that goes another way than the engine thinks is found here, before
anything is spent. Where a network draws at random in another order than the engine does (its losses
or gradients change with the seed), both run once more in evaluation mode; where that does not help
there is nothing to compare.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from privet.gradients import ClippedSum
from privet.gradients.layer_protocol import LayerProblem
from privet.methods.dpsgd.batch_independence import MadeUpRows

HANDFUL = 3
"""Examples whose gradient is taken by itself: each costs a backward pass."""
NARROW = (torch.float16, torch.bfloat16)
"""Types whose rounding shows."""


def weights_of(examples: int) -> Tensor:
    """The weights 1, 1/2, 1/3, ... of the rows."""
    return 1.0 / torch.arange(1, examples + 1, dtype=torch.float64)


@final
@dataclass(frozen=True, kw_only=True)
class Gradients:
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
        """The engine's gradients, with which those of `gradient` have to agree."""
        return {name: g.float() for name, g in total.gradients.items()}

    def is_narrow(self) -> bool:
        """Whether the weights of a pass are in half precision."""
        return any(p.dtype in NARROW for p in self.model.parameters())


@final
class WholeAutograd(Autograd):
    """Plain gradients of a model that this process holds whole."""

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
class GradientCheck:
    """Compares the engine's gradients of made-up rows with those of plain autograd."""

    def __init__(self, autograd: Autograd, *, views: int) -> None:
        self._autograd, self._views = autograd, views
        self._lowered = False

    def of_engine(self, losses: Tensor, total: ClippedSum, *, lowered: bool) -> Gradients:
        """What the engine gave, with the weights of `weights_of`; `lowered` under autocast."""
        self._lowered = self._lowered or lowered
        gradients = self._autograd.of_engine(total)
        norms = total.norms_unprotected[:HANDFUL].clone()
        return Gradients(losses=losses.detach(), total=gradients, norms=norms)

    def of_autograd(self, losses: Tensor) -> Gradients:
        """The same by autograd, from the losses of a pass without the engine."""
        by, examples = self._autograd, losses.view(-1, self._views).mean(1)
        norms = [by.norm(by.gradient(one, last=False)) for one in examples[:HANDFUL]]
        weights = weights_of(len(examples)).to(examples.device, examples.dtype)
        total = by.gradient((weights * examples).sum(), last=True)
        return Gradients(losses=losses.detach(), total=total, norms=torch.stack(norms))

    def run(
        self,
        first: Gradients,
        rows: MadeUpRows,
        engine: Callable[[MadeUpRows], Gradients],
        plain: Callable[[MadeUpRows], Gradients],
    ) -> None:
        """Refuse gradients that differ; `first` is what the engine gave for these rows before."""
        own = plain(rows)
        alike = self._same_losses(first, own)
        if alike and not self._difference(first, own):
            return
        other_coins = plain(replace(rows, seed=rows.seed + 1))
        if self._same_losses(own, other_coins) and not (
            alike and self._difference(own, other_coins)
        ):
            raise self._difference(first, own) or _disagreement(
                "", "losses", "the model's own forward pass gives others"
            )
        with evaluating(self._autograd.model):
            own, quiet = plain(rows), engine(rows)
        problem = self._difference(quiet, own) if self._same_losses(own, quiet) else None
        if problem is not None:
            raise problem

    def _same_losses(self, one: Gradients, other: Gradients) -> bool:
        a, b = one.losses.double(), other.losses.double()
        size = a.nan_to_num(0.0, 0.0, 0.0).abs().amax()
        return torch.allclose(a, b, rtol=0.0, atol=float(self._room * size), equal_nan=True)

    @property
    def _room(self) -> float:
        """What rounding may explain, relative to the size of a value: bfloat16 has 8 bits."""
        # numbers of 8 bits err by 2^-9 and sums of many by some percent; those of float32 by 1e-6
        # or a little more. A layer that is recorded wrongly is off by as much as its gradient
        return 0.1 if self._lowered or self._autograd.is_narrow() else 1e-3

    def _difference(self, found: Gradients, own: Gradients) -> LayerProblem | None:
        """What differs between gradients by more than rounding; None where nothing does."""
        whole = self._autograd.norm(own.total)
        if not bool(whole.isfinite()) or not bool(own.losses.isfinite().all()):
            return None
        room = self._room
        for name, expected in own.total.items():
            off = (found.total[name].double() - expected.double()).norm()
            # a hundredth of the whole: small gradients beside large ones have the rounding of those
            if not float(off) <= room * (float(expected.double().norm()) + 0.01 * float(whole)):
                return _disagreement(
                    name.rpartition(".")[0], f"the gradient of parameter {name!r}",
                    "that of plain autograd",
                )  # fmt: skip
        if not torch.allclose(found.norms.cpu(), own.norms, rtol=room, atol=room * float(whole)):
            what = "gradient norms of single examples"
            return _disagreement("", what, "those of plain autograd")
        return None


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


def _disagreement(layer: str, what: str, expected: str) -> LayerProblem:
    return LayerProblem(
        layer,
        what,
        "as the per-example engine computes it",
        expected,
        "name the module that differs in through_func=[...], mend its rule in layers={...}, or "
        "call the model itself where torch.compile made another of it "
        "(seen on made-up rows, before anything was released)",
    )
