"""What other packages add to privet, found by the entry points that they state.

A package joins by lines in its own pyproject.toml, for example

    [project.entry-points."privet.methods"]
    toy = "my_package.toy:Toy"

Nothing of a package is imported before something of it is asked for. What is in no package can be
named on the command line as FILE.py:NAME or MODULE:NAME (`import_from_path`).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from privet.errors import InvalidArgument

METHODS = "privet.methods"
"""Training methods: subclasses of `privet.methods.contract.Method`."""
DATASETS = "privet.datasets"
"""Data sets by name: functions from the data folder to a `privet.data.Dataset`."""
COMMANDS = "privet.commands"
"""Commands of `privet`: typer apps, or functions."""
PARTICIPANTS = "privet.participants"
"""Rows of `privet compare`: tuples of `privet.compare.Participant`."""
PUBLISHED_AUDITS = "privet.published_audits"
"""Audits of published algorithms, for `privet audit METHOD --reading published`: functions."""


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by their names; `.load()` imports what one of them names.

    >>> plugins("privet.no_such_group")
    {}
    """
    return {point.name: point for point in entry_points(group=group)}


def import_from_path(option: str, path: str) -> Any:
    """What FILE.py:NAME or MODULE:NAME names, imported now; `option` is blamed if nothing is there.

    >>> import_from_path("--method", "math:pi")
    3.141592653589793
    """
    where, _, name = path.rpartition(":")
    expected = "FILE.py:NAME or MODULE:NAME"
    try:
        if where.endswith(".py"):
            import cloudpickle  # joblib brings it

            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
            cloudpickle.register_pickle_by_value(module)  # workers do not know the file
        else:
            module = importlib.import_module(where)
    except (ImportError, OSError, ValueError) as e:
        raise InvalidArgument(option, path, expected, str(e)) from None
    if not hasattr(module, name):
        raise InvalidArgument(option, path, expected, f"there is no {name} in {where}")
    return getattr(module, name)
