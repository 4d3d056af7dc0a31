"""Engines: where the parts of an audit or of a table run, one file each, named after the engine."""

import importlib
from pathlib import Path

from fedleak.core.class_paths import class_at
from fedleak.core.errors import InputError
from fedleak.evaluation.engines.engine import Engine, EngineOptions
from fedleak_recorder.nearest import did_you_mean

_NO_ENGINES = ("__init__", "engine", "joblib_backend", "submission", "submitted_job")
NAMES = tuple(path.stem for path in sorted(Path(__file__).parent.glob("*.py")) if path.stem not in _NO_ENGINES)
"""Name of every engine of this package."""

__all__ = ["NAMES", "Engine", "EngineOptions", "engine_of"]


def engine_of(name: str, options: EngineOptions) -> Engine:
    """The engine of a name with its options.

    Args:
        name: one of `NAMES`, the class path of an `Engine`, or a backend that joblib has registered.
        options: what the command knows.

    Raises:
        InputError: there is no such engine, or it has no such options.
    """
    # Engines are imported where they are asked for: each loads what others do not need.
    if name in NAMES:
        for member in vars(importlib.import_module(f"{__name__}.{name}")).values():
            if isinstance(member, type) and issubclass(member, Engine) and vars(member).get("name") == name:
                return member.of(options)
    if "." in name:
        return class_at(name, Engine).of(options)
    from fedleak.evaluation.engines.joblib_backend import JoblibBackend, has_backend

    if has_backend(name):
        return JoblibBackend(
            jobs=options.jobs_on_one_machine, folder=options.folder, backend=name, arguments=options.arguments
        )
    raise InputError(
        expected=f"--engine among {', '.join(NAMES)}, the path of a class, or a backend that joblib has registered",
        found=repr(name),
        way_out=did_you_mean(
            name,
            NAMES,
            "Where Dask or Ray run, install their package: joblib then knows dask and ray; other systems register"
            " theirs by joblib.register_parallel_backend, in the module of an engine that is named by its class path.",
        ),
    )
