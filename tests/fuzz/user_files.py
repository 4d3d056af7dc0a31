"""Fuzz targets: tables, checkpoints, declarations, limits of gates and evidence bundles, as users pass them on."""

import functools
import io
import json
import math
import random
import re
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning import Trainer

from fedleak.commands.shared.defences_file import read_defences
from fedleak.core.errors import InputError
from fedleak.core.metric_table import METRICS
from fedleak.evaluation.limits import Limit, check_limits, read_gate
from fedleak.evaluation.registry import REGISTRY
from fedleak.modules.learners.fncf import FNCF
from fedleak.reports.evidence_bundle import BundleError, archive, verified
from fedleak.reports.exporters.bundle import Bundle
from fedleak.reports.statement.system_file import Declaration
from fedleak.tables.table import Choice, read_table
from fedleak.training.lightning.checkpoint_io import CheckedCheckpointIO
from tests.fuzz.damages import TENSORS
from tests.fuzz.mutations import change_bytes, change_value
from tests.fuzz.recordings import Files, read_tree
from tests.fuzz.writings import change_plain
from tests.places import CONFIGS, FILLED_SYSTEM
from tests.reports.bundle_toys import with_hashes
from tests.reports.toys import run

Mutant = tuple[Files, str]
Parts = tuple[
    str,
    Callable[[], Files],
    Callable[[Files, random.Random], Mutant],
    Callable[[Path], str],
    Callable[[Path, Files, Files], str | None],
]
"""Name of a target, whole files, change, reading, and what cannot be."""
TABLES = ("raifle_algorithm2", "pac_theorem1", "decaf_exact_counts", "deanon_equal_halves", "linear_inversion")
"""Tables of several kinds, with labels, restrictions, scales and inheritance."""
_CHECKPOINT, _SYSTEM, _GATE, _BUNDLE = "last.ckpt", "system.yaml", "gate.txt", "audit.zip"
_DEFENCES = "what_if.yaml"


@functools.cache
def whole_tables() -> Files:
    """All configurations, of which tables name others."""
    return {name: content for name, content in read_tree(CONFIGS).items() if name.endswith(".yaml")}


def _place(table: str) -> str:
    """File of a table below `CONFIGS`."""
    return next(name for name in whole_tables() if Path(name).stem == table)


def change_table(name: str, files: Files, draws: random.Random) -> Mutant:
    """Another value in a table, or other bytes."""
    return _changed_yaml(_place(name), files, draws)


def read_tables(name: str, folder: Path) -> str:
    """Settings of a table's cells, as `reproduce --dry-run` makes them."""
    cells = read_table(folder / _place(name)).cells(Choice(progress=False))
    return repr([(cell.key, sorted(cell.attacks)) for cell in cells])


def _module() -> FNCF:
    return FNCF(num_items=6, num_clients=4, user_dim=2, item_dim=3, hidden=(4,))


@functools.cache
def whole_checkpoint() -> Files:
    """A checkpoint of a small recommender."""
    module = _module()
    module._secret = bytes(32)
    module.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False)
    content: dict[str, Any] = {"state_dict": dict(module.state_dict()), "global_step": 1, "optimizer_states": []}
    content |= {"loops": {}, "epoch": 0, "pytorch-lightning_version": "2.6.0"}
    module.on_save_checkpoint(content)
    return {_CHECKPOINT: _saved(content)}


def _saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


_OBJECTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "list": lambda value: value.tolist(),
    "text": lambda _: "x",
    "none": lambda _: None,
}


def change_checkpoint(files: Files, draws: random.Random) -> Mutant:
    """Another argument, another tensor, a missing part, or other bytes."""
    if draws.random() < 0.2:
        content, said = change_bytes(files[_CHECKPOINT], draws)
        return {_CHECKPOINT: content}, said
    held = torch.load(io.BytesIO(files[_CHECKPOINT]), weights_only=True)
    part = draws.choice(["hyper_parameters", "hyper_parameters", "state_dict", "private", "top"])
    if part == "hyper_parameters":
        held[part], said = change_value(held[part], draws)
    elif part == "top":
        key = draws.choice(sorted(held))
        held[key] = draws.choice([None, "x", {}, [], 1, {"x": 1}])
        said = f"other {key}"
    else:
        name, how = draws.choice(sorted(held[part])), draws.choice([*TENSORS, *_OBJECTS])
        held[part][name] = {**TENSORS, **_OBJECTS}[how](held[part][name])
        said = f"{how} {name}"
    return {_CHECKPOINT: _saved(held)}, f"{part}: {said}"


def read_checkpoints(folder: Path) -> str:
    """Parameters of a module that is loaded, after the check of a training that resumes."""
    CheckedCheckpointIO(_module(), resume=True).load_checkpoint(folder / _CHECKPOINT)
    loaded = FNCF.load_from_checkpoint(folder / _CHECKPOINT)
    return repr({name: value.tolist() for name, value in loaded.state_dict().items()})


def wrong_checkpoint(place: Path, before: Files, after: Files) -> str | None:
    """A checkpoint that is accepted has the tensors of the module."""
    held = torch.load(io.BytesIO(after[_CHECKPOINT]), weights_only=True)
    shapes = {name: value.shape for name, value in _module().state_dict().items()}
    right = {name: getattr(value, "shape", None) for name, value in held["state_dict"].items()} == shapes
    return None if right else "other tensors"


def whole_system() -> Files:
    """The example of a declaration."""
    return {_SYSTEM: FILLED_SYSTEM.read_bytes()}


