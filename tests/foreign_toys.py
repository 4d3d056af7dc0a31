"""What a server of another system might have written to disk: the leaky image classifiers as plain arrays."""

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import save
from torch import Tensor

from fedleak.core.view import RoundView
from tests.composition_toys import NETWORK, SGD, SHAPE, source, views

MANIFEST = "manifest.yaml"
CLIENTS = [f"phone-{number}" for number in range(10)]


def view() -> RoundView:
    """One round of ten leaky clients."""
    return views()[0][0]


def described() -> dict[str, Any]:
    """The manifest of a dump of that round, without its rounds."""
    return {
        "format": 1,
        "data": {"name": "synthetic-images"},
        "holds": "deltas",
        "parameters": {name: list(value.shape) for name, value in view().model.items()},
        "learner": {
            "name": "classifier",
            "arguments": {
                "network": dataclasses.asdict(NETWORK),
                "image_shape": list(SHAPE),
                "num_classes": 10,
                "local": dataclasses.asdict(SGD),
            },
        },
        "auxiliary": "auxiliary.npz",
        "system": {"name": "another system", "version": "7"},
    }


def npz(arrays: Mapping[str, Tensor]) -> bytes:
    file = io.BytesIO()
    plain: dict[str, Any] = {name: value.numpy() for name, value in arrays.items()}
    np.savez(file, **plain)
    return file.getvalue()


def write_dump(folder: Path, *, holds: str = "deltas", per_client: bool = True, safetensors: bool = False) -> Path:
    """Writes the round in one of the ways that a dump may have; returns the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _dump(holds, per_client, safetensors).items():
        (folder / name).write_bytes(content)
    return folder / MANIFEST


@functools.cache
def _dump(holds: str, per_client: bool, safetensors: bool) -> dict[str, bytes]:
    seen, ending = view(), "safetensors" if safetensors else "npz"
    packed = (lambda arrays: save(dict(arrays))) if safetensors else npz
    sent = seen.deltas if holds == "deltas" else {n: value + seen.model[n] for n, value in seen.deltas.items()}
    files = {"auxiliary.npz": npz(seen.auxiliary), f"global.{ending}": packed(seen.model)}
    clients: list[dict[str, Any]] = [
        {"client": name, "examples": int(seen.example_counts[i]), "truth": {"class_counts": counts}}
        for i, (name, counts) in enumerate(zip(CLIENTS, source().class_counts().tolist(), strict=True))
    ]
    one: dict[str, Any] = {"round": 3, "model": f"global.{ending}", "clients": clients}
    if per_client:
        for place, client in enumerate(clients):
            client["file"] = f"{client['client']}.{ending}"
            files[client["file"]] = packed({name: value[place].clone() for name, value in sent.items()})
    else:
        one["file"] = f"all.{ending}"
        files[one["file"]] = packed(sent)
    content = yaml.safe_dump({**described(), "holds": holds, "rounds": [one]}, sort_keys=False)
    return {**files, MANIFEST: content.encode()}


def changed_manifest(path: Path, **change: Any) -> Path:
    """The manifest with some keys replaced."""
    path.write_text(yaml.dump({**content_of(path), **change}, Dumper=yaml.CSafeDumper, sort_keys=False))
    return path


def content_of(manifest: Path) -> dict[str, Any]:
    """What a manifest says."""
    content = yaml.load(manifest.read_text(), yaml.CSafeLoader)
    assert isinstance(content, dict)
    return content


def one_client(path: Path, place: int = 0) -> Path:
    """The file of one client of the dump."""
    return path.parent / str(content_of(path)["rounds"][0]["clients"][place]["file"])


def rewrite(path: Path, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Puts the arrays of a file through a function."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **change(arrays))


def items(tmp_path: Path, *, whole: bool) -> Path:
    """Two clients of a recommender; the rows of the items they were served, or the whole table."""
    folder = tmp_path / str(whole)
    folder.mkdir()
    table = torch.arange(12.0).reshape(6, 2)
    clients = []
    for name, served in (("a", [1, 4]), ("b", [0, 2, 5])):
        rows = table if whole else table[served]
        arrays: dict[str, Any] = {"item_embedding.weight": rows.numpy(), "served": np.array(served)}
        np.savez(folder / f"{name}.npz", **arrays)
        clients.append({"client": name, "examples": len(served), "file": f"{name}.npz"})
        clients[-1]["truth"] = {"labels": [1] + [0] * (len(served) - 1)}
    content: dict[str, Any] = {"format": 1, "data": {"name": "shop"}, "holds": "deltas"}
    content |= {"parameters": {"item_embedding.weight": [6, 2]}, "row_parameters": ["item_embedding.weight"]}
    content |= {"rounds": [{"round": 0, "clients": clients}]}
    path = folder / "manifest.json"
    path.write_text(json.dumps(content))
    return path
