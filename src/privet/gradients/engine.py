"""Per-example gradients, clipped and summed in one forward and one backward pass.

`forward_pass` swaps the forward of every layer for one that records on a tape. `backward_pass` then
brings the output gradients; each layer takes its squared norms at once, and either keeps small
per-example gradients or its input and output gradient. When all norms are known, `clipping_rules`
makes weights of them, and one weighted sum a layer gives sum_i w_i g_i in a `ClippedSum`. Summed
parameter gradients, which would be thrown away, are never computed. docs/theory/gradients.md has
the picture.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.gradients.backward_pass import BackwardPass, GroupSum
from privet.gradients.batch_shared_values import SharedTensor
from privet.gradients.clipped_sum import ClippedSum
from privet.gradients.clipping_rules import Clipping, FlatClipping, weigh_examples
from privet.gradients.convolution import ConvolutionHandler, arrange, channels_last_layouts
from privet.gradients.custom_layer import LayerRule
from privet.gradients.device import device_of
from privet.gradients.find_layers import find_layers
from privet.gradients.forward_pass import ForwardRecorder
from privet.gradients.kernel_choice import KernelChoice, KernelChooser
from privet.gradients.layer_protocol import LayerProblem, ParameterSlice
from privet.gradients.micro_batch import suitable_micro_batch
from privet.gradients.module_validator import refuse_cross_example
from privet.gradients.row_program import RowProgram
from privet.gradients.row_tracing import trace
from privet.gradients.tape import Tape


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
    modules to rules of your own (see `LayerRule`). `float64_products` makes products of matrices in
    float64, for neighbours that shift everybody's place (docs/theory/summation.md).

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
        layers: Mapping[type[nn.Module], LayerRule] | None = None,
        float64_products: bool = False,
    ) -> None:
        self.device = device_of(model.parameters())
        self.float64_products = float64_products or self.device.type != "cpu"
        self.model = model
        self._through_func, self.rules = frozenset(through_func), dict(layers or {})
        self._shared_parameters: frozenset[str] = frozenset()
        self.clipping = clipping if clipping is not None else FlatClipping(bound=1.0)
        self._chooser = KernelChooser(kernel_choice, choices or {})
        self._tape: Tape | None = None
        self.used_autocast = False
        self.over_bound_unprotected = 0
        """Examples that counted as nothing, since a clipping rule did not keep to its bound."""
        self._suggested: dict[Any, int] = {}
        self._find_layers()

    def _find_layers(self) -> None:
        refuse_cross_example(self.model)
        self._recorder = ForwardRecorder()
        self._traced_outputs: dict[Any, Any] = {}
        self._layers = find_layers(
            self.model, self._through_func, self.rules, self._shared_parameters
        )
        self._backward = BackwardPass(
            self._layers, self._recorder, self._chooser, float64_products=self.float64_products
        )

    def _refresh(self) -> None:
        """Look again at a model whose layers or trainable parameters were changed."""
        refuse_cross_example(self.model)
        if not self._layers.is_current(self.model):
            self._find_layers()

    def reroute(self, *, through_func: Collection[str], shared: Collection[str] = ()) -> None:
        """Record some modules in another way, by name: as a whole by torch.func, or, of modules
        with parameters of their own, these as values that all rows share and their layers apart.
        """
        self._through_func, self._shared_parameters = frozenset(through_func), frozenset(shared)
        self._find_layers()

    @property
    def through_func(self) -> frozenset[str]:
        """The names of modules that run by torch.func though the engine knows their kind."""
        return self._through_func

    @property
    def layers(self) -> tuple[str, ...]:
        """The names by which per-layer clipping knows the layers."""
        return self._layers.layer_names

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
        return self.arrange(*tensors)

    def arrange(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the layout of a model that was prepared before."""
        return arrange(tensors, self._layouts)

    @property
    def rearranges(self) -> bool:
        """Whether model and inputs are brought to another layout than torch's own."""
        return bool(self._layouts)

    def keep_contiguous(self) -> None:
        """Take the layout of `prepare` back, for a model whose forward pass fails in it."""
        if self.rearranges:
            self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self._layouts = []

    @functools.cached_property
    def _layouts(self) -> list[tuple[int, torch.memory_format]]:
        return channels_last_layouts(self.model)

    def zeros(self, *, capacity: int = 2**24) -> ClippedSum:
        """An empty sum, for accumulation, or for a step whose batch came out empty."""
        return ClippedSum.zeros(self._layers.parameters, capacity=capacity)

    @property
    def has_convolutions(self) -> bool:
        """Whether some products of matrices may run over the pixels of several examples."""
        return any(isinstance(h, ConvolutionHandler) for h in self._layers.handlers)

    @property
    def dtype(self) -> torch.dtype:
        """The precision in which layers are computed: float64 if all parameters are."""
        float64 = all(p.dtype == torch.float64 for p in self._layers.parameters.values())
        return torch.float64 if float64 else torch.float32

    @contextmanager
    def recording(self, rows: int | None = None) -> Iterator[None]:
        """Record the forward pass made inside: the layers' forwards are swapped meanwhile.

        `rows` is the number of rows of the batch; that of the first layer's input by default.
        """
        if self._tape is not None and self._tape.calls:
            self._tape = None
        self._refresh()
        tape = Tape(rows, device=self.device)
        with self._recorder.swap_forwards(self._layers, tape):
            yield
        self._tape = tape

    def trace(
        self,
        function: Callable[[tuple[Tensor, ...]], Tensor],
        columns: Sequence[Tensor],
        *,
        is_private: Callable[[Tensor], bool] = lambda t: False,
    ) -> RowProgram:
        """What a function does with the columns of one row, as a program (see `row_tracing`).

        `columns` are those of one made-up row. For `run` on rows that the function never sees; nor
        may it hold a tensor that `is_private`.
        """
        self._refresh()
        layers, outputs = self._layers, self._traced_outputs
        return trace(function, columns, layers, self.device, outputs, is_private)

    def run(self, program: RowProgram, tensors: Sequence[Tensor]) -> Tensor:
        """The losses of rows by a program, recorded: in place of a forward pass in `recording`."""
        tape = Tape(len(tensors[0]), device=self.device)
        losses = program.run(tape, tensors)
        self._tape = tape
        return losses

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
        parts: dict[int, list[GroupSum]] = {}
        self._backward.run(
            tape, losses, views, lambda layer, part: parts.setdefault(layer, []).append(part)
        )
        self._add(total, parts, losses.detach(), examples, clipping)
        return total

    def weighted_sum(
        self, losses: Tensor, weights: Tensor, *, views: int = 1, into: ClippedSum | None = None
    ) -> ClippedSum:
        """sum_i w_i g_i with weights known beforehand, one an example: **nothing is clipped**.

        For rows that nobody owns. No layer's gradients are kept until all norms are known.
        """
        tape = self._take_tape(losses, views)
        total = self.zeros() if into is None else into
        total.sensitivity = float("inf")
        squares = torch.zeros_like(weights)

        def add(layer: int, part: GroupSum) -> None:
            squares.add_(part[0].squared_norms)
            self._add_part(total, part, weights, None)

        if len(weights):
            self._backward.run(tape, losses, views, add)
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
        clipping = clipping if clipping is not None else self.clipping
        total.sensitivity = max(total.sensitivity, clipping.sensitivity(self.layers))
        for start in range(0, tensors[0].shape[0], size):
            part = [t[start : start + size] for t in tensors]
            with self.recording():
                losses = loss_fn(self.model, *part)
            self.clipped_sum(losses, clipping=clipping, views=views, into=total)
        return total

    def suggest_micro_batch(
        self, loss_fn: Callable[..., Tensor], *tensors: Tensor, views: int = 1
    ) -> int:
        """The micro-batch that fits the model (see `suitable_micro_batch`), from one example.

        It is run forward, without gradients and without touching the random state; the answer is
        remembered by the shape of the inputs.
        """
        key = (views, *[tuple(t.shape[1:]) for t in tensors])
        if key not in self._suggested:
            if tensors[0].shape[0] == 0:
                return 1
            with torch.no_grad(), torch.random.fork_rng(devices=[]), self.recording():
                loss_fn(self.model, *[t[:views] for t in tensors])
            self._suggested[key] = self.suitable_micro_batch(views=views)
            self._tape = None
        return self._suggested[key]

    def suitable_micro_batch(self, *, views: int = 1) -> int:
        """How many examples at a time suit the shapes of the last recorded pass."""
        if self._tape is None:
            raise InvalidArgument("engine", "no recorded pass", "one made inside `recording()`")
        return suitable_micro_batch(self._tape, views)

    def _take_tape(self, losses: Tensor, views: int) -> Tape:
        tape, self._tape = self._tape, None
        self.used_autocast = self.used_autocast or (tape is not None and tape.used_autocast)
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
            raise InvalidArgument(
                "losses", "no gradient", "a differentiable function of the model",
                "outside of torch.no_grad(); checkpoints of activations with use_reentrant=False",
            )  # fmt: skip
        if isinstance(losses, SharedTensor):
            raise InvalidArgument("losses", "values that all rows share", "one loss a row")
        for call in tape.calls if losses.numel() else ():
            if not call.rows or call.rows % losses.shape[0]:  # a multiple: windows, words
                raise LayerProblem(
                    call.handler.name,
                    f"the input of layer {call.handler.name!r}", f"{call.rows} rows",
                    f"of {losses.shape[0]} rows, one a loss",
                    "the first dimension must run over the examples",
                )  # fmt: skip
        return tape

    def _add(
        self,
        total: ClippedSum,
        parts: dict[int, list[GroupSum]],
        losses: Tensor,
        examples: int,
        clipping: Clipping,
    ) -> None:
        """Turn norms into weights and add the weighted sums."""
        none = torch.zeros(examples, dtype=torch.float64, device=losses.device)
        by_layer = [[n.squared_norms for n, _ in parts.get(k, ())] for k in range(len(self.layers))]
        sums = [norms[0] if len(norms) == 1 else sum(norms, none) for norms in by_layer]
        squares = torch.stack(sums) if sums else none.new_zeros(0, examples)
        weights, norms, bad = self._weights(squares, losses, clipping)
        of_layer = weights.unbind()
        for layer in list(parts):
            for part in parts.pop(layer):
                self._add_part(total, part, of_layer[layer], bad)
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
        weights, over = weigh_examples(clipping, squares, self.layers)
        self.over_bound_unprotected += over
        return (weights if bad is None else weights.index_fill(1, bad, 0.0)), norms, bad

    def _add_part(
        self, total: ClippedSum, part: GroupSum, weights: Tensor, bad: Tensor | None
    ) -> None:
        norms_and_sum, targets = part
        names = self._layers.parameter_names
        claims = [_claim(total, names[id(t.parameter)], t) for t in targets]
        norms_and_sum.add_to(weights, bad, *zip(*claims, strict=True))


def _claim(total: ClippedSum, name: str, target: ParameterSlice) -> tuple[Tensor, bool]:
    """Where a layer's gradient goes, and whether it must overwrite what is there."""
    gradient, stale = total.claim(name)
    if stale and target.rows is not None:
        gradient.zero_()
        stale = False
    return target.of(gradient), stale
