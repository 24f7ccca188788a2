"""A quick start for the commands that compute: a tenth of a second less before the first number.

scipy.special names every part of numpy once, and so loads numpy's Fortran translator, which no
command needs. Called before scipy is loaded, `leave_out_fortran` lets it load on its first use.
"""

from __future__ import annotations

import importlib.util
import sys


def leave_out_fortran() -> None:
    """Load `numpy.f2py` when it is first used, not when it is first named."""
    import numpy

    if "numpy.f2py" in sys.modules:
        return
    spec = importlib.util.find_spec("numpy.f2py")
    if spec is None or spec.loader is None:  # a numpy without it has nothing to put off
        return
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["numpy.f2py"] = module
    loader.exec_module(module)
    numpy.f2py = module  # type: ignore[attr-defined,unused-ignore]
