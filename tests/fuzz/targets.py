"""What is fuzzed: a whole example, how it is changed, and how the project reads it."""

import contextlib
import functools
import hashlib
import importlib.util
import io
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from fedleak.commands import program
from fedleak.commands.convert import convert_dump
from fedleak.core.errors import InputError
from fedleak.datamodules.devices.blog import Blog
from fedleak.datamodules.devices.open_images import OpenImages
from fedleak.datamodules.devices.pipa import PIPA
from fedleak.datamodules.devices.sent140 import Sentiment140
from fedleak.datamodules.devices.user_filter import UserFilter
from fedleak.datamodules.devices.yelp import Yelp, read_amazon
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.images.fer import FER
from fedleak.datamodules.images.mnist import MNIST
from fedleak.datamodules.images.skin_cancer import SkinCancer
from fedleak.datamodules.ranking.letor import LETOR
from fedleak.datamodules.recommendation.movielens import MovieLens
from fedleak.datamodules.recommendation.steam import Steam
from fedleak.evaluation.message_selection import message_truth
from fedleak.recordings.adversary_devices import PSEUDONYMS
from fedleak.recordings.joined_view import joined_view
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.training.people import Attributes
from tests.datamodules import image_trees, owned_files
from tests.foreign_toys import items, write_dump
from tests.fuzz import guard_files, guard_messages, lint_files, result_files, user_files, watch_files
from tests.fuzz.children import LEGAL, SAME, SILENT, Answer
from tests.fuzz.damages import FIELDS
from tests.fuzz.mutations import change_bytes, change_npz, change_shard, change_value
from tests.fuzz.oracle import GRAMMARS, contradiction
from tests.fuzz.recorder_calls import change_calls, record_calls, whole_calls, wrong_calls
from tests.fuzz.recordings import RECORDINGS, Files, read_tree, recording, with_file, with_manifest, write_tree
from tests.fuzz.writings import change_plain, change_type

Mutant = tuple[Files, str]


@dataclass(frozen=True)
class Target:
    """Something that reads files of strangers.

    Attributes:
        name: for the table.
        example: whole files.
        change: one drawn change, and what it is.
        read: all that the project reads of a folder of such files, as a hash of the numbers.
        wrong: what the changed files say that cannot be; the folder after reading, the files before and after.
        seconds: that reading may take.
    """

    name: str
    example: Callable[[], Files]
    change: Callable[[Files, random.Random], Mutant]
    read: Callable[[Path], str]
    wrong: Callable[[Path, Files, Files], str | None]
    seconds: float = 20.0

    def task(self, mutant: Files) -> Callable[[], Answer]:
        """Reads a mutant in a folder of its own, and says what it was if it is accepted."""

        def run() -> Answer:
            with tempfile.TemporaryDirectory() as folder:
                place = write_tree(Path(folder) / "input", mutant)
                os.environ["FEDLEAK_CACHE"] = f"{folder}/cache"
                found = self.read(place)
                if found == self.whole:
                    return Answer(SAME)
                wrong = self.wrong(place, self.example(), mutant)
                return Answer(LEGAL) if wrong is None else Answer(SILENT, wrong)

        return run

    @property
    def whole(self) -> str:
        """What reading the whole example gives."""
        return _whole(self.example, self.read)

    def mutant(self, seed: int, number: int) -> Mutant:
        """The same for the same seed and number."""
        draws = random.Random(f"{self.name} {seed} {number}")
        while True:
            # What JSON or YAML cannot write, or there is nothing of.
            with contextlib.suppress(ValueError, IndexError, RecursionError):
                files, said = self.change(self.example(), draws)
                if files != self.example():
                    return files, said


@functools.cache
def _whole(example: Callable[[], Files], read: Callable[[Path], str]) -> str:
    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        os.environ["FEDLEAK_CACHE"] = f"{folder}/cache"
        return read(write_tree(Path(folder) / "input", example()))


def digest(*parts: Any) -> str:
    """A hash of tensors, arrays, and what holds them."""
    found = hashlib.sha256()
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if isinstance(part, Tensor):
            part = part.detach().float().numpy() if part.dtype == torch.bfloat16 else part.detach().numpy()
        if isinstance(part, np.ndarray):
            found.update(f"{part.shape} {part.dtype}".encode() + part.tobytes())
        elif isinstance(part, Mapping):
            waiting += [piece for key in sorted(part) for piece in (key, part[key])]
        elif isinstance(part, list | tuple):
            waiting += part
        else:
            found.update(repr(part).encode())
    return found.hexdigest()


