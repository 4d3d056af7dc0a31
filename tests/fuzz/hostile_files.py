"""Files of strangers that name what must not be imported, opened or asked for: values, places and commands."""

import functools
import hashlib
import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import save_file

from fedleak.commands import program, train
from fedleak.core.errors import InputError
from fedleak.core.provenance import hashed
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.image_ranker import ImageRanker
from fedleak.modules.learners.photo_tagger import FederatedTagger
from fedleak.modules.learners.pretrained import Pretrained
from fedleak.recordings.named_algorithm import ALGORITHMS
from fedleak_recorder.remote import RemoteCopy
from tests.foreign_toys import write_dump
from tests.fuzz.recordings import Files, read_tree, recording, with_file, with_manifest, write_tree
from tests.fuzz.user_files import whole_checkpoint
from tests.places import CONFIGS, FILLED_SYSTEM
from tests.reports.bundle_toys import with_hashes
from tests.transformer_toys import LLAMA

Call = Callable[[], object]
HOST = "stranger.invalid"
MODULE = "beacon"
"""Module that is on the path: naming it would be enough to run it."""


@dataclass(frozen=True)
class Place:
    """Where a task may read and write, and the bait, which no file may lead to.

    Attributes:
        inside: folder of the stranger's files and of what the command writes.
        bait: folder beside it with a configuration, weights, a pickle and a recording.
    """

    inside: Path
    bait: Path


@dataclass(frozen=True)
class Hostile:
    """A kind of file of strangers.

    Attributes:
        name: for the table.
        share: of all tasks.
        write: writes drawn hostile files; says what is hostile, and the command that a user would run.
    """

    name: str
    share: int
    write: Callable[[Place, random.Random], tuple[str, Call]]


