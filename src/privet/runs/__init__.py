"""A training as a folder: saved, loaded, asked again, and verified."""

from privet.runs.guarantee_record import Provenance
from privet.runs.run_folder import require_empty_run, save, write_run
from privet.runs.saved_run import Run, load
from privet.runs.verify import Verified, verify

__all__ = [
    "Provenance",
    "Run",
    "Verified",
    "load",
    "require_empty_run",
    "save",
    "verify",
    "write_run",
]
