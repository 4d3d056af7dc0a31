"""Public description of another system's training, and the manifest made from it."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedleak_recorder import __version__
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.format import Manifest
from fedleak_recorder.manifest_fields import check_fields, is_names
from fedleak_recorder.plain_values import strange_value
from fedleak_recorder.shape_check import Shapes

Holds = Literal["models", "deltas"]
DType = Literal["float16", "bfloat16", "float32", "float64"]
_PACKAGES = ("numpy", "safetensors")


@dataclass(frozen=True, kw_only=True)
class System:
    """Public facts about the whole training: the arguments of `Recorder`, whose `system` is called `origin`."""

    parameters: Shapes
    data: Mapping[str, str]
    holds: Holds = "models"
    dtype: DType = "float32"
    learner: Mapping[str, Any] | None = None
    releases: Sequence[Mapping[str, Any]] = ()
    row_parameters: Sequence[str] = ()
    auxiliary: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def manifest_of(system: System, auxiliary: bytes | None, run: str | None = None) -> Manifest:
    """Manifest of a recording of a system.

    Raises:
        InputError: it names a parameter that it does not have, or has values that a manifest cannot hold.
    """
    from importlib.metadata import version  # slow to import, and needed once

    name = system.data.get("name")
    is_named = isinstance(name, str) and name and system.data.keys() <= {"name", "sha256"}
    description = ", ".join(f"{key}: {value!r}"[:60] for key, value in system.data.items()) or "none"
    require(is_named, "data as a name, or as name and sha256", description, "Name the data set.")
    require(is_names(system.row_parameters), "row_parameters as names", system.row_parameters, "Correct them.")
    releases = [_release(release, list(system.parameters)) for release in system.releases]
    names = list(system.row_parameters)
    for release in releases:
        names += release["parameters"]
    unknown = next((name for name in names if name not in system.parameters), None)
    expected = f"parameters among {', '.join(system.parameters)}"
    require(unknown is None, expected, unknown, "Correct that name.")
    parameters = {}
    for name, shape in system.parameters.items():
        parameters[name] = {"shape": list(shape), "dtype": system.dtype}
    versions = {"fedleak-recorder": __version__}
    for package in _PACKAGES:
        versions[package] = version(package)
    versions |= system.versions
    learner = None
    if system.learner is not None:
        learner = dict(system.learner)
    auxiliary_hash = None
    if auxiliary is not None:
        auxiliary_hash = hashlib.sha256(auxiliary).hexdigest()
    manifest = Manifest(
        parameters=parameters,
        row_parameters=list(system.row_parameters),
        learner=learner,
        releases=releases,
        seed=None,
        data={"name": system.data["name"], "sha256": system.data.get("sha256", "")},
        config=dict(system.origin),
        versions=versions,
        commit=None,
        auxiliary=auxiliary_hash,
        run=run,
    )
    # Checked as it will be read, so that nothing is written that a reader refuses.
    problem = strange_value(dataclasses.asdict(manifest))
    expected = "a description of the system as texts, numbers, lists and mappings with texts as keys"
    require(problem is None, expected, problem, "Write that value as a text.")
    check_fields(dataclasses.asdict(manifest), where="the description of the system")
    return manifest


def _release(release: Mapping[str, Any], everything: list[str]) -> dict[str, Any]:
    """A release with all of its required fields; it applies to all parameters if it names none."""
    try:
        clip = release.get("clip")
        if clip is not None:
            clip = float(clip)
        noise_scale = float(release.get("noise_scale", 0.0))
        names = list(release.get("parameters") or everything)
        if not is_names(names):
            raise ValueError("parameters that are no names")
        fields: dict[str, Any] = {"clip": clip, "noise_scale": noise_scale, "parameters": names}
        # What is not said has the format's default.
        for name in ("own_devices", "epsilon", "delta", "neighbours", "bits", "participants"):
            if name in release:
                fields[name] = release[name]
        return fields
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            expected="releases with clip, noise_scale and parameters", found=str(error), way_out="Correct that release."
        ) from None
