"""Content of a checkpoint that may be a stranger's: read without code, complete, and with the tensors of a module."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.types import _MAP_LOCATION_TYPE, _PATH
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.training.lightning.error_reports import in_one_line

Parts = Mapping[str, Mapping[str, Tensor]]
"""Tensors by name, by the key of a checkpoint that holds them."""
_WAY_OUT = "Give a checkpoint of this training, or leave it out to start a new one."


def read_checkpoint(source: _PATH | IO[bytes], where: str, map_location: _MAP_LOCATION_TYPE = None) -> dict[str, Any]:
    """Content of a checkpoint whose checksums are right; no code of the file runs.

    Args:
        source: file, or an open one.
        where: name of the file, for the message.
        map_location: see `torch.load`.

    Raises:
        InputError: the file is missing, damaged, or holds something else.
    """
    if isinstance(source, str | Path):
        check_present(source)
    try:
        with zipfile.ZipFile(source) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"damage in {damaged}")
        if not isinstance(source, str | Path):
            source.seek(0)
        content = TorchCheckpointIO().load_checkpoint(source, map_location, weights_only=True)  # type: ignore[arg-type]
    except Exception as error:
        # torch has no error type of its own for an unreadable file: it raises zip, index and key errors.
        has_objects = type(error).__name__ == "UnpicklingError"
        problem = in_one_line(str(error))
        if has_objects:
            problem = "objects other than tensors, which are not loaded"
        raise InputError(expected=f"a whole checkpoint in {where}", found=problem, way_out=_WAY_OUT) from error
    if not isinstance(content, Mapping):
        return {}
    return dict(content)


def check_present(path: _PATH) -> None:
    """Checks that a checkpoint exists.

    Raises:
        InputError: there is no such file.
    """
    require(Path(path).is_file(), f"a checkpoint at {path}", "no such file", _WAY_OUT)


def check_fits(content: Mapping[str, Any], parts: Parts, kind: type) -> None:
    """Checks that a checkpoint has the tensors of a module.

    Args:
        content: content of the checkpoint.
        parts: the module's tensors.
        kind: class of the module, for the message.

    Raises:
        InputError: a tensor is missing, unknown, or has another shape.
    """
    for key, tensors in parts.items():
        saved = _shapes(content.get(key))
        expected = _shapes(tensors)
        for name in sorted(saved.keys() | expected.keys()):
            require(
                saved.get(name) == expected.get(name),
                f"a checkpoint of this {kind.__name__}, with {name} {_shape_in_words(expected.get(name))}",
                f"{name} {_shape_in_words(saved.get(name))}",
                _WAY_OUT,
            )


def _shapes(tensors: object) -> dict[str, tuple[int, ...]]:
    named = tensors if isinstance(tensors, Mapping) else {}
    return {str(name): tuple(value.shape) for name, value in named.items() if isinstance(value, Tensor)}


def _shape_in_words(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else f"of shape {shape}"
