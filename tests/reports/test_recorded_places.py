"""Where in a recording a verdict was found."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak.attacks.re_identification.profile_contrast import ProfileContrast
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.run import RecordedLine
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, score_table
from fedleak.recordings.recording import Recording
from fedleak.reports.recorded_places import recorded_places
from fedleak_recorder import Recorder


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "deltas"
    model = {"w": np.zeros(3, "float32")}
    with Recorder(folder) as recorder:
        for number in range(3):
            updates = {client: ({"w": np.full(3, client + 1.0, "float32")}, 5) for client in range(4)}
            recorder.round(number, model=model, updates=updates)
    return folder


def found(deltas: Path) -> AuditResult:
    """An attack that infers most in round 1, by an AUC, and in round 2, by a distance; and one on all rounds."""
    values = {"auc": (0.5, 0.9, 0.6), "l1": (0.5, 0.9, 0.1)}
    rows = [
        score_table(
            "my", {name: [own[number]] * 2 for name, own in values.items()}, setting={}, seed=0, victims=[1, 2]
        ).assign(round=number)
        for number in range(3)
    ]
    rows.append(score_table("profile-contrast", {"auc": [0.9, 1.0]}, setting={}, seed=0, victims=[1, 2]))
    data = {"name": "d", "sha256": "0"}
    recording = Recording(deltas)
    return AuditResult(Evaluation(scores=concat(rows)), ["auc"], data, recording=recording, attacks=[ProfileContrast()])


def verdict(metric: str, attack: str | None, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "limit": 0.5, "attack": attack, "setting": {}, "round": None, **more}


def test_a_place_is_the_line_of_the_journal_that_names_the_round(deltas: Path) -> None:
    limits = [verdict("auc", "my"), verdict("x/l1", "my", setting={"epsilon": 1}), verdict("beyond-baseline", "my")]
    limits.append(verdict("auc", "my", round=0))
    made = recorded_places(found(deltas), limits)
    assert made is not None
    assert [place.round for place in made.places] == [1, 2, 1, 0]
    lines = (deltas / "journal.jsonl").read_text().splitlines()
    for place in made.places:
        (shard,) = place.shards
        assert place.file == "journal.jsonl"
        assert f'"{shard}"' in lines[place.line - 1]
        assert (deltas / shard).is_file()
    assert made.sha256 == Recording(deltas).sha256()


def test_an_attack_on_all_rounds_and_a_limit_without_one_have_the_manifest(deltas: Path) -> None:
    limits = [verdict("auc", "profile-contrast"), verdict("f1", None), verdict("f1", "my")]
    made = recorded_places(found(deltas), limits)
    assert made is not None
    assert made.places == [RecordedLine(round=None, file="manifest.json", line=1, shards=[])] * 3


def test_the_folder_is_relative_or_a_name(deltas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, name in ((deltas.parent.parent, f"{deltas.parent.name}/deltas"), (deltas, "."), (Path("/"), None)):
        monkeypatch.chdir(folder)
        made = recorded_places(found(deltas), [])
        assert made is not None
        assert made.folder == (name or deltas.as_posix().removeprefix("/"))
    monkeypatch.chdir(deltas / "rounds")
    made = recorded_places(found(deltas), [])
    assert made is not None
    assert made.folder == "deltas"


def test_several_recordings_have_no_place(deltas: Path) -> None:
    whole = found(deltas)
    whole.recording = None
    assert recorded_places(whole, [verdict("auc", "my")]) is None
