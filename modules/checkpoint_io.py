"""Checks of a checkpoint before it is restored: it must be complete and belong to this model."""

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
from protocol.errors import InputError, require

_TRAINING = ("optimizer_states", "loops")
_WAY_OUT = "Set --ckpt_path to a checkpoint of this training, or leave it out to start a new one."
NAMES = ("last", "best", "hpc", "registry")
"""Values of ``--ckpt_path`` for which Lightning finds the file."""


class CheckedCheckpointIO(TorchCheckpointIO):
    """Checkpoint reader that verifies checksums and parameter shapes and runs no code from the file.

    Args:
        module: module to restore.
        resume: whether a training resumes, which needs the state of its optimizer and loops.
    """

    def __init__(self, module: LightningModule, *, resume: bool) -> None:
        super().__init__()
        self.module = module
        self.resume = resume

    def load_checkpoint(
        self, path: _PATH, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Content of the checkpoint, on the CPU.

        Raises:
            InputError: the file is missing, damaged, or belongs to another model.
        """
        check_present(path)
        content = self._read(Path(path))
        private = ("private",) if isinstance(self.module, FederatedModule) else ()
        needed = ("state_dict", "global_step", *private, *(_TRAINING if self.resume else ()))
        missing = [key for key in needed if not isinstance(content, dict) or key not in content]
        require(
            not missing,
            f"a checkpoint of a training of {type(self.module).__name__} in {path}",
            f"a file without {', '.join(missing)}",
            _WAY_OUT,
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
            # torch has no error type of its own for an unreadable file: it raises zip, index and key errors.
            other = type(error).__name__ == "UnpicklingError"
            found = "objects other than tensors, which are not loaded" if other else in_one_line(str(error))
            raise InputError(expected=f"a whole checkpoint in {path}", found=found, way_out=_WAY_OUT) from error


def check_present(path: _PATH) -> None:
    """Checks that a checkpoint exists.

    Raises:
        InputError: there is no such file.
    """
    require(Path(path).is_file(), f"a checkpoint at {path}", "no such file", _WAY_OUT)


def check_fits(content: Mapping[str, Any], module: LightningModule) -> None:
    """Checks that a checkpoint has the parameters of a module.

    Args:
        content: content of the checkpoint.
        module: module to restore.

    Raises:
        InputError: a parameter is missing, unknown, or has another shape.
    """
    parts = {"state_dict": dict(module.state_dict())}
    if isinstance(module, FederatedModule):
        parts["private"] = module.private
    for key, own in parts.items():
        saved, wanted = _shapes(content[key]), _shapes(own)
        for name in sorted(saved.keys() | wanted.keys()):
            require(
                saved.get(name) == wanted.get(name),
                f"a checkpoint of this {type(module).__name__}, with {name} {_said(wanted.get(name))}",
                f"{name} {_said(saved.get(name))}",
                _WAY_OUT,
            )


def _shapes(tensors: object) -> dict[str, tuple[int, ...]]:
    named = tensors if isinstance(tensors, Mapping) else {}
    return {str(name): tuple(value.shape) for name, value in named.items() if isinstance(value, Tensor)}


def _said(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else f"of shape {shape}"