def make_bait(folder: Path) -> None:
    """Files of each kind that a name could lead to."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, "architectures": ["x"]}))
    save_file({"weight": torch.zeros(2, 2)}, folder / "model.safetensors")
    torch.save({"x": 1}, folder / "pytorch_model.bin")
    np.savez(folder / "arrays.npz", w=np.zeros(2))
    write_tree(folder / "recording", recording("clicks"))
    (folder / "secret.yaml").write_text("a: 1\n")


def make_module(folder: Path) -> None:
    """The module that is on the path."""
    folder.mkdir(parents=True)
    (folder / f"{MODULE}.py").write_text("class Evil:\n    pass\n\n\ndef evil(*_, **__):\n    pass\n")


def values(place: Place) -> list[Any]:
    """What a stranger may write in the place of a value."""
    bait = place.bait
    up = f"../../../{bait.name}"
    paths = [f"{bait}/{name}" for name in ("config.json", "model.safetensors", "pytorch_model.bin", "arrays.npz")]
    paths += [str(bait), f"{bait}/recording", f"{up}/config.json", up, f"{up}/arrays.npz", f"{up}/model.safetensors"]
    paths += ["/etc/hostname", "/proc/self/environ", "~/.netrc", "/dev/zero", f"file://{bait}/config.json"]
    urls = [
        f"{kind}://{HOST}/x" for kind in ("http", "https", "s3", "ftp", "hf", "git+https", "ssh", "simplecache::http")
    ]
    hubs = ["hf-hub:stranger/beacon", f"local-dir:{bait}", "timm:hf-hub:stranger/beacon", f"timm:local-dir:{bait}"]
    hubs += ["stranger/kernel", "kernels-community/flash-attn2@main", "stranger/repo--modeling.Evil"]
    code = [f"{MODULE}.Evil", MODULE, f"{MODULE}:evil", "os.system", "subprocess.Popen", "builtins.eval"]
    code += [
        "!!python/object/apply:os.system ['true']",
        f"${{oc.env:HOME}}/{MODULE}",
        "{{7*7}}",
        f"__import__('{MODULE}')",
    ]
    objects = [
        *({"class_path": name, "init_args": {}} for name in code[:5]),
        {"class_path": f"{MODULE}.Evil", "dict_kwargs": {"path": paths[0]}},
        {"_target_": f"{MODULE}.Evil"},
        {"__class__": f"{MODULE}.Evil"},
        {"auto_map": {"AutoModel": "stranger/repo--modeling.Evil"}},
        [f"{MODULE}.Evil"],
    ]
    huge: list[Any] = [10**9, 10**8, 2**40, 1e30]
    return [*paths, *urls, *hubs, *code, *objects, *huge]


def put(content: Any, value: Any, draws: random.Random) -> str:
    """Replaces a drawn value in a mapping or list, or adds a key; says where."""
    places = list(_places(content))
    parent, key = draws.choice(places)
    if isinstance(parent, dict) and draws.random() < 0.2:
        key = draws.choice(["path", "weights", "class_path", "file", "url", "root", "config", "_instantiator"])
    parent[key] = value
    return str(key)


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(content) if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def _said(where: str, value: Any) -> str:
    return f"{where} = {str(value)[:60]}"


# Recordings.

_ATTACKS = {"clicks": "direction", "classes": "exact-counts", "texts": "next-words"}


def _opened(
    place: Place, folder: Path, draws: random.Random, name: str = "classes", more: tuple[str, ...] = ()
) -> Call:
    """An attack on a recording, or, for one in six, an audit."""
    audits = draws.random() < 1 / 6
    command = ["audit", "--minutes", "0.05"] if audits else ["run", "--attack", _ATTACKS[name]]
    args = [*command, str(folder), "--out", str(place.inside / "out"), *more]
    return functools.partial(program.main, args)


def _write_recording(place: Place, files: Files) -> Path:
    return write_tree(place.inside / "recording", files)


_IMAGES: dict[str, Any] = {"local": {}, "network": {"name": "mlp"}, "image_shape": [1, 8, 8]}
_WHOLE: dict[str, dict[str, Any]] = {
    "tagger": {"local": {}, "network": {}, "num_classes": 3},
    "classifier": {**_IMAGES, "num_classes": 3},
    "binary-classifier": {**_IMAGES, "positive": [1]},
    "text": {"local": {}, "network": {}},
    "decoder": {"local": {}, "network": {}},
    "mf": {"local": {}, "dim": 4, "margin_loss": "hinge"},
}
"""Learners with all arguments that they need."""
_SIZES = {
    "tagger": ["num_classes"],
    "classifier": ["num_classes", "hidden", "hidden_layers"],
    "binary-classifier": ["hidden", "hidden_layers", "bottleneck"],
    "text": ["vocabulary", "embedding", "hidden"],
    "decoder": ["vocabulary", "embedding", "hidden", "layers", "heads", "places"],
    "mf": ["dim"],
}


def _learner(place: Place, draws: random.Random) -> tuple[str, Call]:
    """A learner, or an argument of one."""
    name = draws.choice(["clicks", "classes", "texts"])
    value = draws.choice(values(place))
    known = draws.choice(sorted(ALGORITHMS))
    arguments = json.loads(json.dumps(_WHOLE.get(known, {})))
    if known in _WHOLE and draws.random() < 0.4:
        # A whole learner of one size that nothing holds.
        size = draws.choice([10**4, 10**6, 10**8])
        network, where = arguments.get("network", {}), draws.choice(_SIZES[known])
        (network if known != "mf" and where != "num_classes" else arguments)[where] = size
        named = {"name": known, "arguments": arguments}
        folder = _write_recording(
            place, with_manifest(recording(name), lambda manifest: manifest.update(learner=named))
        )
        return _said(f"{known}.{where}", size), _opened(place, folder, draws, name)
    kind = draws.choice(["name", "argument", "argument", "nested"])
    if kind == "name":
        named = {"name": value, "arguments": arguments}
        where = "learner"
    else:
        where = draws.choice([*_argument_names(known), "folder", "path", "weights", "config"])
        inner = {draws.choice(["optimizer", "learning_rate", "name", "weights", "epochs", "class_path"]): value}
        named = {"name": known, "arguments": {**arguments, where: value if kind == "argument" else inner}}
    folder = _write_recording(place, with_manifest(recording(name), lambda manifest: manifest.update(learner=named)))
    return _said(f"{known}.{where}", value), _opened(place, folder, draws, name)


def _argument_names(known: str) -> list[str]:
    return [name for name in ALGORITHMS[known].__dataclass_fields__ if not name.startswith("_")]


_CONFIG_KEYS = (
    *(
        "model_type",
        "architecture",
        "backbone",
        "attn_implementation",
        "_attn_implementation",
        "experts_implementation",
    ),
    *("auto_map", "quantization_config", "transformers_weights", "use_timm_backbone", "backbone_config", "text_config"),
    *("dtype", "torch_dtype", "hidden_act", "name_or_path", "_name_or_path", "rope_parameters", "rope_scaling"),
    *("num_hidden_layers", "hidden_size", "vocab_size", "num_labels", "id2label", "per_layer_config", "kernel_config"),
)


def _pretrained(place: Place, draws: random.Random) -> tuple[str, Call]:
    """The configuration of a network of the transformers library, or its adapters."""
    value = draws.choice(values(place))
    config: dict[str, Any] = dict(LLAMA)
    task = draws.choice(["causal-lm", "image-classification"])
    # With the hash of a base, weights are drawn from the seed, so that the network is built.
    arguments: dict[str, Any] = {"task": task, "local": {}, "adapter": {}, "base": "0" * 64}
    key = draws.choice(_CONFIG_KEYS)
    if draws.random() < 0.2:
        config, key = {"model_type": "timm_wrapper"}, "architecture"
        arguments["task"] = "image-classification"
    if draws.random() < 0.2:
        key = draws.choice(["variant", "rank", "targets", "alpha"])
        arguments["adapter"] = {key: draws.choice([value, [value]])}
    else:
        config[key] = value
    named = {"name": "pretrained", "arguments": {**arguments, "config": json.dumps(config)}}
    files = with_manifest(recording("texts"), lambda manifest: manifest.update(learner=named))
    return _said(f"config.{key}", value), _opened(place, _write_recording(place, files), draws, "texts")


def _manifest(place: Place, draws: random.Random) -> tuple[str, Call]:
    """Any other field of a manifest."""
    name, value, said = draws.choice(["clicks", "classes", "texts"]), draws.choice(values(place)), list[str]()
    files = with_manifest(recording(name), lambda manifest: said.append(put(manifest, value, draws)))
    return _said(said[0], value), _opened(place, _write_recording(place, files), draws, name)


def _journal(place: Place, draws: random.Random) -> tuple[str, Call]:
    """Names of files in a journal."""
    value = draws.choice([one for one in values(place) if isinstance(one, str)])
    files = recording("clicks")
    lines = [json.loads(line) for line in files["journal.jsonl"].splitlines()]
    line = draws.choice([line for line in lines if "file" in line])
    line["file"] = draws.choice([value, f"rounds/{value}", f"truth/../{value}"])
    files["journal.jsonl"] = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    return _said("journal", value), _opened(place, _write_recording(place, files), draws, "clicks")


def _link(place: Place, draws: random.Random) -> tuple[str, Call]:
    """A link in the place of a file or of a folder of a recording."""
    folder = _write_recording(place, recording("clicks"))
    paths = [path for path in folder.rglob("*") if path.name != ".lock"]
    path = draws.choice(sorted(paths))
    target = place.bait / "recording" / path.relative_to(folder)
    if draws.random() < 0.3 and path.is_file():
        target = draws.choice([place.bait / "config.json", place.bait / "model.safetensors", Path("/etc/hostname")])
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)
    return f"{path.relative_to(folder)} -> {target.name}", _opened(place, folder, draws, "clicks")


# Networks of adapters.


def _base(place: Place, draws: random.Random) -> tuple[str, Call]:
    """A folder with a base network, whose files name others."""
    folder = place.inside / "base"
    folder.mkdir(parents=True)
    value = draws.choice([one for one in values(place) if isinstance(one, str)])
    (folder / "config.json").write_text(json.dumps(LLAMA))
    kind = draws.choice(["adapter", "index", "link", "bin", "config", "generation", "config link"])
    if kind == "adapter":
        adapter = {"peft_type": "LORA", "base_model_name_or_path": value, "auto_mapping": {"base_model_class": value}}
        (folder / "adapter_config.json").write_text(json.dumps(adapter))
        save_file({"x": torch.zeros(1)}, folder / draws.choice(["adapter_model.safetensors", "model.safetensors"]))
    elif kind == "index":
        (folder / "x.safetensors").write_bytes(b"")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": value}}))
    elif kind == "link":
        (folder / "model.safetensors").symlink_to(place.bait / "model.safetensors")
    elif kind == "bin":
        (folder / "pytorch_model.bin").write_bytes(_evil_pickle())
    elif kind == "config":
        (folder / "config.json").write_text(json.dumps({**LLAMA, draws.choice(_CONFIG_KEYS): value}))
    elif kind == "generation":
        save_file({"lm_head.weight": torch.zeros(1)}, folder / "model.safetensors")
        (folder / "generation_config.json").write_text(
            json.dumps({"custom_generate": value, "cache_implementation": value})
        )
    else:
        (folder / "model.safetensors.index.json").symlink_to(place.bait / "config.json")
        (folder / "y.safetensors").write_bytes(b"")
    described = {"name": "pretrained", "arguments": {"config": json.dumps(LLAMA), "local": {}, "adapter": {}}}
    files = with_manifest(recording("texts"), lambda manifest: manifest.update(learner=described))
    given = draws.choice([(), ("--learner", "Pretrained")])
    call = _opened(place, _write_recording(place, files), draws, "texts", (*given, "--learner.path", str(folder)))
    return _said(kind, value), call


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (MODULE,)


def _evil_pickle() -> bytes:
    content = io.BytesIO()
    # The older form of a file of PyTorch is a pickle as it stands.
    torch.save({"weight": _Evil()}, content, _use_new_zipfile_serialization=False)
    return content.getvalue()


# Checkpoints.

_MODULES: tuple[type[Any], ...] = (FNCF, FederatedTagger, ImageRanker, Pretrained)


def _checkpoint(place: Place, draws: random.Random) -> tuple[Path, str]:
    """A checkpoint of a recommender with a hostile argument, class or object."""
    value = draws.choice(values(place))
    held = torch.load(io.BytesIO(whole_checkpoint()["last.ckpt"]), weights_only=True)
    key = draws.choice(
        ["path", "images", "extractor", "network", "defenses", "local", "server", "manipulation", "config"]
    )
    kind = draws.choice(["argument", "argument", "nested", "class", "instantiator", "pickle", "state", "callbacks"])
    path = place.inside / "stranger.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pickle":
        path.write_bytes(_evil_pickle()) if draws.random() < 0.5 else torch.save({**held, "state_dict": _Evil()}, path)
        return path, "pickle"
    if kind == "class":
        held["hyper_parameters"]["_class_path"] = value
    elif kind == "instantiator":
        held["hyper_parameters"]["_instantiator"] = value
    elif kind == "state":
        held["state_dict"] = {str(value): torch.zeros(2)}
    elif kind == "callbacks":
        held["callbacks"] = {str(value): {"path": value, "best_model_path": value, "dirpath": value}}
    elif kind == "nested":
        inner = draws.choice(["name", "weights", "class_path", "optimizer", "layers"])
        held["hyper_parameters"][key] = draws.choice([{inner: value}, [{"class_path": value}], {"class_path": value}])
    else:
        held["hyper_parameters"][key] = value
    torch.save(held, path)
    return path, _said(f"{kind} {key}", value)


def _loaded(place: Place, draws: random.Random) -> tuple[str, Call]:
    """``load_from_checkpoint`` of a learner."""
    path, said = _checkpoint(place, draws)
    kind = draws.choice(_MODULES)
    if kind is not FNCF and draws.random() < 0.7:
        content = {
            FederatedTagger: {
                "num_classes": 3,
                "network": {draws.choice(["weights", "name"]): draws.choice(values(place))},
            },
            ImageRanker: {"num_features": 3, draws.choice(["images", "extractor"]): draws.choice(values(place))},
            Pretrained: {"path": draws.choice(values(place))},
        }[kind]
        torch.save({"state_dict": {}, "private": {}, "hyper_parameters": content}, path)
        said = f"{kind.__name__} {str(content)[:60]}"
    return said, functools.partial(kind.load_from_checkpoint, path)


def _resumed(place: Place, draws: random.Random) -> tuple[str, Call]:
    """``fedleak train fit`` and ``validate`` from a checkpoint."""
    path, said = _checkpoint(place, draws)
    args = [draws.choice(["fit", "validate"]), "--config", str(CONFIGS / "train" / "fncf_synthetic.yaml")]
    args += [
        "--ckpt_path",
        str(path),
        "--trainer.default_root_dir",
        str(place.inside / "run"),
        "--trainer.max_steps",
        "1",
    ]
    return said, functools.partial(train.run, args)


# Dumps, results, declarations, copies.


def _dump(place: Place, draws: random.Random) -> tuple[str, Call]:
    """Arrays of another system, whose manifest names files, tags or a learner."""
    path = write_dump(place.inside / "dump")
    content = yaml.safe_load(path.read_text())
    value = draws.choice(values(place))
    if draws.random() < 0.3:
        where = draws.choice(["model", "file", "auxiliary", "truth"])
        one = draws.choice(content["rounds"])
        client = draws.choice(one["clients"])
        {"model": one, "auxiliary": content, "file": client, "truth": client}[where][where] = value
    else:
        where = put(content, value, draws)
    text = yaml.safe_dump(content, sort_keys=False)
    if draws.random() < 0.2:
        tag = draws.choice(
            ["!!python/name:beacon.Evil", "!!python/object/apply:os.system [true]", "!include /etc/hostname"]
        )
        text, where, value = f"{text}\nsystem: {tag}\n".replace("system:", "extra:", 0), "tag", tag
    path.write_text(text)
    args = ["convert", str(path), "--out", str(place.inside / "out")]
    return _said(where, value), functools.partial(program.main, args)


@functools.cache
def whole_results() -> Files:
    """Results of an attack on a recording."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source = write_tree(Path(folder) / "recording", recording("clicks"))
        out = Path(folder) / "out"
        assert not program.main(["run", "--attack", "direction", str(source), "--out", str(out)])
        return {name: content for name, content in read_tree(out).items() if name.endswith(".json")}


