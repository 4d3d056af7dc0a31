"""A recording with the learner that the auditor names by ``--learner``: a class, or a module to import."""

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from client.pretrained import PretrainedAlgorithm
from experiments.commands.train_parser import one_line
from experiments.overrides import near
from modules.federated import FederatedModule
from modules.lightning.hyper_parameters import argument_names, class_path, described
from protocol.errors import InputError, require
from recordings.control import Control, ControlRecording
from recordings.recorded_learner import recorded_learner
from recordings.recording import Recording


def open_recording(
    folder: str | Path,
    learner: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    control: Control | None = None,
) -> Recording:
    """Opens a recording, whose learner the auditor may name in place of the one in its manifest; or a control of it.

    Of clients that fine-tune a frozen network, the argument ``path`` alone gives the folder of that network. The name
    is the path of a subclass of `FederatedModule`, which takes the arguments, or of a module that defines the learner
    of the manifest; it is imported.

    Raises:
        InputError: there is no such class or module, it does not accept the arguments, or its network differs from
            the recorded one.
    """
    found = None if learner is None else _imported(learner)
    recording = Recording(folder) if control is None else ControlRecording(folder, control)
    fine_tunes = (recording.manifest.learner or {}).get("name") == PretrainedAlgorithm.name
    if learner is None and fine_tunes and arguments:
        unknown = ", ".join(name for name in arguments if name != "path")
        require(not unknown, "--learner.path with the folder of the base network", f"--learner.{unknown}", "Omit it.")
        recording.base = Path(str(arguments["path"]))
        return recording
    takes = isinstance(found, type) or not arguments
    require(takes, "--learner PACKAGE.CLASS before --learner.NAME VALUE", learner, "Name the class.")
    if learner is None or not isinstance(found, type):
        return recording
    known = list(argument_names(found))
    for name in arguments or {}:
        way_out = near(name, known) or f"Known: {', '.join(known)}."
        require(name in known, f"--learner.NAME with the name of an argument of {learner}", repr(name), way_out)
    named = {"name": learner, "arguments": _plain_arguments(found, arguments) if arguments else {}}
    recording.manifest = dataclasses.replace(recording.manifest, learner=named)
    try:
        algorithm = recorded_learner(recording)
    except InputError as error:
        raise _misfit(learner, error.expected, one_line(error.__context__ or error)) from None
    except Exception as error:
        raise _misfit(learner, f"a learner {learner} that can be built", f"{type(error).__name__}: {error}") from error
    if algorithm is None:
        raise _misfit(learner, "a learner that gives its `algorithm`", learner)
    return recording


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    expected = "--learner: the path of a subclass of NetworkLearner or FederatedModule, or an importable module"
    way_out = "Check the spelling, and that its folder is in PYTHONPATH; docs/own-network.md has an example."
    try:
        found = getattr(importlib.import_module(module), name, None) if module else None
        found = importlib.import_module(path) if found is None else found
    except ImportError as error:
        raise InputError(expected=expected, found=f"{path}: {error}", way_out=way_out) from None
    right = issubclass(found, FederatedModule) if isinstance(found, type) else isinstance(found, ModuleType)
    require(right, expected, f"{path}, which is {found!r}", way_out)
    return found


def _plain_arguments(kind: type[FederatedModule], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The auditor's arguments as plain values, as a recording has them; only these are parsed."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(FederatedModule, "learner")
    named = {"class_path": class_path(kind), "init_args": dict(arguments)}
    try:
        built = parser.instantiate(parser.parse_object({"learner": named})).learner
    except (ArgumentError, TypeError, ValueError, AttributeError) as error:
        raise _misfit(class_path(kind), f"arguments that {kind.__name__} takes", one_line(error)) from None
    return {name: value for name, value in described(kind, built.hparams).items() if name in arguments}


def _misfit(learner: str, expected: str, found: str) -> InputError:
    way_out = f"Correct {learner} or its arguments (--learner.NAME VALUE), or omit --learner."
    return InputError(expected=expected, found=found, way_out=way_out)
