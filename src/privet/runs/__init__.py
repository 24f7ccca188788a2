"""A training as a folder: saved, loaded, and asked again."""

from privet.runs.folder import has_no_run, save, write_run
from privet.runs.run import Run, load

__all__ = ["Run", "has_no_run", "load", "save", "write_run"]