def _results(place: Place, draws: random.Random) -> tuple[str, Call]:
    """results.json and evaluation.json of a run, whose checksum fits."""
    files = dict(whole_results())
    value = draws.choice(values(place))
    name = draws.choice(sorted(files))
    content = json.loads(files[name])
    where = put(content, value, draws)
    if name == "evaluation.json":
        body = {key: part for key, part in content.items() if key not in ("format", "sha256")}
        content = {"format": content.get("format"), "sha256": hashed(body), **body}
    files[name] = json.dumps(content).encode()
    folder = write_tree(place.inside / "run", files)
    whole = write_tree(place.inside / "whole", whole_results())
    recorded = _write_recording(place, recording("clicks"))
    out = ["--out", str(place.inside / "out")]
    args = draws.choice(
        [
            ["report", str(folder), *out],
            ["report", str(whole), str(folder), *out],
            *(["export", str(folder), "--to", to] for to in ("sarif", "bundle", "model-card")),
            ["run", "--attack", "direction", str(recorded), "--reference", str(folder), *out],
        ]
    )
    return f"{args[0]} {name} {_said(where, value)}", functools.partial(program.main, args)


def _declaration(place: Place, draws: random.Random) -> tuple[str, Call]:
    """A declaration of a system."""
    content = yaml.safe_load(FILLED_SYSTEM.read_text())
    value = draws.choice(values(place))
    where = put(content, value, draws)
    path = place.inside / "system.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    folder = _write_recording(place, recording("clicks"))
    args = [
        "audit",
        str(folder),
        "--statement",
        str(path),
        "--minutes",
        "0.01",
        "--out",
        str(place.inside / "o"),
    ]
    return _said(where, value), functools.partial(program.main, args)


