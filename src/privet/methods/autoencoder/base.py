"""What the auto-encoder's estimators share: checks, public facts, labels, the release kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from privet import _check
from privet.bounds import UserWeights, user_weights
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Unit
from privet.mechanisms import Noise
from privet.methods.autoencoder.layers import Activation, Learner
from privet.methods.autoencoder.records import Block, Bounds, Records, Scaling, Stream
from privet.methods.autoencoder.sound import SoundStack, Watcher
from privet.methods.autoencoder.stack import OutputLayer
from privet.methods.base import PublicFacts, class_numbers
from privet.methods.legacy_estimators import PrivateEstimator
from privet.nets.features import Features

Array = NDArray[Any]


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(PrivateEstimator):
    """What the transformer and the classifier share: settings, checks, public facts."""

    bounds: Bounds = None
    features: Features | None = None
    layers: tuple[int, ...] = (200,)
    activation: str = "radial"
    noise: str | None = None
    shares: tuple[float, ...] | None = None
    adjacency: str = "add-remove"
    user_share: float = 1.0
    watcher: Watcher | None = None

    def _facts(self, columns: int, records: int | None, outputs: int) -> PublicFacts:
        if self.n_public is None and records is None:
            raise InvalidArgument("n_public", None, "given with a stream, whose length is unknown")
        return PublicFacts(
            records=_check.count("n_public", records if self.n_public is None else self.n_public),
            features=columns,
            outputs=outputs,
            epsilon=_check.positive("epsilon", self.epsilon),
            delta=_check.delta_or_zero("delta", self.delta),
        )

    def _sound(self, columns: int, output: OutputLayer | None, groups: Array | None) -> SoundStack:
        """The method: set for the way back without an output layer, else for the signal."""
        near, loose, white = (0.5, 1.0, 0.0) if output is None else (0.05, 0.1, 0.8)
        for name, value, allowed in (
            ("activation", self.activation, [a.value for a in Activation]),
            ("adjacency", self.adjacency, [a.value for a in Adjacency]),
            ("noise", self.noise, [None, *(n.value for n in Noise)]),
        ):
            if value not in allowed:
                raise InvalidArgument(name, value, f"one of {', '.join(map(str, allowed))}")
        scaling = Scaling(
            columns=columns, bounds=self.bounds, features=self.features, looseness=near
        )
        sizes, width = [], scaling.size
        for units in layer_sizes(self.layers):
            sizes.append(min(units, width))
            width = sizes[-1]
        return SoundStack(
            scaling=scaling,
            learners=tuple(
                Learner(
                    units=units,
                    activation=Activation(self.activation),
                    looseness=loose,
                    whitening=white,
                )
                for units in sizes
            ),
            output=output,
            noise=None if self.noise is None else Noise(self.noise),
            shares=None if self.shares is None else tuple(self.shares),
            adjacency=Adjacency(self.adjacency),
            unit=Unit.RECORD if groups is None else Unit.USER,
            user_share=_check.positive("user_share", self.user_share),
            **({} if self.watcher is None else {"watcher": self.watcher}),
        )

    def _weights(self, groups: Array | None, n: int) -> UserWeights | None:
        if groups is None:
            return None
        users = np.asarray(groups)
        if users.shape != (n,):
            raise InvalidArgument("groups", users.shape, f"the user of each of {n} records")
        return user_weights(users, share=self.user_share)


@final
class Labelled(Records):
    """A stream with its labels as class numbers."""

    def __init__(self, stream: Stream, classes: Array) -> None:
        self.stream, self.classes = stream, classes

    def blocks(self) -> Iterator[Block]:
        """The stream's blocks."""
        for block in self.stream.blocks():
            if block.labels is None:
                raise InvalidArgument("stream", "rows alone", "(rows, labels) for a classifier")
            yield Block(rows=block.rows, labels=class_numbers(block.labels, self.classes)[1])


def layer_sizes(layers: Any) -> tuple[int, ...]:
    given = layers if isinstance(layers, tuple | list) else (layers,)
    return tuple(_check.count("layers", units) for units in given)


def checked_rows(estimator: BaseEstimator, X: Array) -> Array:
    X = validate_data(estimator, X, dtype="numeric", ensure_all_finite=False, allow_nd=True)
    return np.asarray(X.reshape(len(X), -1))


def no_groups(groups: Array | None) -> None:
    if groups is not None:
        raise InvalidArgument(
            "groups",
            groups,
            "None with a stream",
            "a user's records must be counted first: give an array or a memory map",
        )
