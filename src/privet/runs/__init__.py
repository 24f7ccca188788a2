"""A training as a folder: saved, loaded, asked again, and verified."""

from privet.runs.folder import has_no_run, save, write_run
from privet.runs.record import Given
from privet.runs.run import Run, load
from privet.runs.verify import Verified, verify

__all__ = ["Given", "Run", "Verified", "has_no_run", "load", "save", "verify", "write_run"]
