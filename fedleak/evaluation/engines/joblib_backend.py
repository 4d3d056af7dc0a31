"""Workers of a system that joblib has a backend for, such as Dask or Ray, where that system runs already."""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config
from joblib.parallel import BACKENDS, EXTERNAL_BACKENDS

from fedleak.core.errors import InputError, require
from fedleak.core.private_files import private_files
from fedleak.evaluation.engines.engine import Engine, Part, Result

_REGISTERED_BY = {"ray": ("ray.util.joblib", "register_ray")}
"""Module and function with which a system registers its backend; joblib knows Dask by itself."""


def has_backend(name: str) -> bool:
    """Whether joblib has a backend of a name, or the system of that name is installed and registers one."""
    if name in _REGISTERED_BY and name not in BACKENDS:
        module, function = _REGISTERED_BY[name]
        try:
            register = getattr(importlib.import_module(module), function)
        except ImportError:
            return False
        register()
    return name in BACKENDS or name in EXTERNAL_BACKENDS


@dataclass(frozen=True, kw_only=True)
class JoblibBackend(Engine):
    """Workers of a joblib backend, each with one thread; they see the same folders as this process.

    Attributes:
        backend: name under which joblib knows it.
        arguments: arguments of the backend, e.g. ``scheduler_host`` of Dask.
    """

    name = "joblib"

    backend: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """How work ran, for a report."""
        return f"joblib's backend {self.backend}, {self.jobs} at a time"

    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        """Yields what a function returns for each part of some work, in order."""
        try:
            configuration = parallel_config(self.backend, **self.arguments)
        except (ImportError, TypeError, ValueError, OSError) as error:
            raise InputError(
                expected=f"joblib's backend {self.backend} to start",
                found=str(error),
                way_out="Start its scheduler and install its package here; --engine.NAME VALUE are its arguments.",
            ) from error
        with configuration as configured:
            workers = configured["backend"]
            # Parts draw from generators of their process: two in one process would not draw what each does alone.
            require(
                not getattr(workers, "uses_threads", False),
                "--engine with workers that are processes",
                f"{self.backend}, whose workers are threads",
                "Use --engine processes.",
            )
            return_as = "generator" if workers.supports_return_generator else "list"
            parallel = Parallel(n_jobs=self.jobs, return_as=return_as)
            yield from parallel(delayed(_in_worker)(function, part, Path.cwd(), sys.path) for part in work)


def _in_worker(function: Callable[[Part], Result], part: Part, folder: Path, path: Sequence[str]) -> Result:
    os.chdir(folder)  # workers may have started elsewhere
    # Modules are found where the calling process finds them, then where the worker does.
    only_here = [directory for directory in sys.path if directory not in path]
    sys.path[:] = [*path, *only_here]
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    with private_files():
        return function(part)