def change_system(files: Files, draws: random.Random) -> Mutant:
    """Another value in a declaration, or other bytes."""
    return _changed_yaml(_SYSTEM, files, draws)


def read_systems(folder: Path) -> str:
    """A declaration with its limits."""
    questions = {kind.family for kind in REGISTRY.values()}
    return repr(Declaration.read(folder / _SYSTEM, questions).with_limits([Limit(None, "auc", 0.6)]))


def whole_defences() -> Files:
    """The example of defences that an audit tries."""
    return {_DEFENCES: (CONFIGS / _DEFENCES).read_bytes()}


def change_defences(files: Files, draws: random.Random) -> Mutant:
    """Another defence or argument, or another writing."""
    return _changed_yaml(_DEFENCES, files, draws)


def read_all_defences(folder: Path) -> str:
    """Defences with their arguments."""
    found = []
    for key, made in read_defences(folder / _DEFENCES).items():
        found.append((key, [(type(one).__name__, sorted(vars(one).items())) for one in made]))
    return re.sub("0x[0-9a-f]+", "", repr(found))  # addresses of objects


def whole_gate() -> Files:
    """Limits on the command line."""
    return {_GATE: b"auc=0.6,l1=0.3,record-membership/auc=0.7"}


def change_gate(files: Files, draws: random.Random) -> Mutant:
    """Other words and numbers."""
    names = [*sorted(METRICS)[:12], "AUC", "", "auc/auc", "/auc", "record-membership/auc", "words/l1", "\x00"]
    numbers = ["0.6", "60", "-0.1", "6_0", "nan", "inf", "1e400", "", "x", "0x1", "1e-3", " 0.5 ", "1,5"]
    numbers += ["\u0660.\u0666", "\u00b2"]  # digits of another script, a power
    pairs = [draws.choice(names) + draws.choice("=== :") + draws.choice(numbers) for _ in range(draws.randint(1, 3))]
    text = draws.choice([",".join(pairs), "{" + ",".join(pairs) + "}", '{"auc": [0.6]}', '{"auc": 1e999}', "[]"])
    return {_GATE: text.encode()}, repr(text)


def read_gates(folder: Path) -> str:
    """Limits that an audit accepts."""
    limits = read_gate([(folder / _GATE).read_text()])
    check_limits(limits, [kind() for kind in REGISTRY.values()])
    return repr(sorted((limit.name, limit.bound) for limit in limits))


def wrong_gate(place: Path, before: Files, after: Files) -> str | None:
    """A limit that is accepted is a value of its metric, written with digits."""
    limits = read_gate([after[_GATE].decode()])
    for limit in limits:
        low, high = METRICS[limit.metric].span or (-math.inf, math.inf)
        if not low <= limit.bound <= high or not math.isfinite(limit.bound):
            return f"{limit.name}={limit.bound}"
    return "underscore" if "_0" in after[_GATE].decode() else None


def nothing_wrong(place: Path, before: Files, after: Files) -> str | None:
    """There is no other grammar to compare with."""
    return None


@functools.cache
def whole_bundle() -> Files:
    """A bundle of a small run."""
    with tempfile.TemporaryDirectory() as folder:
        made = run()
        made.write(Path(folder))
        return {_BUNDLE: Path(Bundle().export(made, Path(folder))).read_bytes()}


def damage_bundle(files: Files, draws: random.Random) -> Mutant:
    """Other bytes."""
    content, said = change_bytes(files[_BUNDLE], draws)
    return {_BUNDLE: content}, said


def change_bundle(files: Files, draws: random.Random) -> Mutant:
    """Another value in one of its files, whose hashes fit."""
    with zipfile.ZipFile(io.BytesIO(files[_BUNDLE])) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    name = draws.choice(sorted(entries))
    value, said = change_value(json.loads(entries[name]), draws)
    return {_BUNDLE: archive(with_hashes({**entries, name: json.dumps(value).encode()}))}, f"{name}: {said}"


def read_bundle(folder: Path) -> str:
    """What `fedleak verify` says."""
    try:
        return verified(folder / _BUNDLE)
    except BundleError as error:
        raise InputError(expected="a bundle", found=str(error), way_out="") from None


def wrong_bundle(place: Path, before: Files, after: Files) -> str | None:
    return "a bundle with other bytes"


def targets() -> list[Parts]:
    """Tables, then the other files."""
    tables: list[Parts] = []
    for name in TABLES:
        change, read = functools.partial(change_table, name), functools.partial(read_tables, name)
        tables.append((f"table {name}", whole_tables, change, read, nothing_wrong))
    return [
        *tables,
        ("checkpoint", whole_checkpoint, change_checkpoint, read_checkpoints, wrong_checkpoint),
        ("system.yaml", whole_system, change_system, read_systems, nothing_wrong),
        ("defences of an audit", whole_defences, change_defences, read_all_defences, nothing_wrong),
        ("limits of a gate", whole_gate, change_gate, read_gates, wrong_gate),
        ("bundle, damaged", whole_bundle, damage_bundle, read_bundle, wrong_bundle),
        ("bundle, hashes fit", whole_bundle, change_bundle, read_bundle, nothing_wrong),
    ]


def _changed_yaml(name: str, files: Files, draws: random.Random) -> Mutant:
    if draws.random() < 0.15:
        content, said = change_bytes(files[name], draws, text=True)
    else:
        content, said = change_plain(yaml.safe_load(files[name]), draws, as_yaml=True)
    return {**files, name: content}, f"{name}: {said}"