def read_recording(folder: Path) -> str:
    """What an audit reads before it attacks."""
    opened = Recording(folder)
    learner = recorded_learner(opened)
    parts: list[Any] = [opened.rounds, opened.pseudonyms(), opened.manifest.releases, opened.manifest.data]
    if len(opened.auxiliary().get(PSEUDONYMS, ())):
        history = joined_view(opened, learner=learner)
        parts += [history.pseudonyms, history.deltas, message_truth(opened, history)]
    else:
        for view in opened.views(learner=learner):
            parts += [view.round, view.pseudonyms, view.example_counts, view.deltas, view.model, opened.truth(view)]
            parts += [view.served, view.lists, view.features, view.releases, view.auxiliary]
    return digest(*parts)


def audit(folder: Path) -> str:
    """The scores of an audit; its exit status 2 is a clear error."""
    out = folder.parent / "out"
    if program.main(["audit", str(folder), "--out", str(out)]) == 2:
        raise InputError(expected="an audit", found="exit status 2", way_out="")
    results = json.loads((out / "results.json").read_text())["results"]
    return digest([{key: value for key, value in one.items() if key != "seconds_per_victim"} for one in results])


def _author(files: Files, draws: random.Random) -> Mutant:
    """Another shard or other auxiliary data, whose hashes fit."""
    name = draws.choice([name for name in sorted(files) if name.endswith("safetensors")])
    content, said = change_shard(files[name], draws)
    return with_file(files, name, content), f"{name}: {said}"


def _damage(files: Files, draws: random.Random) -> Mutant:
    """A shard or the journal with other bytes, and hashes as they were."""
    name = draws.choice([name for name in sorted(files) if name != "manifest.json"])
    content, said = change_bytes(files[name], draws, text=name.endswith("jsonl"))
    return {**files, name: content}, f"{name}: {said}"


def _describe(files: Files, draws: random.Random) -> Mutant:
    """A field that none may have, another manifest, or another line of the journal."""
    if draws.random() < 0.1:
        key = draws.choice(sorted(FIELDS))
        value = draws.choice(FIELDS[key])
        return with_manifest(files, lambda manifest: manifest.update({key: value})), f"manifest: {key} {value}"
    if draws.random() < 0.7:
        content, said = change_plain(json.loads(files["manifest.json"]), draws)
        return {**files, "manifest.json": content}, f"manifest: {said}"
    lines = files["journal.jsonl"].decode().splitlines()
    place = draws.randrange(len(lines))
    change = draws.choice([change_value, change_type])
    value, said = change(json.loads(lines[place]), draws)
    lines[place] = json.dumps(value)
    return {**files, "journal.jsonl": ("\n".join(lines) + "\n").encode()}, f"journal: {said}"


def _wrong_recording(place: Path, before: Files, after: Files) -> str | None:
    return contradiction(after)


def _wrong_damage(place: Path, before: Files, after: Files) -> str | None:
    """Of damaged shards nothing may be accepted; a journal may have lost lines, of which a reader sees fewer rounds."""
    changed = [name for name in before if after[name] != before[name]]
    return None if changed == ["journal.jsonl"] else f"{changed} with another hash"


def _manifest_name(files: Files) -> str:
    return next(name for name in files if name.startswith("manifest"))


def _dump(files: Files, draws: random.Random) -> Mutant:
    manifest = _manifest_name(files)
    name = draws.choice([manifest, manifest, *sorted(files)])
    if name.endswith(".npz"):
        content, said = change_npz(files[name], draws)
    elif name.endswith(".safetensors"):
        content, said = change_shard(files[name], draws)
    elif draws.random() < 0.2:
        content, said = change_bytes(files[name], draws, text=True)
    else:
        content, said = change_plain(yaml.safe_load(files[name]), draws, as_yaml=True)
    return {**files, name: content}, f"{name}: {said}"


def read_dump(folder: Path) -> str:
    """The recording that a dump is converted into."""
    out = folder.parent / "out"
    convert_dump(folder / _manifest_name(read_tree(folder)), out, progress=False)
    return read_recording(out)


def _wrong_dump(place: Path, before: Files, after: Files) -> str | None:
    return contradiction(read_tree(place.parent / "out"))


