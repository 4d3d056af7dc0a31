"""``attack.py convert``: recordings from the files of another system."""

from pathlib import Path

from experiments.commands.ending import say_where, typed
from experiments.conversion import convert_dump


def convert(manifest: str, out: str) -> int:
    """Converts .npz or .safetensors files of another system to a recording, see docs/recording-format.md.

    Args:
        manifest: YAML or JSON file that describes the files.
        out: folder of the recording.
    """
    rounds = convert_dump(Path(manifest), Path(out))
    print(f"{rounds} rounds converted")
    say_where({"recording": [Path(out)]}, then=typed("audit", "--deltas", out))
    return 0
