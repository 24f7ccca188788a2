"""nn.Embedding and EmbeddingBag: recorded are the indices and the gradient g of what they look up.

The gradient of an example has a row for every word that it looked up: the sum of g over the places
of that word. Its norm is taken over those rows; the whole table is never instantiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.gradients.float64_sums import squared_norms
from privet.gradients.layer_protocol import (
    BackwardCall,
    Kernel,
    LayerHandler,
    ParameterSlice,
    RecordedLayer,
    constant,
    trainable,
)
from privet.gradients.norms_and_sum import NormsAndSum
from privet.gradients.tape import Tape


@final
class EmbeddingHandler(LayerHandler):
    """y = W[index]; the gradient of a row is the sum of g over the places that looked it up."""

    def __init__(self, name: str, weight: nn.Parameter, padding: int | None) -> None:
        super().__init__(name, [ParameterSlice(weight)])
        self.vocabulary, self.width = weight.shape
        self.padding = padding

    def _flat(self, call: BackwardCall) -> tuple[Tensor, Tensor]:
        a, g, views = call.a, call.g, call.views
        examples = a.shape[0] // views
        index, g = a.reshape(examples, -1), g.reshape(examples, -1, self.width)
        if self.padding is not None:
            g = g.masked_fill((index == self.padding).unsqueeze(2), 0.0)
        return index, g

    def kernels(self, call: BackwardCall) -> list[Kernel]:
        index, g = self._flat(call)
        return [Kernel("segments", 0.0, lambda: self._segments(index, g))]

    def _segments(self, index: Tensor, g: Tensor) -> NormsAndSum:
        """Add up g by (example, word) after sorting; only words that occur have a gradient.

        Cost: a sort of the places, and 6 flops a place and width; no table is built.
        """
        examples = index.shape[0]
        owner = torch.arange(examples, device=index.device).unsqueeze(1)
        keys, place = torch.unique(index + owner * self.vocabulary, return_inverse=True)
        sums = g.new_zeros(len(keys), self.width).index_add_(0, place.view(-1), g.flatten(0, 1))
        norms = torch.zeros(examples, dtype=torch.float64, device=g.device)
        norms.index_add_(0, keys // self.vocabulary, squared_norms(sums))

        def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            whose = keys // self.vocabulary
            usable = sums.double()
            if bad is not None:
                usable = usable.index_fill(0, torch.isin(whose, bad).nonzero().view(-1), 0.0)
            usable *= weights.double()[whose][:, None]
            words, place = torch.unique(keys % self.vocabulary, return_inverse=True)
            by_word = usable.new_zeros(len(words), self.width).index_add_(0, place, usable)
            into[0].index_add_(0, words, by_word)

        return NormsAndSum(norms, add_weighted)

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        out = call.g.new_empty(len(call.a) // call.views, self.vocabulary, self.width)
        self.add_per_example(call, [out], fresh=True)
        return [out]

    def add_per_example(
        self, call: BackwardCall, into: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        if fresh:
            into[0].zero_()
        for words, g, target in zip(*self._flat(call), into[0], strict=True):
            target.index_add_(0, words, g)


def record_embedding(name: str, module: nn.Embedding) -> RecordedLayer:
    """nn.Embedding without the options that mix examples."""
    handler = _handler(name, module)

    def forward(tape: Tape, input: Tensor) -> Tensor:
        y = F.embedding(input, constant(module.weight), module.padding_idx)
        return tape.tap(y, handler, input)

    return RecordedLayer.of(forward, handler)


def record_embedding_bag(name: str, module: nn.EmbeddingBag) -> RecordedLayer:
    """nn.EmbeddingBag: a lookup of (rows, longest bag), then a sum, mean or maximum over bags."""
    handler = _handler(name, module)

    def forward(
        tape: Tape, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if input.dim() == 1 and offsets is not None:
            ends = torch.cat([offsets, offsets.new_tensor([len(input)])])
            starts, lengths = offsets, ends.diff()
            if module.include_last_offset:
                starts, lengths = offsets[:-1], offsets.diff()
            place = torch.arange(int(lengths.max()) if len(lengths) else 0, device=input.device)
            inside = place < lengths[:, None]
            at = (starts[:, None] + place).masked_fill(~inside, 0)
        else:
            at, inside = torch.arange(input.numel()).view(input.shape), torch.ones_like(input) > 0
        index = input.reshape(-1)[at]
        y = tape.tap(F.embedding(index, constant(module.weight)), handler, index)
        if module.padding_idx is not None:
            inside = inside & (index != module.padding_idx % module.num_embeddings)
        if module.mode == "max":
            highest = y.masked_fill(~inside.unsqueeze(2), -torch.inf).max(1).values
            return highest.masked_fill(~inside.any(1, keepdim=True), 0.0)
        weights = inside.to(y.dtype)
        if per_sample_weights is not None:
            weights = weights * per_sample_weights.reshape(-1)[at]
        total = (y * weights.unsqueeze(2)).sum(1)
        count = inside.sum(1, keepdim=True).clamp(min=1)
        return total / count if module.mode == "mean" else total

    return RecordedLayer.of(forward, handler)


def _handler(name: str, module: nn.Embedding | nn.EmbeddingBag) -> EmbeddingHandler | None:
    if module.max_norm is not None or module.scale_grad_by_freq:
        raise InvalidArgument(
            f"layer {name!r}",
            module,
            "an Embedding without max_norm and scale_grad_by_freq, which mix examples",
            "call model = privet.gradients.make_private_ready(model), which replaces it",
        )
    weight = trainable(module.weight)
    return None if weight is None else EmbeddingHandler(name, weight, module.padding_idx)
