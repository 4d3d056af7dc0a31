"""The checkpoint that a training goes on from: whole, and of this model, or refused before anything is restored."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning import LightningModule
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH
from torch import Tensor

from modules.error_reports import in_one_line
from modules.federated import FederatedModule
from protocol.errors import InputError

_TRAINING = ("optimizer_states", "loops")
_WAY_OUT = "Give --ckpt_path a checkpoint of this training, or leave it out to begin anew."
NAMES = ("last", "best", "hpc", "registry")
"""What ``--ckpt_path`` may be instead of a path; Lightning finds the file."""


class CheckedCheckpointIO(TorchCheckpointIO):
    """Reads what Lightning asks for, whichever way it was found, without running any code that the file holds.

    Every part of the file is compared with the checksum that stands in it, every parameter with the model's.

    Args:
        module: what is to be restored.
        resume: whether a training is to go on, for which its optimizer and its counters are needed.
    """

    def __init__(self, module: LightningModule, *, resume: bool) -> None:
        super().__init__()
        self.module = module
        self.resume = resume

    def load_checkpoint(
        self, path: _PATH, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The content, on the CPU.

        Raises:
            InputError: the file is missing, damaged, or of another model.
        """
        check_present(path)
        content = self._read(Path(path))
        private = ("private",) if isinstance(self.module, FederatedModule) else ()
        needed = ("state_dict", "global_step", *private, *(_TRAINING if self.resume else ()))
        missing = [key for key in needed if not isinstance(content, dict) or key not in content]
        if missing:
            raise InputError(
                expected=f"a checkpoint of a training of {type(self.module).__name__} in {path}",
                found=f"a file without {', '.join(missing)}",
                way_out=_WAY_OUT,
            )
        check_fits(content, self.module)
        return dict(content)

    def _read(self, path: Path) -> Any:
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise zipfile.BadZipFile(f"damage in {damaged}")
            return super().load_checkpoint(path, weights_only=True)
        except Exception as error:
            # A file that torch cannot read gives zip, index and key errors: it has no error of its own for that.
            other = type(error).__name__ == "UnpicklingError"
            found = "objects other than tensors, whose code is not run" if other else in_one_line(str(error))
            raise InputError(expected=f"a whole checkpoint in {path}", found=found, way_out=_WAY_OUT) from error


def check_present(path: _PATH) -> None:
    """Refuses a path at which there is no file.

    Raises:
        InputError: there is none.
    """
    if not Path(path).is_file():
        raise InputError(expected=f"a checkpoint at {path}", found="no such file", way_out=_WAY_OUT)


def check_fits(content: Mapping[str, Any], module: LightningModule) -> None:
    """Refuses a checkpoint of another model.

    Args:
        content: of the checkpoint.
        module: what is to be restored.

    Raises:
        InputError: a parameter is missing, unknown, or of another shape.
    """
    parts = {"state_dict": dict(module.state_dict())}
    if isinstance(module, FederatedModule):
        parts["private"] = module.private
    for key, own in parts.items():
        saved, wanted = _shapes(content[key]), _shapes(own)
        for name in sorted(saved.keys() | wanted.keys()):
            if saved.get(name) != wanted.get(name):
                raise InputError(
                    expected=f"a checkpoint of this {type(module).__name__}, with {name} {_said(wanted.get(name))}",
                    found=f"{name} {_said(saved.get(name))}",
                    way_out=_WAY_OUT,
                )


def _shapes(tensors: object) -> dict[str, tuple[int, ...]]:
    named = tensors if isinstance(tensors, Mapping) else {}
    return {str(name): tuple(value.shape) for name, value in named.items() if isinstance(value, Tensor)}


def _said(shape: tuple[int, ...] | None) -> str:
    return "left out" if shape is None else f"of shape {shape}"
