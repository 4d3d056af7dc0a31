"""``attack.py convert``: recordings from the files of another system, or without ground truth."""

from pathlib import Path

from experiments.commands.ending import say_where, typed
from experiments.conversion import convert_dump, copy_without_truth
from protocol.errors import require


def convert(out: str, manifest: str | None = None, deltas: str | None = None) -> int:
    """Converts .npz or .safetensors files of another system to a recording, see docs/recording-format.md.

    Args:
        out: folder of the recording.
        manifest: YAML or JSON file that describes the files.
        deltas: instead of a manifest, folder of a recording to copy without its ground truth, to pass it on.
    """
    found = "both" if manifest and deltas else "neither"
    require((manifest is None) != (deltas is None), "--manifest or --deltas", found, "Give one of them.")
    if deltas is not None:
        rounds = copy_without_truth(Path(deltas), Path(out))
        print(f"{rounds} rounds copied without ground truth")
        why = "describes the updates; without ground truth it scores nothing"
        say_where({"recording": [Path(out)]}, then=typed("audit", "--deltas", out, why=why))
        return 0
    rounds = convert_dump(Path(str(manifest)), Path(out))
    print(f"{rounds} rounds converted")
    say_where({"recording": [Path(out)]}, then=typed("audit", "--deltas", out))
    return 0
