"""What a server of another system might have written to disk: the leaky image classifiers as plain arrays."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor

from protocol.view import RoundView
from tests.composition_toys import NETWORK, SGD, SHAPE, source, views

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


def save_npz(path: Path, arrays: Mapping[str, Tensor]) -> None:
    plain: dict[str, Any] = {name: value.numpy() for name, value in arrays.items()}
    np.savez(path, **plain)


def write_dump(folder: Path, *, holds: str = "deltas", per_client: bool = True, safetensors: bool = False) -> Path:
    """Writes the round in one of the ways that a dump may have; returns the manifest."""
    seen, ending = view(), "safetensors" if safetensors else "npz"
    save = (lambda path, arrays: save_file(dict(arrays), path)) if safetensors else save_npz
    folder.mkdir(parents=True, exist_ok=True)
    sent = seen.deltas if holds == "deltas" else {n: value + seen.model[n] for n, value in seen.deltas.items()}
    save_npz(folder / "auxiliary.npz", seen.auxiliary)
    save(folder / f"global.{ending}", seen.model)
    clients: list[dict[str, Any]] = [
        {"client": name, "examples": int(seen.example_counts[i]), "truth": {"class_counts": counts}}
        for i, (name, counts) in enumerate(zip(CLIENTS, source().class_counts().tolist(), strict=True))
    ]
    one: dict[str, Any] = {"round": 3, "model": f"global.{ending}", "clients": clients}
    if per_client:
        for place, client in enumerate(clients):
            client["file"] = f"{client['client']}.{ending}"
            save(folder / client["file"], {name: value[place].clone() for name, value in sent.items()})
    else:
        one["file"] = f"all.{ending}"
        save(folder / one["file"], sent)
    return write_manifest(folder, {**described(), "holds": holds, "rounds": [one]})


def write_manifest(folder: Path, content: Mapping[str, Any]) -> Path:
    path = folder / "manifest.yaml"
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


def changed_manifest(path: Path, **change: Any) -> Path:
    """The manifest with some keys replaced."""
    return write_manifest(path.parent, {**yaml.safe_load(path.read_text()), **change})


def one_client(path: Path, place: int = 0) -> Path:
    """The file of one client of the dump."""
    client = yaml.safe_load(path.read_text())["rounds"][0]["clients"][place]
    return path.parent / str(client["file"])


def rewrite(path: Path, change: Any) -> None:
    """Puts a client's arrays through a function."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    save_npz(path, change(arrays))


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


def flagged(content: bytes, *, method: int | None = None) -> bytes:
    """Encrypted, or of a compression that there is not."""
    data = bytearray(content)
    for mark, flags, kind in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
        place = data.find(mark)
        while place >= 0:
            if method is None:
                data[place + flags] |= 1
            else:
                data[place + kind] = method
            place = data.find(mark, place + 4)
    return bytes(data)
