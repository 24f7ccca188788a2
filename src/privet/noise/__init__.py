"""Randomness for releases: `seeded` for experiments, `secure` for what leaves the house."""

from privet.noise import grid
from privet.noise.noise_reuse import DrawLog, NoiseReuse, log_draws
from privet.noise.source import Source, secure, seeded

__all__ = ["DrawLog", "NoiseReuse", "Source", "grid", "log_draws", "secure", "seeded"]
