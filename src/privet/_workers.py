"""Where independent jobs run: joblib's backend by name, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from privet import _check
from privet.errors import InvalidArgument


@contextmanager
def workers(backend: str, count: int) -> Iterator[None]:
    """Everything that joblib runs inside goes to `count` workers of this backend.

    Ray and Dask get a cluster on this machine, which ends with the context, unless one is running.
    """
    from joblib import parallel_config

    count = _check.count("workers", count)
    with ExitStack() as stack:
        if backend == "ray":
            _ray(count, stack)
        if backend == "dask":
            _dask(count, stack)
        try:
            stack.enter_context(parallel_config(backend=backend, n_jobs=count))
        except ValueError as e:
            raise InvalidArgument(
                "backend", backend, "loky, threading, ray or dask, and ready to be used", str(e)
            ) from None
        yield


def _ray(count: int, stack: ExitStack) -> None:
    import ray
    from ray.util import joblib as ray_joblib

    register: Any = ray_joblib.register_ray
    register()
    if not ray.is_initialized():
        ray.init(num_cpus=count, include_dashboard=False, log_to_driver=False)
        stack.callback(ray.shutdown)


def _dask(count: int, stack: ExitStack) -> None:
    import distributed

    here: Any = distributed  # not typed
    try:
        here.get_client()
    except ValueError:
        local = here.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
        stack.enter_context(here.Client(stack.enter_context(local)))
