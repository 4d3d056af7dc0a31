"""Estimates of an audit that has not ended, kept in files, so that the next start reads them back."""

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.errors import require
from fedleak.core.estimates import Estimate, EstimateError
from fedleak.core.history import History
from fedleak.core.io.files import sha256_of_arrays
from fedleak.core.provenance import hashed, outside_sources, source_hash, versions
from fedleak.core.signals import Stopped
from fedleak.core.view import View
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.recordings.control import ControlRecording
from fedleak_recorder.files import make_folder, open_private

UNFINISHED = "unfinished"
"""Folder of the estimates below that of the results, while there are none."""
_STAMP = "stamp.json"
"""File of what the estimates of a folder depend on."""
_SUFFIX = ".estimate"
"""End of the name of a file of an estimate."""
_ROOT = "estimate"
"""Entry of a file's metadata that describes its estimate."""
_OF_PARTS = "of_parts"
"""Key of the stamp: whether the estimates are those of parts of an audit."""
_STAMP_LENGTH = 16
"""Characters of the hash of what an audit depends on, before the name of each file."""
_CHECKSUM = 64
"""Length of the SHA-256 before the content of a file."""


class EstimateStore:
    """Store of the estimates of a plan's attacks in files, without pickle and without ground truth.

    An estimate is found by its attack with all arguments, its name in the results, its round and its victims, and by
    recording, learner, seed, code and packages of the audit: its file is named by a hash of all of them, so that the
    estimates of two audits cannot mix. A folder with those of another audit is emptied, unless parts have made them,
    which is hours of several machines, or this is a part: then it is refused. A file is complete or absent when the
    process is killed, and one that is damaged is not used. An estimate with fields other than tensors, plain values and
    data classes of these is not kept.

    Args:
        folder: folder of the files, which the parts of an audit share.
        plan: plan of the audit.
        part: whether this is one of several parts.

    Raises:
        InputError: the folder has estimates of another audit, and they or this one are of a part.

    Attributes:
        stale: what changed since the folder's estimates were made, so that they were removed; empty for nothing.
        found: number of estimates read back.
        made: number of those that other processes of this audit had written.
    """

    def __init__(self, folder: Path, plan: AuditPlan, *, part: bool = False) -> None:
        self.folder = folder
        stamp = _stamp_of(plan)
        self._name = hashed(stamp)[:_STAMP_LENGTH]
        self.found = self.made = 0
        before = self._stamp_before()
        self.stale = self._changed(before, stamp)
        of_parts = part or (before or {}).get(_OF_PARTS) is True
        if self.stale:
            require(
                not of_parts,
                f"no estimates in {folder}, or those of the same audit",
                f"{self._count('*')} estimates of an audit with another {', '.join(self.stale)}",
                f"Go on with what these parts have, give another --out, or delete {folder}, and its estimates with it.",
            )
            self.remove(everything=True)
        # A folder without a stamp gets one, and that of one process becomes that of parts.
        if before is None or self.stale or (part and before.get(_OF_PARTS) is not True):
            make_folder(folder)
            _write(
                folder / _STAMP,
                json.dumps({**stamp, _OF_PARTS: of_parts}).encode(),
                replace=bool(before) and not self.stale,
            )
            # Another part may have been faster.
            changed = self._changed(self._stamp_before(), stamp)
            require(
                not changed,
                f"one audit in {folder}",
                f"another {', '.join(changed)} of one that has begun",
                "Give another --out.",
            )

    def __len__(self) -> int:
        """Number of this audit's estimates in the folder."""
        return self._count(f"{self._name}-*")

    def _count(self, pattern: str) -> int:
        return sum(1 for _ in self.folder.glob(f"{pattern}{_SUFFIX}"))

    def has(self, attack: Attack, view: View) -> bool:
        """Whether there is a file of an attack's estimate on a view."""
        return self._path(attack, attack.label(view), view).is_file()

    def read(self, attack: Attack, label: str, view: View) -> tuple[Estimate, float] | None:
        """Estimate and the seconds that it took, if it was written before and fits the view; else None."""
        # Whatever is wrong with a file, its estimate is computed again.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, SafetensorError, EstimateError):
            content = self._path(attack, label, view).read_bytes()
            checksum, stored = content[:_CHECKSUM], content[_CHECKSUM:]
            if hashlib.sha256(stored).hexdigest().encode() != checksum:
                return None
            described = json.loads(_metadata(stored)[_ROOT])
            kinds = {_name(kind): kind for kind in _kinds(attack.estimates)}
            estimate = _decoded(described["value"], kinds[described["kind"]], load(stored))
            estimate.check(view)
            self.found += 1
            return estimate, float(described["seconds"])
        return None

    def write(self, attack: Attack, label: str, view: View, estimate: Estimate, seconds: float) -> None:
        """Keeps an estimate, unless it cannot be stored or the disk is full, which takes nothing from the results."""
        """Keeps an estimate; one that cannot be stored, or a full disk, costs only the time to compute it again."""
        tensors: dict[str, Tensor] = {}
        with contextlib.suppress(OSError, TypeError, ValueError, RuntimeError):  # of torch: a sparse tensor
            described = {"kind": _name(type(estimate)), "value": _encoded(estimate, tensors), "seconds": seconds}
            if type(estimate) not in _kinds(attack.estimates):
                return
            content = save(tensors, metadata={_ROOT: json.dumps(described)})
            checksum = hashlib.sha256(content).hexdigest().encode()
            _write(self._path(attack, label, view), checksum + content)

    def remove(self, *, everything: bool = False) -> None:
        """Removes this audit's files, or all estimates, and the folder if nothing else is in it."""
        name = "*" if everything else f"{self._name}-*"
        for pattern in (f"{name}{_SUFFIX}", f".{name}{_SUFFIX}.*.tmp", _STAMP):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _stamp_before(self) -> dict[str, Any] | None:
        """What the folder says of its estimates; None if it has no such file, and nothing if that is damaged."""
        try:
            content = json.loads((self.folder / _STAMP).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {}
        if isinstance(content, dict):
            return content
        return {}

    def _changed(self, before: Mapping[str, Any] | None, stamp: Mapping[str, str]) -> list[str]:
        """What differs between two audits; their stamp where it is not known."""
        if before is None:
            # Estimates without a stamp, and of another name, are of an audit of which nothing is known.
            has_others = self._count("*") > len(self)
            if has_others:
                return [_STAMP]
            return []
        if not stamp.keys() <= before.keys():
            return [_STAMP]
        return [name for name, value in stamp.items() if before[name] != value]

    def _path(self, attack: Attack, label: str, view: View) -> Path:
        kind = type(attack)
        key = [f"{kind.__module__}.{kind.__qualname__}", repr(attack), label, view.round, *_senders(view)]
        return self.folder / f"{self._name}-{hashed(key)[:32]}{_SUFFIX}"


@contextlib.contextmanager
def kept_until_end(folder: Path, plan: AuditPlan) -> Iterator[EstimateStore]:
    """Keeps the estimates of the block in a folder, and removes them at its end; after an error or a signal they stay.

    The arguments are those of `EstimateStore`. What is not used, what is read back and, after a signal, what is kept is
    said in one line each.
    """
    store = EstimateStore(folder, plan)
    if store.stale:
        print(f"estimates in {folder} are not used: changed since then: {', '.join(store.stale)}", file=sys.stderr)
    try:
        yield store
    except BaseException as error:
        if not len(store):
            store.remove()
        elif isinstance(error, Stopped):
            error.kept = f"{len(store)} estimates of its attacks are kept in {folder}, for the same command"
        raise
    earlier = store.found - store.made
    if earlier > 0:
        print(f"{earlier} estimates were read back from an audit that had not ended", file=sys.stderr)
    store.remove()


def _stamp_of(plan: AuditPlan) -> dict[str, str]:
    """Hashes of all that the estimates of an audit depend on, beside the attack, the round and the victims."""
    recording = plan.recording
    learner_name = str((recording.manifest.learner or {}).get("name", ""))
    # Code outside of this project counts: of the attacks, and of a learner that is named by its class path.
    of_attacks = {type(attack).__module__ for attack in plan.attacks}
    of_learner = {learner_name.rpartition(".")[0]} & sys.modules.keys()
    control = recording.control if isinstance(recording, ControlRecording) else None
    return {
        "recording": hashed([recording.sha256(), control]),
        "learner": hashed([recording.manifest.learner, _files(recording.base)]),
        "seed": hashed(plan.seed),
        "code": hashed([source_hash(), *outside_sources(sorted(of_attacks | of_learner))]),
        "packages": hashed(versions()),
    }


def _senders(view: View) -> list[str]:
    """Hashes of what distinguishes views of one round: whose messages they have, and which are compared."""
    earlier_rounds = [message.round for message in getattr(view, "earlier", ())]
    parts = [view.pseudonyms]
    if isinstance(view, History):
        parts.append(view.sent_in)
        if view.known is not None:
            parts += [view.known.pseudonyms, *view.known.priors.values()]
        if view.pairs is not None:
            parts.append(view.pairs)
    return [hashed(earlier_rounds), *(sha256_of_arrays(part.contiguous()) for part in parts)]


def _files(base: Path | None) -> list[Any]:
    """Names, sizes and times of the files of a base network."""
    if base is None:
        return []
    described = []
    for path in sorted(path for path in base.rglob("*") if path.is_file()):
        status = path.stat()
        described.append((str(path), status.st_size, status.st_mtime_ns))
    return described


def _write(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Writes a file in one step; without a flush to the disk, because a damaged file is only work to do again.

    Without `replace`, a file that is there already stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb", opener=open_private) as file:
            file.write(content)
        if replace:
            temporary.replace(path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
            except OSError:  # a file system without links
                temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _metadata(content: bytes) -> dict[str, Any]:
    """Metadata of safetensors in memory: the entry of that name in their header."""
    size = int.from_bytes(content[:8], "little")
    metadata: dict[str, Any] = json.loads(content[8 : 8 + size])["__metadata__"]
    return metadata


def _kinds(base: type[Estimate]) -> Iterator[type[Estimate]]:
    """A type of estimates and all below it that are imported."""
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _encoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Value as JSON, with its tensors apart.

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return {"fields": {name: _encoded(getattr(value, name), tensors) for name in fields}}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _encoded(member, tensors) for key, member in value.items()}}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_encoded(member, tensors) for member in value]}
    if value is None or type(value) in (bool, int, float, str):
        return {"plain": value}
    raise TypeError(type(value))


def _decoded(described: Mapping[str, Any], kind: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Value of JSON, where `kind` is the type of a data class."""
    ((form, value),) = described.items()
    if form == "tensor":
        return tensors[value]
    if form == "fields":
        types = typing.get_type_hints(kind)
        fields = {name: _decoded(member, types[name], tensors) for name, member in value.items()}
        return kind(**fields)
    if form == "mapping":
        return {name: _decoded(member, None, tensors) for name, member in value.items()}
    if form in ("tuple", "list"):
        members = [_decoded(member, None, tensors) for member in value]
        if form == "tuple":
            return tuple(members)
        return members
    return value
