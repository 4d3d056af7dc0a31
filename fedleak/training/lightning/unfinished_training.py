"""Files by which a training goes on that was ended before its last round."""

import shlex
from pathlib import Path

CHECKPOINT, CONFIG = "stopped.ckpt", "stopped.yaml"
"""State after one of the last rounds, and configuration of that training, in its folder until it has ended by itself
with another checkpoint.

`config.yaml` is no such file: a training that is refused because of these two has replaced it.
"""


def resume_command(folder: Path) -> str:
    """The command that resumes the training of a folder; empty if there is nothing to resume it from."""
    if not (folder / CHECKPOINT).is_file() or not (folder / CONFIG).is_file():
        return ""
    return fit_command(folder / CONFIG, folder / CHECKPOINT)


def fit_command(config: Path, checkpoint: Path) -> str:
    """The command that goes on from a checkpoint, quoted for a shell."""
    return shlex.join(["fedleak", "train", "fit", "--config", str(config), "--ckpt_path", str(checkpoint)])
