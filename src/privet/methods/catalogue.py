"""Which methods there are: ours, and those that joined by the entry-point group `privet.methods`.

A method of somebody else's joins by a line in its own pyproject.toml:

    [project.entry-points."privet.methods"]
    toy = "my_package.toy:Toy"
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.methods.contract import Method, Model

GROUP = "privet.methods"
_OWN = {
    "dpsgd": "privet.methods.dpsgd.linear_method:LinearDPSGD",
    "dpsgd-network": "privet.methods.dpsgd.network_method:NetworkDPSGD",
    "adaptive-laplace": "privet.methods.adaptive_laplace.moments:OneShotMoments",
    "adaptive-laplace-network": (
        "privet.methods.adaptive_laplace.shaped_training:RelevanceShapedTraining"
    ),
    "local-records": "privet.methods.adaptive_laplace.local:LocalRecords",
    "autoencoder": "privet.methods.autoencoder.method:AutoencoderStack",
    "behaviour": "privet.methods.autoencoder.behaviour.method:Behaviour",
    "residual": "privet.methods.residual.noisy_inputs:NoisyInputs",
    "pate": "privet.methods.pate.mean:MeanPATE",
    "pate-by-votes": "privet.methods.pate.votes:VotingPATE",
}
_BY_FILES = {"pate-of-volumes": "privet.methods.pate.volumes:VolumePATE"}
"""What a method of ours becomes for files of its own: runs have these names, no command does."""
_MODELS = {
    "LinearModel": "privet.methods.models:LinearModel",
    "NetworkModel": "privet.methods.models:NetworkModel",
    "StackModel": "privet.methods.autoencoder.stack:StackModel",
    "BehaviourNetwork": "privet.methods.autoencoder.behaviour.network:BehaviourNetwork",
    "EnsembleModel": "privet.methods.models:EnsembleModel",
}
"""Models of our methods, apart from the code that trains them: loading needs no trainer."""


@cache
def method_names() -> tuple[str, ...]:
    """The names of all methods, ours first."""
    return (*_OWN, *(name for name in _joined() if name not in _OWN))


def method_type(name: str) -> type[Method[Any]]:
    """The method of a name."""
    if (place := _OWN.get(name) or _BY_FILES.get(name)) is not None:
        found: type[Method[Any]] = _named(place)
        return found
    joined = _joined()
    if name not in joined:
        raise InvalidArgument("method", name, f"one of {', '.join(method_names())}")
    from privet.methods.contract import Method

    found = joined[name].load()
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InvalidArgument(f"entry point {name}", found, "a subclass of Method")
    return found


def model_type(kind: str, method: str) -> type[Model]:
    """The class of a saved model: one of ours, or what a method that joined calls its `model`."""
    if kind in _MODELS:
        found: type[Model] = _named(_MODELS[kind])
        return found
    if method in _joined():
        from privet.methods.contract import Model

        own = getattr(method_type(method), "model", None)
        if isinstance(own, type) and issubclass(own, Model) and own.__name__ == kind:
            return own
    raise InvalidArgument(
        "model", kind, f"one of {', '.join(_MODELS)}", f"is the method {method!r} installed?"
    )


@cache
def _joined() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
