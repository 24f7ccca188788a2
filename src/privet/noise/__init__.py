"""Randomness for releases: `seeded` for experiments, `secure` for what leaves the house."""

from privet.noise import grid
from privet.noise.record import Record, recorded
from privet.noise.source import Source, secure, seeded
from privet.noise.stream import NoiseReuse

__all__ = ["NoiseReuse", "Record", "Source", "grid", "recorded", "secure", "seeded"]