def _bundle(place: Place, draws: random.Random) -> tuple[str, Call]:
    """An evidence bundle with other names or values."""
    from tests.fuzz.user_files import whole_bundle

    value = draws.choice(values(place))
    with zipfile.ZipFile(io.BytesIO(whole_bundle()["audit.zip"])) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    path = place.inside / "audit.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    if draws.random() < 0.5:
        named = str(value)[:200].replace("\0", "")
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**entries, named: b"{}"}.items():
                archive.writestr(name, content)
    else:
        name = draws.choice(sorted(name for name in entries if name.endswith(".json")))
        held = json.loads(entries[name])
        put(held, value, draws)
        with zipfile.ZipFile(path, "w") as archive:
            for entry, content in with_hashes({**entries, name: json.dumps(held).encode()}).items():
                archive.writestr(entry, content)
    return _said("bundle", value), functools.partial(program.main, ["verify", str(path)])


def _copy(place: Place, draws: random.Random) -> tuple[str, Call]:
    """A copy in other storage, which lists names that lead elsewhere."""
    value = str(draws.choice([one for one in values(place) if isinstance(one, str)]))
    files = recording("clicks")
    place.inside.mkdir(parents=True, exist_ok=True)
    archive = place.inside / "copy.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
        for name in (value, f"rounds/{value}", f"../../{place.bait.name}/written", f"journal.jsonl/{value}"):
            file.writestr(name, b"x")
    return _said("name", value), lambda: RemoteCopy(f"zip::{archive}").fetch(place.inside / "a" / "b" / "fetched")