@functools.cache
def _example(write: Callable[[Path], object]) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return read_tree(Path(folder))


def _of_data(names: str) -> Callable[[Files, random.Random], Mutant]:
    """Changes one of the files whose names begin so."""

    def change(files: Files, draws: random.Random) -> Mutant:
        name = draws.choice([name for name in sorted(files) if name.startswith(names)])
        text = name.endswith((".data", ".dat", ".csv", ".txt", ".json", ".xml"))
        content, said = change_bytes(files[name], draws, text=text)
        return {**files, name: content}, f"{name}: {said}"

    return change


def _wrong_data(place: Path, before: Files, after: Files) -> str | None:
    """What the data set's own grammar refuses; where there is no grammar, nothing can be said."""
    bad = [name for name in after if name in GRAMMARS and not GRAMMARS[name](after[name])]
    return f"{bad[0]} of another form" if bad else None


def _ratings(root: Path) -> None:
    rows = [(user, item) for user in range(1, 13) for item in range(user, user + 6)]
    texts = {
        "ml-100k/u.data": "".join(f"{u}\t{i}\t{1 + u * i % 5}\t{880000000 + u + i}\n" for u, i in rows),
        "ml-1m/ratings.dat": "".join(f"{u}::{i}::{1 + u * i % 5}::{880000000 + u + i}\n" for u, i in rows),
        "steam-200k/steam-200k.csv": "".join(f'{u},"Game, {i}",play,{u}.5,0\n' for u, i in rows),
    }
    write_tree(root, {name: text.encode() for name, text in texts.items()})


def _raters(root: Path) -> None:
    _ratings(root)
    people = "".join(
        f"{user}|{15 + 4 * user}|{'MF'[user % 2]}|{('artist', 'none')[user % 2]}|0\n" for user in range(1, 13)
    )
    write_tree(root, {"ml-100k/u.user": people.encode()})


def _letor(root: Path) -> None:
    draws = random.Random(0)
    lines = [
        f"{(q * d) % 3} qid:{100 + q} " + " ".join(f"{j}:{draws.random():.6f}" for j in range(1, 47)) + f" #d{d}\n"
        for q in range(4)
        for d in range(5)
    ]
    write_tree(root, {f"MQ2008/Fold1/{part}.txt": "".join(lines).encode() for part in ("train", "test")})


def _texts(root: Path) -> None:
    owned_files.write_blog_csv(root, owned_files.posts([11, 12, 13], per_blogger=5))
    owned_files.write_yelp_json(root, owned_files.reviews(["u1", "u2", "u3"], per_user=6))
    owned_files.write_sent140(root, ["a", "b", "c"], per_user=6)
    owned_files.write_amazon(root)
    write_tree(root, {"wikipedia/sentences.txt": b"A cat is here.\nThe dog sleeps.\n" * 5})


def _posts(root: Path) -> None:
    owned_files.write_blog_xml(root, owned_files.posts([11, 12, 13], per_blogger=5))
    owned_files.write_yelp_csv(root, owned_files.reviews(["u1", "u2", "u3"], per_user=6))
    owned_files.write_amazon(root)
    write_tree(root, {"wikipedia/sentences.txt": b"A cat is here.\nThe dog sleeps.\n" * 5})


def _images(root: Path) -> None:
    image_trees.write_idx(root)
    image_trees.write_fer_csv(root / "fer2013/fer2013.csv", image_trees.fer_rows(per_class=3))
    image_trees.write_skin_cancer(root)


def _zips(root: Path) -> None:
    image_trees.write_zip(root / "fer2013/fer.zip", image_trees.fer_tree(per_class=2))
    files = image_trees.class_tree(tuple(CIFAR10.class_names), (3, 32, 32), per_class=2, test_per_class=1)
    image_trees.write_tree(root / "cifar10", files)


def _photos(root: Path) -> None:
    owned_files.write_open_images(root, dates=True)
    owned_files.write_pipa(root)


def _clicks(make: Callable[[str], Any]) -> Callable[[Path], str]:
    def read(root: Path) -> str:
        data = make(str(root))
        found = data.read()
        return digest(found.users, found.items, found.num_users, found.num_items)

    return read


def _attributes(make: Callable[..., Any]) -> Callable[[Path], str]:
    def read(root: Path) -> str:
        return digest(make(root=str(root), attributes=Attributes()).people.table)

    return read


