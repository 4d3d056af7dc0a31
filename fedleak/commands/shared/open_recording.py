"""A recording with the learner that the auditor names by ``--learner``: a class, or a module to import."""

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core import named
from fedleak.core.additions import room
from fedleak.core.class_paths import classes_in, find_in_current_folder
from fedleak.core.described import described, plain
from fedleak.core.errors import InputError, require
from fedleak.recordings.control import Control, ControlRecording
from fedleak.recordings.named_algorithm import WAY_OUT as RECORDED_ANEW
from fedleak.recordings.recorded_learner import OUT_OF_MANIFEST, recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.training.federated import FederatedModule
from fedleak.training.lightning.error_reports import in_one_line
from fedleak_recorder.nearest import did_you_mean

ON_FROZEN = (PretrainedAlgorithm.name, FrozenBackboneAlgorithm.name)
"""Clients that train on a frozen network, which no recording holds."""


def open_recording(
    folder: str | Path,
    learner: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    control: Control | None = None,
    *,
    running: bool = False,
) -> Recording:
    """Opens a recording, whose learner the auditor may name in place of the one in its manifest; or a control of it.

    Of clients that fine-tune a frozen network, or train a head on one, the argument ``path`` alone gives the folder
    or file of that network. The name
    is that of a learner of this project, e.g. ``Pretrained``, the path of another subclass of `FederatedModule`, which
    take the arguments, or the path of a module that defines the learner of the manifest. Paths are imported. With
    `running`, a recording that its training still writes needs no warning.

    Raises:
        InputError: there is no such class or module, it does not accept the arguments, or its network differs from
            the recorded one.
    """
    kind = None if learner is None else _imported(learner)
    recording = Recording(folder, running=running) if control is None else ControlRecording(folder, control)
    # 1. Without --learner, the manifest's learner counts; of a frozen network, the auditor may say where it is.
    fine_tunes = (recording.manifest.learner or {}).get("name") in ON_FROZEN
    if learner is None and fine_tunes and arguments:
        unknown = ", ".join(name for name in arguments if name != "path")
        require(not unknown, "--learner.path with the folder of the base network", f"--learner.{unknown}", "Omit it.")
        recording.base = Path(str(arguments["path"]))
        return recording
    # 2. A module was imported for the learner that it defines; arguments are those of a class.
    takes_arguments = isinstance(kind, type) or not arguments
    require(takes_arguments, "--learner PACKAGE.CLASS before --learner.NAME VALUE", learner, "Name the class.")
    if learner is None or not isinstance(kind, type):
        return recording
    # 3. A class takes the place of the manifest's learner, and must have the recorded network.
    if kind in _project_learners().values():
        _describe(recording, _built(kind, learner, arguments or {}))
    else:
        plain_arguments = _plain_arguments(kind, learner, arguments) if arguments else {}
        named_learner = {"name": learner, "arguments": plain_arguments}
        recording.manifest = dataclasses.replace(recording.manifest, learner=named_learner)
    try:
        algorithm = recorded_learner(recording)
    except InputError as error:
        cause = error.__context__
        # An error of the learner's own code says more than that the learner cannot be built.
        problem = error.found
        if cause is not None and not isinstance(cause, InputError | KeyError):
            problem = in_one_line(str(cause))
        # What to do in the manifest is of no use where the learner is of the command line.
        about_manifest = error.way_out in (OUT_OF_MANIFEST, RECORDED_ANEW)
        raise _misfit(learner, error.expected, problem, "" if about_manifest else error.way_out) from None
    except Exception as error:
        raise _misfit(learner, f"a learner {learner} that can be built", f"{type(error).__name__}: {error}") from error
    if algorithm is None:
        raise _misfit(learner, "a learner whose clients can be simulated, because it gives its `algorithm`", learner)
    return recording


def _project_learners() -> dict[str, type[FederatedModule]]:
    """Learners of this project by the names of their classes."""
    return {kind.__name__: kind for kind in classes_in(room("modules.learners"), FederatedModule)}


def _describe(recording: Recording, built: FederatedModule) -> None:
    """Puts a learner of this project into the manifest, in place of what another system did not write."""
    description = plain(built.learner_description())
    if isinstance(built.algorithm, PretrainedAlgorithm):
        require(
            built.algorithm.adapter.variant != "ffa",
            "an adapter whose frozen matrices lora_A are in the recording",
            "--learner.adapter.variant ffa, which takes them from a seed",
            "Record lora_A of the clients too, and give --learner.adapter.variant lora.",
        )
        recording.base = built.algorithm.folder
        description["arguments"]["base"] = ""  # the recording does not say which one it is
    elif isinstance(built.algorithm, FrozenBackboneAlgorithm):
        recording.base = built.algorithm.folder
        description["arguments"]["base"] = ""
    recording.manifest = dataclasses.replace(recording.manifest, learner=description)


def _imported(path: str) -> type[FederatedModule] | ModuleType:
    """The learner of a name, or the class or module at a path, which is imported."""
    learners_by_name = _project_learners()
    if path in learners_by_name:
        return learners_by_name[path]
    module, _, name = path.rpartition(".")
    expected = "--learner: the path of a subclass of NetworkLearner or FederatedModule, or an importable module"
    way_out = (
        "Check the spelling, and that it lies in this folder or in one of PYTHONPATH; see docs/audit/own-network.md."
    )
    find_in_current_folder()
    try:
        # A name in a module, or else a module.
        imported = None
        if module:
            imported = getattr(importlib.import_module(module), name, None)
        if imported is None:
            imported = importlib.import_module(path)
    except ImportError as error:
        way_out = did_you_mean(path, learners_by_name, way_out)
        raise InputError(expected=expected, found=f"{path}: {error}", way_out=way_out) from None
    if isinstance(imported, type):
        is_learner = issubclass(imported, FederatedModule)
    else:
        is_learner = isinstance(imported, ModuleType)
    require(is_learner, expected, f"{path}, which is {imported!r}", way_out)
    learner: type[FederatedModule] | ModuleType = imported
    return learner


def _plain_arguments(kind: type[FederatedModule], learner: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The auditor's arguments as plain values, as a recording has them."""
    description = described(kind, _built(kind, learner, arguments).hparams)
    return {name: value for name, value in description.items() if name in arguments}


def _built(kind: type[FederatedModule], learner: str, arguments: Mapping[str, Any]) -> FederatedModule:
    """A learner with the auditor's arguments."""
    return named.build(kind, arguments, where=f"--learner {learner}", option="--learner.")


def _misfit(learner: str, expected: str, problem: str, way_out: str = "") -> InputError:
    """The error about a learner of the command line, with the way out that it has itself."""
    general = f"Correct {learner} or its arguments (--learner.NAME VALUE), or omit --learner."
    return InputError(expected=expected, found=problem, way_out=f"{way_out} {general}".strip())
