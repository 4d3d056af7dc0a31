"""Small whole recordings, as files in memory, and what a malicious author may change in them: every hash fits again."""

import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextOptions
from fedleak.commands.convert import convert_dump
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.datamodules.images.synthetic_features import SyntheticFeatures
from fedleak.modules.learners.image_ranker import ImageRanker
from fedleak.modules.learners.text import FederatedText
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule
from fedleak_recorder.format import AUXILIARY, MANIFEST
from tests import probing_toys, toys
from tests.foreign_toys import write_dump

Files = dict[str, bytes]
SEEN, TRUTH = "rounds/", "truth/"


@functools.cache
def _clicks() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        toys.train(Path(folder), rounds=2, users=8, items=60)
        return read_tree(Path(folder) / "deltas")


@functools.cache
def _classes() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        convert_dump(write_dump(Path(folder) / "dump"), Path(folder) / "deltas", progress=False)
        return read_tree(Path(folder) / "deltas")


@functools.cache
def _texts() -> Files:
    """Devices whose owners are asked for, with known ones."""
    data = SyntheticPosts(writers=6, posts=20, vocabulary=40, clients_per_round=0.5)
    module = FederatedText(
        network=TextOptions(vocabulary=40, embedding=4, hidden=4), local=LocalTraining(learning_rate=0.3)
    )
    with tempfile.TemporaryDirectory() as folder:
        _fit(module, data, folder)
        return read_tree(Path(folder) / "deltas")


@functools.cache
def _calls() -> Files:
    """A recommender's whose server probes, which knows how its clients lean."""
    data = probing_toys.clients()
    with tempfile.TemporaryDirectory() as folder:
        probing_toys.train(Path(folder), probing_toys.learner(data), data)
        return read_tree(Path(folder) / "deltas")


@functools.cache
def _sums() -> Files:
    """Sums of a recommender's clients' messages."""
    data = probing_toys.clients(repeated_selection=None)
    recorder = DeltaRecorder(sums_at=[1, 2])
    with tempfile.TemporaryDirectory() as folder:
        module = probing_toys.learner(data, probing=None)
        probing_toys.train(Path(folder), module, data, callbacks=[recorder], rounds=4)
        return read_tree(Path(folder) / "deltas")


class _FewFeatures(SyntheticFeatures):
    num_features = 6


@functools.cache
def _votes() -> Files:
    """Clients with a model each, who were all served the same items."""
    with tempfile.TemporaryDirectory() as folder:
        _fit(ImageRanker(num_features=6, ratio=2, hidden=2), _FewFeatures(users=8, item_sets=2), folder)
        return read_tree(Path(folder) / "deltas")


def _fit(module: FederatedModule, data: FederatedDataModule, folder: str) -> None:
    toys.quiet_trainer(2, Path(folder), DeltaRecorder()).fit(module, datamodule=data)


_MADE: dict[str, Callable[[], Files]] = {
    **{"clicks": _clicks, "classes": _classes, "texts": _texts},
    **{"calls": _calls, "sums": _sums, "votes": _votes},
}
RECORDINGS = tuple(_MADE)


def recording(name: str) -> Files:
    """One of `RECORDINGS`: a recommender's, a converted classifier's, one of texts with known devices, and so on."""
    return dict(_MADE[name]())


def read_tree(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def with_manifest(files: Files, change: Callable[[dict[str, Any]], Any]) -> Files:
    """The recording with another manifest."""
    content = json.loads(files[MANIFEST])
    change(content)
    return {**files, MANIFEST: json.dumps(content).encode()}


def with_file(files: Files, name: str, content: bytes) -> Files:
    """The recording with another shard or other auxiliary data, journalled or named in the manifest with their hash."""
    sha256 = hashlib.sha256(content).hexdigest()
    files = {**files, name: content}
    if name == AUXILIARY:
        return with_manifest(files, lambda manifest: manifest.update(auxiliary=sha256))
    for journal in [key for key in files if key.startswith("journal")]:
        lines = [json.loads(line) for line in files[journal].decode().splitlines()]
        for line in lines:
            if line.get("file") == name:
                line |= {"bytes": len(content), "sha256": sha256}
        files[journal] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return files


def with_tensors(files: Files, kind: str, change: Callable[[dict[str, Tensor]], Any]) -> Files:
    """The recording with changed tensors in its first file whose name begins so."""
    name = next(name for name in sorted(files) if name.startswith(kind))
    tensors = load(files[name])
    change(tensors)
    return with_file(files, name, save({key: value.contiguous() for key, value in tensors.items()}))


def with_tensor(files: Files, kind: str, key: str, change: Callable[[Tensor], Tensor]) -> Files:
    """The recording with one changed tensor."""
    return with_tensors(files, kind, lambda tensors: tensors.update({key: change(tensors[key]).clone()}))


def without(files: Files, begins: str) -> Files:
    """The recording without some files and their lines in the journal."""
    kept = {name: content for name, content in files.items() if not name.startswith(begins)}
    for journal in [name for name in kept if name.startswith("journal")]:
        lines = kept[journal].decode().splitlines()
        kept[journal] = "".join(line + "\n" for line in lines if f'"{begins}' not in line).encode()
    return kept
