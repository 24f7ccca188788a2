"""Which methods there are: ours, and those of other packages (`privet.plugins`)."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privet.errors import InvalidArgument
from privet.plugins import METHODS, plugins

if TYPE_CHECKING:
    from privet.methods.contract import Method, Model

_OWN = {
    "dpsgd": "privet.methods.dpsgd.linear_dpsgd:LinearDPSGD",
    "dpsgd-network": "privet.methods.dpsgd.network_dpsgd:NetworkDPSGD",
    "adaptive-laplace": "privet.methods.moments.one_shot_moments:OneShotMoments",
    "adaptive-laplace-network": (
        "privet.methods.moments.relevance_shaped_training:RelevanceShapedTraining"
    ),
    "local-records": "privet.methods.moments.local_privacy:LocalRecords",
    "autoencoder": "privet.methods.autoencoder.autoencoder_stack:AutoencoderStack",
    "residual": "privet.methods.noisy_inputs.noisy_inputs:NoisyInputs",
    "pate": "privet.methods.pate.classification_pate:MeanPATE",
    "pate-by-votes": "privet.methods.pate.classification_pate:VotingPATE",
}
_BY_FILES = {"pate-of-volumes": "privet.methods.pate.volume_pate:VolumePATE"}
"""What a method of ours becomes for files of its own: runs have these names, no command does."""
_MODELS = {
    "LinearModel": "privet.methods.released_models:LinearModel",
    "NetworkModel": "privet.methods.released_models:NetworkModel",
    "StackModel": "privet.methods.autoencoder.stack_model:StackModel",
    "EnsembleModel": "privet.methods.released_models:EnsembleModel",
}
"""Models of our methods, apart from the code that trains them: loading needs no trainer."""


@cache
def method_names() -> tuple[str, ...]:
    """The names of all methods, ours first."""
    return (*_OWN, *(name for name in plugins(METHODS) if name not in _OWN))


def method_type(name: str) -> type[Method[Any]]:
    """Find the class of a method by its name, ours or one that joined."""
    if (place := _OWN.get(name) or _BY_FILES.get(name)) is not None:
        found: type[Method[Any]] = _named(place)
        return found
    joined = plugins(METHODS)
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
    if method in plugins(METHODS):
        from privet.methods.contract import Model

        own = getattr(method_type(method), "model", None)
        if isinstance(own, type) and issubclass(own, Model) and own.__name__ == kind:
            return own
    raise InvalidArgument(
        "model", kind, f"one of {', '.join(_MODELS)}", f"is the method {method!r} installed?"
    )


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
