"""Files by which a training goes on that was ended before its last round."""

import shlex
from pathlib import Path

CHECKPOINT, CONFIG = "stopped.ckpt", "stopped.yaml"
"""State after one of the last rounds, and configuration of that training, in its folder until it has ended by itself.

`config.yaml` is no such file: a training that is refused because of these two has replaced it.
"""


def resume_command(folder: Path) -> str:
    """The command that resumes the training of a folder; empty if there is nothing to resume it from."""
    if not (folder / CHECKPOINT).is_file() or not (folder / CONFIG).is_file():
        return ""
    words = ["--config", str(folder / CONFIG), "--ckpt_path", str(folder / CHECKPOINT)]
    return shlex.join(["python", "train.py", "fit", *words])