def _header(place: Place, draws: random.Random) -> tuple[str, Call]:
    """The header of a shard, whose hash fits."""
    value = draws.choice(values(place))
    files = recording("clicks")
    name = draws.choice([name for name in files if name.endswith(".safetensors")])
    size = int.from_bytes(files[name][:8], "little")
    header = json.loads(files[name][8 : 8 + size])
    where = draws.choice(["__metadata__", *header])
    header[where] = {"format": str(value), "path": str(value)} if where == "__metadata__" else value
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    files = with_file(files, name, len(text).to_bytes(8, "little") + text + files[name][8 + size :])
    return _said(where, value), _opened(place, _write_recording(place, files), draws, "clicks")


KINDS = (
    Hostile("learner of a recording", 70, _learner),
    Hostile("configuration or adapter of a recording", 50, _pretrained),
    Hostile("other fields of a manifest", 25, _manifest),
    Hostile("journal", 10, _journal),
    Hostile("links in a recording", 15, _link),
    Hostile("headers of shards", 10, _header),
    Hostile("folder of a base network", 25, _base),
    Hostile("checkpoint that is loaded", 35, _loaded),
    Hostile("checkpoint of fit and validate", 10, _resumed),
    Hostile("dump that is converted", 20, _dump),
    Hostile("results that are joined and exported", 15, _results),
    Hostile("declaration", 5, _declaration),
    Hostile("evidence bundle", 5, _bundle),
    Hostile("copy in other storage", 5, _copy),
)
"""What strangers give, 300 in all."""


def kind_of(number: int) -> Hostile:
    """Kind of the task of a number, so that every part of 60 has each kind in its share."""
    table = [kind for kind in KINDS for _ in range(kind.share)]
    # A step that has no factor in common with 300 spreads each kind over all numbers.
    return table[number * 77 % len(table)]


def refused(error: BaseException) -> bool:
    """Whether an exception is a clear error."""
    return isinstance(error, InputError)


def fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
