"""Fuzz target: what a watch keeps in its folder, as a crash, a full disk or somebody else leaves it."""

import contextlib
import functools
import io
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fedleak.evaluation.limits import Limit
from fedleak.evaluation.registry import make_attack
from fedleak.evaluation.watching import Watch
from fedleak.recordings.recording import Recording
from fedleak_recorder.verdict import VERDICT
from tests.fuzz.children import AcceptedError
from tests.fuzz.recordings import Files, read_tree
from tests.fuzz.user_files import Mutant, Parts, nothing_wrong
from tests.fuzz.writings import change_plain
from tests.watch_toys import recorder, write_round

_ROUNDS, _WATCHED = 3, 2
_LIMITS = [Limit("declared-privacy", "findings", 0.05)]
_FOLDER = "watch"


def _watch(folder: Path, until: int) -> Watch:
    return Watch(
        folder / "deltas",
        folder / _FOLDER,
        _LIMITS,
        [make_attack("release-check")],
        open_recording=lambda: Recording(folder / "deltas", running=True),
        until=until,
        expected=10,
    )


@functools.cache
def _whole(silent: bool) -> Files:
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(io.StringIO()):
        folder = Path(place)
        with recorder(folder / "deltas") as opened:
            for number in range(_ROUNDS):
                write_round(opened, number, silent=silent and number == 1)
        assert list(_watch(folder, _WATCHED - 1).looks())
        return read_tree(folder)


def whole_watch(silent: bool = False) -> Files:
    """A recording of three rounds and a watch that has audited two of them; with or without a limit exceeded."""
    return dict(_whole(silent))


def change_watch(files: Files, draws: random.Random) -> Mutant:
    """Kept scores, settings or a verdict that are gone, cut or otherwise, or half of a file under another name."""
    names = [name for name in sorted(files) if name.startswith(f"{_FOLDER}/") and name.endswith(".json")]
    name = draws.choice(names)
    how = draws.choice(["gone", "cut", "empty", "copy", "other", "other", "other", "other"])
    if how == "gone":
        return {other: content for other, content in files.items() if other != name}, f"no {name}"
    if how == "cut":
        return {**files, name: files[name][: draws.randrange(len(files[name]))]}, f"{name} cut"
    if how == "empty":
        return {**files, name: b""}, f"{name} empty"
    if how == "copy":
        other = f"{_FOLDER}/rounds/{draws.choice(['000002', '000007', '.000000', 'x', '-00001'])}.json"
        return {**files, other: files[name]}, f"{name} as {other}"
    content, said = change_plain(json.loads(files[name]), draws)
    return {**files, name: content}, f"{name}: {said}"


def read_watch(folder: Path) -> str:
    """The verdicts of two starts: without a new round, and with one; each is of the newest round."""
    work = folder.parent / "work"
    shutil.copytree(folder, work)
    found = []
    for last in (_WATCHED - 1, _ROUNDS - 1):
        looks = list(_watch(work, last).looks())
        found.append(_verdict(work / _FOLDER / VERDICT, last))
        if looks[-1].overall != found[-1]:
            raise AcceptedError(f"the verdict says {found[-1]} and the last line {looks[-1].overall}")
    left = [path.name for path in (work / _FOLDER).rglob(".*.tmp")]
    if left:
        raise AcceptedError(f"{left[0]} is left")
    return f"{found} {sorted(path.name for path in (work / _FOLDER).rglob('*.json'))}"


def _verdict(path: Path, last: int) -> str:
    """What a verdict says over all, if it is of the last round and follows from its limits."""
    if not path.exists():
        raise AcceptedError(f"no verdict of round {last}")
    try:
        held: dict[str, Any] = json.loads(path.read_bytes())
        outcomes = {str(one["verdict"]) for one in held["limits"]}
        held = {"overall": held["overall"], "round": held["round"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise AcceptedError(f"no verdict that can be read: {error}") from None
    right = "exceeded" if "exceeded" in outcomes else "unknown" if "unmeasured" in outcomes else "ok"
    if held["overall"] != right or held["round"] != last or not outcomes:
        raise AcceptedError(f"a verdict {held['overall']} on round {held['round']} with limits {sorted(outcomes)}")
    return right


def targets() -> list[Parts]:
    """Folders of a watch without and with a limit that is exceeded."""
    exceeded = functools.partial(whole_watch, silent=True)
    return [
        ("folder of a watch", whole_watch, change_watch, read_watch, nothing_wrong),
        ("folder of a watch, exceeded", exceeded, change_watch, read_watch, nothing_wrong),
    ]