def _labelled(make: Callable[[str], Any]) -> Callable[[Path], str]:
    def read(root: Path) -> str:
        data = make(str(root))
        return digest(*[part for one in (data.read_train(), data.read_test()) for part in (one.images, one.labels)])

    return read


def _owned(make: Callable[..., Any]) -> Callable[[Path], str]:
    def read(root: Path) -> str:
        found = make(root=str(root), users=UserFilter(fewest=2)).read()
        return digest(found.features, found.labels, found.owners)

    return read


def _letor_queries(root: Path) -> str:
    queries = LETOR(name="MQ2008", root=str(root)).read_train()
    return digest(queries.features, queries.grades, queries.offsets)


_DATA: list[tuple[str, Callable[[Path], None], Callable[[Path], str]]] = [
    ("ml-100k/", _ratings, _clicks(lambda root: MovieLens(root=root))),
    ("ml-100k/u.user", _raters, _attributes(MovieLens)),
    ("ml-1m/", _ratings, _clicks(lambda root: MovieLens(root=root, variant="ml-1m"))),
    ("steam-200k/", _ratings, _clicks(lambda root: Steam(root=root))),
    ("MQ2008/Fold1/train", _letor, _letor_queries),
    ("MNIST/", _images, _labelled(lambda root: MNIST(root=root))),
    ("fer2013/fer2013.csv", _images, _labelled(lambda root: FER(root=root))),
    ("ham10000/", _images, _labelled(lambda root: SkinCancer(root=root, auxiliary_per_class=1))),
    ("fer2013/fer.zip", _zips, _labelled(lambda root: FER(root=root))),
    ("cifar10/", _zips, _labelled(lambda root: CIFAR10(root=root))),
    ("blog/blogtext.csv", _texts, _owned(Blog)),
    ("blog/blogs", _posts, _owned(Blog)),
    ("yelp/yelp_academic", _texts, _owned(Yelp)),
    ("yelp/yelp.csv", _posts, _owned(Yelp)),
    ("sent140/", _texts, _owned(Sentiment140)),
    ("amazon/", _texts, lambda root: digest(*read_amazon(root, bad_rows="error"))),
    ("openimages/", _photos, _owned(OpenImages)),
    ("pipa/", _photos, _owned(PIPA)),
]


def _dumps() -> dict[str, Callable[[Path], object]]:
    return {
        "arrays": write_dump,
        "models": functools.partial(write_dump, holds="models"),
        "stacked": functools.partial(write_dump, per_client=False),
        "safetensors": functools.partial(write_dump, safetensors=True),
        "items": _item_dump,
    }


def _item_dump(folder: Path) -> None:
    path = items(folder, whole=True)
    shutil.copytree(path.parent, folder, dirs_exist_ok=True)
    shutil.rmtree(path.parent)


_MODULES = (user_files, guard_files, guard_messages, lint_files, result_files, watch_files)


def targets() -> list[Target]:
    """Everything that is fuzzed by reading; audits, which take seconds each, come last."""
    made = []
    for name in RECORDINGS:
        whole = functools.partial(recording, name)
        made += [
            Target(f"recording of {name}, damaged", whole, _damage, read_recording, _wrong_damage),
            Target(f"recording of {name}, manifest", whole, _describe, read_recording, _wrong_recording),
            Target(f"recording of {name}, hashes fit", whole, _author, read_recording, _wrong_recording),
        ]
    for name, write in _dumps().items():
        made.append(Target(f"dump of {name}", functools.partial(_example, write), _dump, read_dump, _wrong_dump))
    for name, write, read in _DATA:
        made.append(Target(f"data {name}", functools.partial(_example, write), _of_data(name), read, _wrong_data))
    read_calls = functools.partial(record_calls, read=read_recording)
    made.append(Target("calls of the recorder", whole_calls, change_calls, read_calls, wrong_calls))
    parts = [one for module in _MODULES for one in module.targets()]
    if importlib.util.find_spec("flwr") is not None:  # in the environment of `make test-flower`
        from tests.fuzz import gateway_calls

        parts += gateway_calls.targets()
    made += [Target(*one) for one in parts]
    whole = functools.partial(recording, "clicks")
    for said, change in (("manifest", _describe), ("hashes fit", _author)):
        made.append(Target(f"audit of clicks, {said}", whole, change, audit, _wrong_recording, seconds=60.0))
    return made
