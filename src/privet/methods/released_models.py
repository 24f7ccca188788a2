"""Models that several methods release: linear rules, and networks of torch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.domain import Rows
from privet.errors import InvalidArgument
from privet.methods.contract import Model

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[Any]
VIEWS = ("ball", "unit", "directions", "box", "cube")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel(Model):
    """logits = x W + b, for a view of the rows."""

    weights: NDArray[np.float64] = field(repr=False)
    """One row a feature, one column an output."""
    intercept: NDArray[np.float64] = field(repr=False)
    view: str = "ball"
    components: int | None = None
    """How many leading features are used, scaled to length 1 again; None for all."""
    centre: NDArray[np.float32] | None = field(default=None, repr=False)
    """Rows are directions from here; None: they are taken as they are."""

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise InvalidArgument("view", self.view, f"one of {', '.join(VIEWS)}")
        for name in ("weights", "intercept"):  # products are rounded by how a matrix lies in memory
            plain = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, plain)

    def outputs(self, rows: Rows) -> NDArray[np.float64]:
        from privet.features import unit_rows

        x = leading(getattr(rows, self.view)().reshape(len(rows), -1), self.components)
        x = x if self.centre is None else unit_rows(x - self.centre)
        found = x.astype(np.float64) @ self.weights + self.intercept
        return found[:, 0] if found.shape[1] == 1 else found

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays: dict[str, Array] = {"weights": self.weights, "intercept": self.intercept}
        if self.centre is not None:
            arrays["centre"] = self.centre
        return arrays, {"view": self.view, "components": self.components}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        given: dict[str, Any] = {**arrays, **settings}
        return cls(**given)


def leading(x: Array, components: int | None) -> Array:
    """The first so many columns, each row scaled to length 1 again."""
    from privet.features import unit_rows

    if components is None or components >= x.shape[1]:
        return x
    return unit_rows(x[:, :components])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkModel(Model):
    """A torch module on a view of the rows, in the shape of the record."""

    network: nn.Module = field(repr=False)
    view: str = "cube"

    def outputs(self, rows: Rows) -> NDArray[np.float64]:
        import torch

        self.network.eval()
        x = torch.from_numpy(np.ascontiguousarray(getattr(rows, self.view)()))
        with torch.no_grad():
            found = torch.cat([self.network(part) for part in x.split(1000)])  # to bound memory
        out: NDArray[np.float64] = found.double().numpy()
        return out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        from privet.networks.architectures import describe_network

        return _arrays(self.network), {"view": self.view, "network": describe_network(self.network)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        from privet.networks.architectures import build_network

        network = build_network(settings["network"], user_network=settings.get("module"))
        return cls(network=_loaded(network, arrays), view=settings["view"])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class EnsembleModel(Model):
    """Networks whose probabilities are averaged, over draws of the noise inside them too."""

    members: Sequence[nn.Module] = field(repr=False)
    noise_draws: int = 1
    view: str = "cube"

    def outputs(self, rows: Rows) -> NDArray[np.float64]:
        """Logarithms of averaged probabilities; noise is the same at every call.

        In float64, so that an answer hardly depends on who is asked beside it; networks with
        convolutions in float32, which takes half the time.
        """
        import torch

        from privet.networks.residual import Ensemble

        network = Ensemble(self.members, noise_draws=self.noise_draws).eval()
        x = torch.from_numpy(np.ascontiguousarray(getattr(rows, self.view)()))
        if not any(isinstance(part, torch.nn.Conv2d) for part in network.modules()):
            network, x = copy.deepcopy(network).double(), x.double()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            # 500 rows at a time, to bound memory
            found = torch.cat([network(part) for part in x.split(500)])
        out: NDArray[np.float64] = found.double().numpy()
        return out

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        from privet.networks.architectures import describe_network

        arrays = {
            f"{i}.{k}": v for i, one in enumerate(self.members) for k, v in _arrays(one).items()
        }
        networks = [describe_network(one) for one in self.members]
        settings = {"view": self.view, "networks": networks, "noise_draws": self.noise_draws}
        return arrays, settings

    @classmethod
    def from_state(cls, arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        from privet.networks.architectures import build_network

        members = []
        for i, description in enumerate(settings["networks"]):
            start = f"{i}."
            own = {k[len(start) :]: v for k, v in arrays.items() if k.startswith(start)}
            members.append(_loaded(build_network(description), own))
        return cls(members=members, noise_draws=settings["noise_draws"], view=settings["view"])


def _arrays(network: nn.Module) -> dict[str, Array]:
    return {k: v.detach().numpy().copy() for k, v in network.state_dict().items()}


def _loaded(network: nn.Module, arrays: Mapping[str, Array]) -> nn.Module:
    """The network with these weights, ready to answer; a file keeps numbers as rows of one."""
    import torch

    own = network.state_dict()
    network.load_state_dict(
        {k: torch.from_numpy(np.array(v)).reshape(own[k].shape) for k, v in arrays.items()}
    )
    return network.eval()
