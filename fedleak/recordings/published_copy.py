"""A copy of a recording that can be passed on: what the server saw, without what names its clients."""

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from fedleak.core.errors import InputError, require
from fedleak.core.provenance import LEFT_OUT, without_paths
from fedleak.recordings.recording import Recording
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import (
    ATTRIBUTE,
    ATTRIBUTE_PSEUDONYMS,
    AUXILIARY,
    CANDIDATE_LABELS,
    CANDIDATES,
    HOLDOUT_USERS,
    Manifest,
)
from fedleak_recorder.journal import append_journal, close_journal, journals_in, read_journal, write_shard

OF_PEOPLE = (
    ATTRIBUTE_PSEUDONYMS,
    CANDIDATES,
    CANDIDATE_LABELS,
    HOLDOUT_USERS,
    "known_pseudonyms",
    "known_users",
    "prior_users",
)
"""Auxiliary data that hold records of clients, or say which pseudonym is whose."""
_EXAMPLES_OF_USERS = ("prior_features", "prior_labels")
"""Examples that are left out with ``prior_users``, which says whose they are; without it, they are public."""
ALLOWS = (
    "who knows which clients took part in each round names pseudonyms by their rounds",
    "attacks on the updates: what they infer about a pseudonym is known to everybody who has the copy",
    "numbers of examples, served items and words can be unique to a client",
    "results that were written with --persons, logs and recordings with the same FEDLEAK_KEY name the same pseudonyms",
    "data that are simulated from the manifest's seed can be drawn again by whoever has the data set",
)
"""What a copy still allows, see docs/reference/recording-format.md."""


@dataclasses.dataclass(frozen=True)
class Published:
    """What a copy of a recording holds.

    Attributes:
        rounds: number of its rounds.
        left_out: what of the recording it does not hold, in words.
    """

    rounds: int
    left_out: list[str]


def publish_copy(source: Path, out: Path) -> Published:
    """Copies a recording into a folder that does not exist or is empty.

    The copy holds the shards of ``rounds/`` byte for byte, their lines of the journals, the manifest without paths,
    and the auxiliary data without records of clients: no ``truth/``, none of its hashes, no key, checkpoint or other
    file of the folder. Pseudonyms stay, because they are drawn with a secret key that is in no recording: new ones
    would hide nothing from who has the recording, whose updates are the same. It is made in a folder beside it, which
    gets its name when it is whole.

    Raises:
        InputError: there is no recording, it is damaged or holds links, or the folder is taken.
    """
    _check_paths(source, out)
    recording = Recording(source)
    recording.most_examples()  # opens every shard, and so refuses what no shard may hold
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".unfinished", dir=out.parent))
    try:
        left_out = [*_other_files(source), *_copied(recording, unfinished)]
        unfinished.chmod(0o755)  # mkdtemp makes folders for their owner alone
        _check_paths(source, out)
        unfinished.rename(out)  # replaces an empty folder, and no other
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return Published(len(recording.rounds), left_out)


def _check_paths(source: Path, out: Path) -> None:
    """Checks that the source is a folder, and the place of the copy free; neither may be a link."""
    for path in (source, source / "rounds", out):
        require(
            not path.is_symlink(),
            f"a folder at {path}",
            "a link",
            "Give the folder itself: a link may lead to files that are not meant.",
        )
    is_taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    require(not is_taken, f"an empty folder at {out}, or none", "one that holds files", "Give another folder.")
    is_inside = out.resolve().is_relative_to(source.resolve())
    require(not is_inside, "a folder outside of the recording", str(out), "Give another folder.")


def _copied(recording: Recording, out: Path) -> Iterator[str]:
    """Copies what may be passed on into a folder; what was left out, in words."""
    source = recording.directory
    folder = RecordingFolder(out)
    # What the server saw, file by file, with a new journal of each rank that does not name the truth.
    truth_files = 0
    for path in journals_in(source):
        _check_file(path)
        journal = read_journal(path)
        rank = int(path.stem.partition("-")[2] or 0)
        shards = [line for line in journal.lines if line.file.startswith("rounds/")]
        truth_files += len(journal.lines) - len(shards)
        for line in shards:
            _check_file(source / line.file)
            content = (source / line.file).read_bytes()
            _check_texts(content, line.file)
            copied = write_shard(out, line.file, content)
            require(copied == line, f"{line.file} as journalled", "another content", "Copy the recording again, whole.")
            append_journal(out, rank, [copied])
        if journal.closed:
            close_journal(out, rank, len(shards))
    if truth_files:
        yield f"ground truth: {truth_files} files of truth/ and their hashes in the journals"
    auxiliary, names_of_people = _auxiliary(recording)
    if names_of_people:
        yield ("auxiliary data that hold records of clients or say whose a pseudonym is: " + ", ".join(names_of_people))
    digest = None
    if auxiliary is not None:
        digest = hashlib.sha256(auxiliary).hexdigest()
    manifest, cleaned_places = _without_places(dataclasses.replace(recording.manifest, auxiliary=digest))
    if cleaned_places:
        yield f"paths, addresses and keys in the manifest: {', '.join(cleaned_places)}"
    yield "the secret key of the pseudonyms, which is in no recording (it is in checkpoints and in FEDLEAK_KEY)"
    # The manifest comes last: with it, the folder is a recording.
    folder.declare(manifest, auxiliary)


