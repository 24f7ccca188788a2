"""Per-example gradients, clipped and summed in one forward and one backward pass.

Recording swaps the forward of every layer for one that taps its output. The backward pass then
brings the output gradients; each site takes its squared norms at once, and either keeps small
per-example gradients or its input and output gradient. When all norms are known, one weighted sum a
site gives sum_i w_i g_i. Summed parameter gradients that would be thrown away are never computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.nets.per_example import fitting
from privet.nets.per_example.backward import BackwardPass, Part
from privet.nets.per_example.choice import Chooser, KernelChoice
from privet.nets.per_example.clipped_sum import ClippedSum
from privet.nets.per_example.clipping import Clipping, FlatClipping
from privet.nets.per_example.convolution import ConvolutionSite
from privet.nets.per_example.device import home_of
from privet.nets.per_example.discover import discover
from privet.nets.per_example.layers import Rule
from privet.nets.per_example.measured import Target
from privet.nets.per_example.recording import Recorder
from privet.nets.per_example.shared import Shared
from privet.nets.per_example.tape import Tape
from privet.nets.ready import refuse_cross_example


class PerExampleGradients:
    """Clips each example's gradient of a model and sums them.

    ```
    engine = PerExampleGradients(model, clipping=FlatClipping(bound=1.0))
    with engine.recording():
        losses = loss_fn(model(x), y)            # one loss a row
    total = engine.clipped_sum(losses)
    ```

    `kernel_choice="measured"` times the kernels of each layer on its first batch; `"cost-model"`
    decides from shapes alone. `choices` restores what another engine had chosen, so that a resumed
    run repeats the interrupted one bit for bit. `through_func` names modules ('' is the whole
    model) to run by torch.func though the engine knows their kind, for those that read the
    parameters of other layers; unknown kinds go that way by themselves. `layers` maps kinds of
    modules to rules of your own (see `Rule`). `wide` makes products of matrices in float64, for
    neighbours that shift everybody's place (docs/theory/summation.md).

    **Guarantee**: see `ClippedSum`. A row whose gradient is not finite adds nothing and is counted.
    **Assumes** that a row's loss depends on that row only. Layers that mix rows are refused by
    kind, and the first batch of two examples or more checks that no gradient reaches another row.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        clipping: Clipping | None = None,
        kernel_choice: KernelChoice = "measured",
        choices: Mapping[str, str] | None = None,
        through_func: Collection[str] = (),
        layers: Mapping[type[nn.Module], Rule] | None = None,
        wide: bool = False,
    ) -> None:
        fitting.keep_freed_memory()
        self.home = home_of(model.parameters())
        self.wide = wide or self.home.type != "cpu"
        self.model = model
        self._through_func, self._rules = frozenset(through_func), dict(layers or {})
        self.clipping = clipping if clipping is not None else FlatClipping(bound=1.0)
        self._chooser = Chooser(kernel_choice, choices or {})
        self._tape: Tape | None = None
        self.lowered = False
        self._suggested: dict[Any, int] = {}
        self._discover()

    def _discover(self) -> None:
        refuse_cross_example(self.model)
        self._recorder = Recorder()
        self._plan = discover(self.model, self._through_func, self._rules)
        self._backward = BackwardPass(self._plan, self._recorder, self._chooser, wide=self.wide)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names by which per-layer clipping knows the layers."""
        return self._plan.layers

    @property
    def choices(self) -> dict[str, str]:
        """The kernel chosen for every shape so far; plain strings, to save with a checkpoint."""
        return dict(self._chooser.choices)

    @choices.setter
    def choices(self, value: Mapping[str, str]) -> None:
        self._chooser.choices = dict(value)

    def prepare(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Convert the model, and the given inputs, to the layout in which the engine is fastest.

        Two- and three-dimensional convolutions run channels-last; other models are left alone.
        """
        for _, layout in self._layouts:
            self.model.to(memory_format=layout)  # type: ignore[call-overload]
        return self.arranged(*tensors)

    def arranged(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the layout of a model that was prepared before."""
        return fitting.arranged(tensors, self._layouts)

    @functools.cached_property
    def _layouts(self) -> list[tuple[int, torch.memory_format]]:
        return fitting.layouts(self.model)

    def zeros(self, *, capacity: int = 2**24) -> ClippedSum:
        """An empty sum, for accumulation, or for a step whose batch came out empty."""
        return ClippedSum.zeros(self._plan.parameters, capacity=capacity)

    @property
    def has_convolutions(self) -> bool:
        """Whether some products of matrices may run over the pixels of several examples."""
        sites = [site for _, recorded in self._plan.modules for site in recorded.sites]
        return any(isinstance(site, ConvolutionSite) for site in sites)

    @property
    def dtype(self) -> torch.dtype:
        """The precision in which layers are computed: float64 if all parameters are."""
        wide = all(p.dtype == torch.float64 for p in self._plan.parameters.values())
        return torch.float64 if wide else torch.float32

    @contextmanager
    def recording(self, rows: int | None = None) -> Iterator[None]:
        """Record the forward pass made inside: the layers' forwards are swapped meanwhile.

        `rows` is the number of rows of the batch; that of the first layer's input, unless told.
        """
        if self._tape is not None and self._tape.uses:
            self._tape = None
        refuse_cross_example(self.model)
        if not self._plan.is_current(self.model):
            self._discover()
        tape = Tape(rows, home=self.home)
        with self._recorder.swapped(self._plan, tape):
            yield
        self._tape = tape

    def clipped_sum(
        self,
        losses: Tensor,
        *,
        clipping: Clipping | None = None,
        views: int = 1,
        into: ClippedSum | None = None,
    ) -> ClippedSum:
        """The clipped sum of the recorded losses, one a row, added to `into` if given.

        `clipping` replaces the engine's for this call (C_t). With `views` = K the rows iK ...
        iK+K-1 are views of example i, whose gradient is their mean, clipped as one.
        """
        clipping = clipping if clipping is not None else self.clipping
        views = _check.count("views", views)
        tape = self._take_tape(losses, views)
        total = self.zeros() if into is None else into
        total.sensitivity = max(total.sensitivity, clipping.sensitivity(self.layers))
        examples = losses.shape[0] // views
        if examples == 0:
            return total
        parts: dict[int, list[Part]] = {}
        self._backward.run(
            tape, losses, views, lambda layer, part: parts.setdefault(layer, []).append(part)
        )
        self._add(total, parts, losses.detach(), examples, clipping)
        return total

    def weighted_sum(
        self, losses: Tensor, weights: Tensor, *, views: int = 1, into: ClippedSum | None = None
    ) -> ClippedSum:
        """sum_i w_i g_i with weights told beforehand, one an example: **nothing is clipped**.

        For rows that nobody owns. No layer's gradients are kept until all norms are known.
        """
        tape = self._take_tape(losses, views)
        total = self.zeros() if into is None else into
        total.sensitivity = float("inf")
        squares = torch.zeros_like(weights)

        def put(layer: int, part: Part) -> None:
            squares.add_(part[0].squared_norms)
            self._put(total, part, weights, None)

        if len(weights):
            self._backward.run(tape, losses, views, put)
        total.examples_unprotected += len(weights)
        total.norms.append(squares.sqrt())
        return total

    def accumulate(
        self,
        loss_fn: Callable[..., Tensor],
        *tensors: Tensor,
        micro_batch: int | None = None,
        clipping: Clipping | None = None,
        views: int = 1,
        into: ClippedSum | None = None,
    ) -> ClippedSum:
        """The clipped sum over a batch of any size, a few examples at a time.

        `loss_fn(model, *tensors)` gives one loss a row. `micro_batch` counts examples; it bounds
        memory and keeps the work in cache, and does not change the result beyond rounding. Left to
        itself it follows from shapes alone (see `suggest_micro_batch`).
        """
        if micro_batch is None:
            micro_batch = self.suggest_micro_batch(loss_fn, *tensors, views=views)
        size = _check.count("micro_batch", micro_batch) * _check.count("views", views)
        total = self.zeros() if into is None else into
        chosen = clipping if clipping is not None else self.clipping
        total.sensitivity = max(total.sensitivity, chosen.sensitivity(self.layers))
        for start in range(0, tensors[0].shape[0], size):
            part = [t[start : start + size] for t in tensors]
            with self.recording():
                losses = loss_fn(self.model, *part)
            self.clipped_sum(losses, clipping=chosen, views=views, into=total)
        return total

    def suggest_micro_batch(
        self, loss_fn: Callable[..., Tensor], *tensors: Tensor, views: int = 1
    ) -> int:
        """The micro-batch that fits the model (see `fitting_micro_batch`), from one example.

        It is run forward, without gradients and without touching the random state; the answer is
        remembered by the shape of the inputs.
        """
        key = (views, *[tuple(t.shape[1:]) for t in tensors])
        if key not in self._suggested:
            if tensors[0].shape[0] == 0:
                return 1
            with torch.no_grad(), torch.random.fork_rng(devices=[]), self.recording():
                loss_fn(self.model, *[t[:views] for t in tensors])
            self._suggested[key] = self.fitting_micro_batch(views=views)
            self._tape = None
        return self._suggested[key]

    def fitting_micro_batch(self, *, views: int = 1) -> int:
        """How many examples at a time suit the shapes of the last recorded pass."""
        if self._tape is None:
            raise InvalidArgument("engine", "no recorded pass", "one made inside `recording()`")
        return fitting.micro_batch(self._tape, views)

    def _take_tape(self, losses: Tensor, views: int) -> Tape:
        tape, self._tape = self._tape, None
        self.lowered = self.lowered or (tape is not None and tape.lowered)
        if tape is None:
            raise InvalidArgument(
                "losses", "no recorded forward pass", "computed inside `with engine.recording():`"
            )
        if losses.dim() != 1 or losses.shape[0] % views:
            raise InvalidArgument(
                "losses", tuple(losses.shape), f"one loss a row, a multiple of views={views}",
                "use reduction='none' and average over all but the first dimension",
            )  # fmt: skip
        if losses.numel() and not losses.requires_grad:
            raise InvalidArgument("losses", "no gradient", "a differentiable function of the model")
        if isinstance(losses, Shared):
            raise InvalidArgument("losses", "values that all rows share", "one loss a row")
        for use in tape.uses if losses.numel() else ():
            if use.rows != losses.shape[0]:
                raise InvalidArgument(
                    f"the input of layer {use.site.name!r}", f"{use.rows} rows",
                    f"of {losses.shape[0]} rows, one a loss",
                    "the first dimension must run over the examples",
                )  # fmt: skip
        return tape

    def _add(
        self,
        total: ClippedSum,
        parts: dict[int, list[Part]],
        losses: Tensor,
        examples: int,
        clipping: Clipping,
    ) -> None:
        """Turn norms into weights and add the weighted sums."""
        none = torch.zeros(examples, dtype=torch.float64, device=losses.device)
        found = [[m.squared_norms for m, _ in parts.get(k, ())] for k in range(len(self.layers))]
        each = [some[0] if len(some) == 1 else sum(some, none) for some in found]
        squares = torch.stack(each) if each else none.new_zeros(0, examples)
        weights, norms, bad = self._weights(squares, losses, clipping)
        of_layer = weights.unbind()
        for layer in list(parts):
            for part in parts.pop(layer):
                self._put(total, part, of_layer[layer], bad)
        total.examples_unprotected += examples
        total.non_finite_unprotected += 0 if bad is None else len(bad)
        total.norms.append(norms)

    def _weights(
        self, squares: Tensor, losses: Tensor, clipping: Clipping
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Weights, norms, and the examples whose gradient or loss is not finite, if any."""
        norms = squares.sum(0).sqrt()
        each = losses.view(len(norms), -1) if len(norms) else losses[:, None]
        finite = norms.isfinite() & each.isfinite().all(1)
        bad = None if bool(finite.all()) else (~finite).nonzero().view(-1)
        weights = clipping.weights(squares, self.layers)
        return (weights if bad is None else weights.index_fill(1, bad, 0.0)), norms, bad

    def _put(self, total: ClippedSum, part: Part, weights: Tensor, bad: Tensor | None) -> None:
        measured, targets = part
        claimed = [_claim(total, self._plan.names[id(t.parameter)], t) for t in targets]
        measured.put(weights, bad, *zip(*claimed, strict=True))


def _claim(total: ClippedSum, name: str, target: Target) -> tuple[Tensor, bool]:
    """Where a layer's gradient goes, and whether it must overwrite what is there."""
    gradient, outdated = total.claim(name)
    if outdated and target.rows is not None:
        gradient.zero_()
        outdated = False
    return target.of(gradient), outdated
