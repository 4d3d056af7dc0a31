"""Lightning's reader and writer of checkpoints: checked before a training is restored, and whole for one account."""

import io
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH

from fedleak.core.errors import require
from fedleak.training.lightning.built_from_data import BuiltFromData
from fedleak.training.lightning.checkpoint_file import Parts, check_fits, read_checkpoint
from fedleak_recorder.files import write_whole

_TRAINING = ("optimizer_states", "loops")
NAMES = ("last", "best", "hpc", "registry")
"""Values of ``--ckpt_path`` for which Lightning finds the file."""


class CheckedCheckpointIO(TorchCheckpointIO):
    """Checkpoint reader that verifies checksums and parameter shapes and runs no code from the file; also the writer.

    Args:
        module: module to restore.
        resume: whether a training resumes, which needs the state of its optimizer and loops.
    """

    def __init__(self, module: LightningModule, *, resume: bool) -> None:
        super().__init__()
        self.module = module
        self.resume = resume

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any = None) -> None:
        """Writes a checkpoint in one step, for its owner only: it holds the secret key of the pseudonyms.

        Storage other than a disk (``s3://``) is Lightning's.
        """
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        write_whole(Path(path), buffer.getvalue())

    def load_checkpoint(
        self, path: _PATH, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Content of the checkpoint, on the CPU.

        Raises:
            InputError: the file is missing, damaged, or belongs to another model.
        """
        content = read_checkpoint(path, str(path))
        kind = type(self.module)
        module = self.module
        parts: Parts = {"state_dict": dict(module.state_dict())}
        if isinstance(module, BuiltFromData):
            parts = module.saved_tensors()
        needed = [*parts, "global_step"]
        if self.resume:
            needed += _TRAINING
        missing = [key for key in needed if key not in content]
        require(
            not missing,
            f"a checkpoint of a training of {kind.__name__} in {path}",
            f"a file without {', '.join(missing)}",
            "Set --ckpt_path to a checkpoint of this training, or leave it out to start a new one.",
        )
        check_fits(content, parts, kind)
        return content
