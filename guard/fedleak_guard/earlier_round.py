"""What the site keeps of a job's last round, for checks that compare the next received model with it."""

import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedleak_guard.message import Message
from fedleak_guard.policy import Policy
from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import InputError
from fedleak_recorder.files import make_folder, open_private, remove_left

_NORM, _MODEL = "norm", "model:"


@dataclass(frozen=True, kw_only=True)
class EarlierRound:
    """A round whose message left.

    Attributes:
        model: the model that the site received in it.
        norm: L2 norm of the update that it sent.
    """

    model: Mapping[str, Array]
    norm: float


def earlier_round(policy: Policy, job: str) -> EarlierRound | None:
    """The last round of a job; None before its first message left.

    Raises:
        InputError: the file is damaged.
    """
    path = _path(policy, job)
    try:
        # Nothing that is loaded may run code: a pickle could.
        with np.load(path, allow_pickle=False) as file:
            model = {name.removeprefix(_MODEL): file[name] for name in file.files if name != _NORM}
            return EarlierRound(model=model, norm=float(file[_NORM]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        way_out = "Remove it: the next round is then checked as a first one."
        raise InputError(
            expected="the model of the round before", found=f"{error} in {path}", way_out=way_out
        ) from None


def keep_round(message: Message, policy: Policy) -> None:
    """Keeps what `earlier_round` reads, in the place of the round before."""
    path = _path(policy, message.job)
    make_folder(path.parent)
    remove_left(path)
    # Written beside the file and moved over it: a reader finds the round before or this one, whole.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    model = {f"{_MODEL}{name}": value for name, value in message.model.items()}
    try:
        with open(temporary, "wb", opener=open_private) as file:
            np.savez(file, **{_NORM: np.array(message.norm)}, **model)  # type: ignore[arg-type]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _path(policy: Policy, job: str) -> Path:
    """File of a job; its name is a hash, as a server may name a job by any text."""
    name = hashlib.sha256(job.encode()).hexdigest()[:32]
    return Path(policy.evidence) / "earlier" / f"{name}.npz"
