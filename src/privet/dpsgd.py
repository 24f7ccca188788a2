"""`privet.dpsgd`: private training in your own loop."""

from privet.methods import dpsgd
from privet.methods.dpsgd import *  # noqa: F403

__all__ = dpsgd.__all__
