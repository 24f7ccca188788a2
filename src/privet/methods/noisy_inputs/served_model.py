"""A served model with multiplicative noise (Strategy II): each query is charged to a budget.

Symbols: gamma block noise, pi output noise, M residual mappings; eta, B, a floor of x~, bound of a
mapping, bound of the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from privet import premises
from privet.accounting import PrivacyLoss
from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Guarantee, Unit
from privet.ledger import Ledger, Scope
from privet.methods.noisy_inputs.bounded_query_network import QueryNet
from privet.noise import Source, secure

_MANY = 2**40  # queries that nobody will ever ask: stands for no end


_PREMISES = (
    premises.bound("residual mappings are clipped to B", what="the mappings"),
    premises.bound("the last layer is clipped to a", what="the last layer"),
    premises.held_by_code("training", "nothing else in the network is trained"),
    premises.held_by_code("charge", "each query was charged before it was answered"),
    premises.doubtful_premise("weights", "nobody has the weights, only answers"),
    premises.doubtful_premise("sum", "arithmetic inside the network is exact"),
)


class QueryBudgetExceeded(PrivetError):
    """The model has answered as many queries as its budget allows; nothing was computed."""

    def __init__(self, *, queries: int, left: int, ledger: Ledger) -> None:
        self.queries, self.left, self.cap_epsilon = queries, left, ledger.cap_epsilon
        spent = (
            f"this model's query budget is spent (epsilon {ledger.spent():.4g} of "
            f"{ledger.cap_epsilon:.4g} at delta {ledger.cap_delta:.3g}): it answers no more"
        )
        few = f"asked {queries} queries where the budget has room for {left}; ask fewer"
        super().__init__(f"{few if left else spent}; no answer was computed")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ServedModel:
    """Answers queries until the ledger refuses: each one is charged before it is computed.

    A query is one row; a batch of k rows costs sqrt(k) times the mu of one and is answered whole
    or not at all. The counter *is* the ledger, which must be one per query: with a ledger
    file it survives restarts and is shared by all processes that serve the model.

    **Guarantee** `guarantee()`: all answers ever given are together (cap_epsilon,
    cap_delta)-private for any change of the training data, as long as nobody gets the weights.

    **Assumes** arithmetic on real numbers inside the network; answers are rounded to multiples of
    2^-10, which hides the low bits of the last layer but is no proof for the layers before.

    >>> net = QueryNet(channels=1, classes=2, bound=1.0, floor=1.0, gamma=9.0, last=1.0,
    ...                output_noise=9.0, widths=(2,))
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5, unit=Unit.QUERY)
    >>> model = ServedModel.of(net, ledger)
    >>> model.queries_left
    2
    >>> model.predict_proba(np.zeros((2, 1, 4, 4))).shape
    (2, 2)
    >>> model.predict_proba(np.zeros((1, 1, 4, 4)))
    Traceback (most recent call last):
    ...
    privet.methods.noisy_inputs.served_model.QueryBudgetExceeded: this model's query ...
    """

    network: QueryNet
    ledger: Ledger

    def __post_init__(self) -> None:
        if self.ledger.unit is not Unit.QUERY:
            raise InvalidArgument("ledger", f"one per {self.ledger.unit.value}", "one per query")
        self.network.eval()
        if self.network.source is None:  # torch's own noise can be drawn again by its seed
            self.network.use(secure())

    @classmethod
    def of(cls, network: QueryNet, ledger: Ledger, *, rng: Source | None = None) -> ServedModel:
        """Serve a trained network; noise is secret unless a source is given."""
        network.use(secure() if rng is None else rng)
        return cls(network=network, ledger=ledger)

    @property
    def queries_left(self) -> int:
        """How many more rows can be answered; 2^40 stands for no end."""
        if self._affords(_MANY):
            return _MANY
        low, high = 0, 1
        while self._affords(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._affords(middle) else (low, middle)
        return low

    @torch.no_grad()
    def predict_proba(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities of the classes for each row; charged before anything is computed."""
        rows = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
        if not len(rows) or rows.ndim != 4:
            expected = "at least one row, of shape (rows, channels, height, width)"
            raise InvalidArgument("x", tuple(rows.shape), expected, "nothing was charged")
        if not bool(torch.isfinite(rows).all()):
            raise InvalidArgument("x", "NaN or infinity", "finite rows", "nothing was charged")
        self._charge(len(rows))
        logits = self.network(rows).double()
        rounded = (logits * 1024.0).round() / 1024.0  # hides the low bits: see **Assumes**
        return np.asarray(rounded.softmax(1).numpy())

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The most probable class of each row; costs the same."""
        return np.asarray(self.predict_proba(x).argmax(1))

    def guarantee(self) -> Guarantee:
        """What all answers ever given promise together: the ledger's cap, on its premises too."""
        stated, source = self.ledger.guarantee(), self.network.source
        seed = () if source is None or source.secret else (premises.SECRET_SEED,)
        stated_here = (*_PREMISES, *seed)
        about = {p.about for p in stated_here}
        return replace(
            stated,
            theorem="one Gaussian release a residual mapping and one for the last layer, composed;"
            f" {stated.theorem}",
            premises=(*stated_here, *(p for p in stated.premises if p.about not in about)),
        )

    def _affords(self, queries: int) -> bool:
        return self.ledger.affords(self._loss(queries))

    def _loss(self, queries: int) -> PrivacyLoss:
        return self.network.cost.loss(queries, adjacency=self.ledger.adjacency.of_losses)

    def _charge(self, queries: int) -> None:
        try:
            source = self.network.source
            scope = Scope(unit=Unit.QUERY, secret=None if source is None else source.secret)
            self.ledger.charge(self._loss(queries), what=f"{queries} queries", scope=scope)
        except BudgetExceeded:
            raise QueryBudgetExceeded(
                queries=queries, left=self.queries_left, ledger=self.ledger
            ) from None