def _auxiliary(recording: Recording) -> tuple[bytes | None, list[str]]:
    """Auxiliary data without those of people, None for none; and the names of these."""
    if recording.manifest.auxiliary is None:
        return None, []
    path = recording.directory / AUXILIARY
    _check_file(path)
    content = path.read_bytes()
    try:
        auxiliary = load(content)
    except SafetensorError as error:
        raise InputError(expected=f"{AUXILIARY} as recorded", found=str(error), way_out="Copy it again.") from None
    of_people = {name for name in auxiliary if name in OF_PEOPLE or name.startswith(ATTRIBUTE)}
    if "prior_users" in auxiliary:
        of_people |= {name for name in _EXAMPLES_OF_USERS if name in auxiliary}
    if not of_people:
        _check_texts(content, AUXILIARY)
        return content, []
    public = {name: tensor for name, tensor in auxiliary.items() if name not in of_people}
    if not public:
        return None, sorted(of_people)
    return save(public), sorted(of_people)


def _without_places(manifest: Manifest) -> tuple[Manifest, list[str]]:
    """The manifest without paths, addresses and values that are named as keys; and where they stood.

    A learner whose description holds one is left out as a whole: without it, another network would be described.
    """
    content = dataclasses.asdict(manifest)
    cleaned_places: list[str] = []
    for name in ("learner", "config", "data", "versions"):
        cleaned = _cleaned(content[name], name, cleaned_places)
        # A learner with other arguments would be another learner: better none.
        if name == "learner" and cleaned != content[name]:
            cleaned = None
        content[name] = cleaned
    return Manifest(**content), cleaned_places


def _cleaned(value: Any, where: str, cleaned_places: list[str]) -> Any:
    """A value of JSON with `LEFT_OUT` for texts that hold a path or an address; notes where."""
    if isinstance(value, Mapping):
        public = {}
        for key, entry in value.items():
            if without_paths(key) == key:
                public[key] = _cleaned(entry, f"{where}.{key}", cleaned_places)
            else:
                cleaned_places.append(where)
        return public
    if isinstance(value, list | tuple):
        return [_cleaned(entry, where, cleaned_places) for entry in value]
    if isinstance(value, str) and without_paths(value) != value:
        cleaned_places.append(where)
        return LEFT_OUT
    return value


def _check_file(path: Path) -> None:
    """Checks that a file is one of its own, and no link to another."""
    require(
        path.is_file() and not path.is_symlink(),
        f"a file at {path}",
        "a link or none",
        "Copy the recording with its files: a link may lead to files that are not meant.",
    )


def _check_texts(content: bytes, name: str) -> None:
    """Checks that a file of tensors holds no texts besides their names."""
    # A file of safetensors begins with the size of its header, 8 bytes, and the header in JSON.
    size = int.from_bytes(content[:8], "little")
    texts = json.loads(content[8 : 8 + size]).get("__metadata__")
    require(
        not texts,
        f"{name} without texts",
        f"{str(texts)[:60]}",
        "Record again: the recorder writes none, so that nothing is passed on by mistake.",
    )


def _other_files(source: Path) -> list[str]:
    """Files of the folder that are no part of a recording."""
    parts_of_recording = {"manifest.json", AUXILIARY, "rounds", "truth", ".lock"}
    parts_of_recording |= {path.name for path in journals_in(source)}
    foreign = sorted(path.name for path in source.iterdir() if path.name not in parts_of_recording)
    if not foreign:
        return []
    and_more = " and more" if len(foreign) > 10 else ""
    return [f"other files: {', '.join(foreign[:10])}{and_more}"]
