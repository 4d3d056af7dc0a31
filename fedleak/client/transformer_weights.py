"""Weights of a network of the transformers library from a folder, of which nothing but safetensors is opened."""

from pathlib import Path

from torch import Tensor

from fedleak.client.transformer_configs import library
from fedleak.core.errors import InputError, require
from fedleak_recorder.files import read_bounded, regular_file
from fedleak_recorder.plain_values import parse_json

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_OTHER = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".gguf", ".onnx")
"""Ends of the names of weights in other formats, of which most can hold code."""
_CONVERT = (
    "Convert them, if you trust the file: load the folder with transformers and call save_pretrained, which writes"
    " safetensors. For weights drawn from the seed, give the path of the config.json alone."
)


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights as safetensors.

    Raises:
        InputError: it holds weights in another format alone, which are not opened.
    """
    if any(folder.glob("*.safetensors")):
        return True
    other_formats = sorted(path.name for path in folder.iterdir() if path.suffix in _OTHER) if folder.is_dir() else []
    expected = f"the weights in {folder} as safetensors"
    require(
        not other_formats,
        expected,
        f"{', '.join(other_formats[:3])} alone, which can hold code and is not opened",
        _CONVERT,
    )
    return False


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Weights by name, of one file or of several that an index names.

    Raises:
        InputError: there are none of the names that the library gives them, a file is damaged, or the index or a link
            names something outside of the folder.
    """
    names = _names(folder)
    weights: dict[str, Tensor] = {}
    for name in names:
        path = _inside(folder, name)
        try:
            weights |= library().modeling_utils.load_state_dict(path)  # by the end of the name, as safetensors
        except Exception as error:  # safetensors has an error of its own, with no base but Exception
            raise InputError(
                expected=f"weights as safetensors in {path}", found=str(error), way_out="Save the network again."
            ) from None
    return weights


def _names(folder: Path) -> list[str]:
    """Names of the files with the weights."""
    if (folder / _WHOLE).exists():
        return [_WHOLE]
    present = ", ".join(sorted(path.name for path in folder.glob("*.safetensors"))[:3]) or "none"
    way_out = "Give the folder that save_pretrained writes; of adapters alone, give that of their base network."
    require((folder / _INDEX).exists(), f"{_WHOLE} or {_INDEX} in {folder}", present, way_out)
    where = f"{folder / _INDEX}"
    try:
        content = parse_json(read_bounded(_inside(folder, _INDEX)), where=where)
        shards = sorted(set(content["weight_map"].values()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(expected=f"a weight_map in {where}", found=str(error), way_out=way_out) from None
    for name in shards:
        plain = isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors") and "\0" not in name
        require(plain, f"names of safetensors files beside it in {where}", repr(name)[:100], way_out)
    return shards


def _inside(folder: Path, name: str) -> Path:
    """A regular file of a folder; a link may lead to the same folder, or to where the Hub's cache keeps its files."""
    path = folder / name
    regular_file(path)
    resolved = folder.resolve()
    target = path.resolve()
    allowed = [resolved]
    if resolved.parent.name == "snapshots":  # models--OWNER--NAME/snapshots/COMMIT has links to ../../blobs/HASH
        allowed.append(resolved.parent.parent / "blobs")
    inside = any(target.is_relative_to(root) for root in allowed)
    require(inside, f"{name} as a file of {folder}", f"a link to {target}", "Copy the target of the link.")
    return path
