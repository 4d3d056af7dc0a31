import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from fedleak.core.errors import InputError
from fedleak.evaluation.limits import limits_of
from fedleak.evaluation.registry import make_attack
from fedleak.evaluation.watching import SETTINGS, Look, Watch
from fedleak.recordings.complete_rounds import CompleteRounds, _hashes
from fedleak.recordings.recording import Recording
from fedleak_recorder.journal import journals_in, read_journal
from fedleak_recorder.verdict import VERDICT
from tests.watch_toys import recorder, write_round

LIMITS = {"declared-privacy/findings": 0.05}


def watch(folder: Path, *, until: int | None = None, every: int = 1, limits: dict[str, float] = LIMITS) -> Watch:
    deltas = folder / "deltas"
    attacks = [make_attack("release-check")]
    return Watch(
        deltas,
        folder / "watch",
        limits_of(limits),
        attacks,
        open_recording=lambda: Recording(deltas, running=True),
        until=until,
        every=every,
        expected=10,
    )


def record(folder: Path, rounds: Iterable[int], *, silent: int | None = None, resume_at: int | None = None) -> None:
    with recorder(folder / "deltas", resume_at=resume_at) as opened:
        for number in rounds:
            write_round(opened, number, silent=number == silent)


def verdicts(looks: Iterable[Look]) -> list[tuple[int, str]]:
    return [(look.round, look.overall) for look in looks]


def test_fault_is_found_in_its_round(tmp_path: Path) -> None:
    record(tmp_path, range(4), silent=2)
    assert verdicts(watch(tmp_path).looks()) == [(0, "ok"), (1, "ok"), (2, "exceeded"), (3, "exceeded")]
    verdict = json.loads((tmp_path / "watch" / VERDICT).read_text())
    assert (verdict["round"], verdict["overall"]) == (3, "exceeded")
    assert verdict["run"] == Recording(tmp_path / "deltas").manifest.run
    (limit,) = verdict["limits"]
    assert limit["low"] > limit["at"]
    assert limit["attack"] == "release-check"


def test_kept_rounds_are_not_audited_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, range(3), silent=1)
    first = watch(tmp_path, until=1)
    assert verdicts(first.looks()) == [(0, "ok"), (1, "exceeded")]
    second = watch(tmp_path)
    audited = []
    audit = second._audit

    def counted(number: int, files: str) -> None:
        audited.append(number)
        audit(number, files)

    monkeypatch.setattr(second, "_audit", counted)
    assert verdicts(second.looks()) == [(1, "exceeded"), (2, "exceeded")]
    assert audited == [2]
    whole = list(watch(tmp_path).looks())[-1]
    (tmp_path / "watch").rename(tmp_path / "earlier")
    assert list(watch(tmp_path).looks())[-1].states == whole.states


def test_every_waits_for_so_many_rounds(tmp_path: Path) -> None:
    opened = recorder(tmp_path / "deltas")
    looks = watch(tmp_path, every=2).looks()
    for number in range(2):
        write_round(opened, number)
    assert next(looks).round == 0
    assert next(looks).round == 1
    write_round(opened, 2)
    opened.close()
    assert verdicts(looks) == [(2, "ok")]


def test_rounds_that_are_recorded_anew_are_audited_anew(tmp_path: Path) -> None:
    record(tmp_path, range(3), silent=2)
    assert verdicts(watch(tmp_path).looks())[-1] == (2, "exceeded")
    with recorder(tmp_path / "deltas", resume_at=2) as opened:
        write_round(opened, 2)
        write_round(opened, 3)
    assert verdicts(watch(tmp_path).looks())[-2:] == [(2, "ok"), (3, "ok")]


def test_watch_of_other_limits_is_refused(tmp_path: Path) -> None:
    record(tmp_path, range(1))
    list(watch(tmp_path).looks())
    with pytest.raises(InputError, match="limits"):
        list(watch(tmp_path, limits={"declared-privacy/findings": 0.5}).looks())


def test_damaged_scores_of_a_round_are_refused(tmp_path: Path) -> None:
    record(tmp_path, range(1))
    list(watch(tmp_path).looks())
    (kept,) = (tmp_path / "watch/rounds").glob("*.json")
    kept.write_text(kept.read_text()[:-9])
    with pytest.raises(InputError, match="scores of a round"):
        list(watch(tmp_path).looks())
    for settings in ("[]", "", "{"):
        (tmp_path / "watch" / SETTINGS).write_text(settings)
        with pytest.raises(InputError, match="watch"):
            list(watch(tmp_path).looks())


@pytest.mark.parametrize(
    ("field", "value"),
    [("victims", 3), ("victims", [1]), ("persons", [[1]] * 8), ("values", None), ("joint", 1), ("attack", 2)],
)
def test_scores_of_other_types_are_refused(field: str, value: object, tmp_path: Path) -> None:
    record(tmp_path, range(1))
    list(watch(tmp_path).looks())
    (kept,) = (tmp_path / "watch/rounds").glob("*.json")
    content = json.loads(kept.read_text())
    content["scores"][0][field] = value
    kept.write_text(json.dumps(content))
    with pytest.raises(InputError, match="scores of a round"):
        list(watch(tmp_path).looks())


def test_infinite_scores_are_kept(tmp_path: Path) -> None:
    record(tmp_path, range(1))
    list(watch(tmp_path).looks())
    (kept,) = (tmp_path / "watch/rounds").glob("*.json")
    content = json.loads(kept.read_text())
    content["scores"][0]["values"] = ["inf"] * 7 + [None]
    kept.write_text(json.dumps(content))
    (look,) = watch(tmp_path).looks()
    assert look.overall == "exceeded"
    assert look.states[0].clients


def stopped_before_the_verdict(number: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A watch that ends when it has kept the scores of a round, and before it writes the verdict."""
    writing = watch(folder)
    write, begun = writing._write, []

    def killed(**options: bool) -> None:
        begun.append(options)
        if len(begun) > number:
            raise KeyboardInterrupt
        write(**options)

    monkeypatch.setattr(writing, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        list(writing.looks())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_verdict_that_a_killed_watch_did_not_write_is_written_at_the_next_start(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, range(3), silent=2)
    stopped_before_the_verdict(number, monkeypatch, tmp_path)
    path = tmp_path / "watch" / VERDICT
    assert len(list(path.parent.glob("rounds/*.json"))) == number
    next(watch(tmp_path).looks())
    written = json.loads(path.read_text())
    whole = tmp_path / "whole"
    record(whole, range(number), silent=2)
    list(watch(whole).looks())
    expected = json.loads((whole / "watch" / VERDICT).read_text())
    assert {**written, "time": ""} == {**expected, "time": ""}


def test_next_start_writes_no_verdict_on_rounds_that_are_recorded_anew(tmp_path: Path) -> None:
    record(tmp_path, range(3))
    list(watch(tmp_path).looks())
    with recorder(tmp_path / "deltas", resume_at=2) as opened:
        write_round(opened, 2, silent=True)
    looks = watch(tmp_path).looks()
    assert next(looks).round == 1
    assert json.loads((tmp_path / "watch" / VERDICT).read_text())["round"] == 1
    assert verdicts(looks) == [(2, "exceeded")]


def test_rounds_that_are_recorded_anew_take_the_verdict_of_a_running_watch_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = recorder(tmp_path / "deltas")
    for number in range(3):
        write_round(opened, number)
    looks = watch(tmp_path, every=2).looks()
    assert [next(looks).round for _ in range(3)] == [0, 1, 2]
    opened._release()
    again = recorder(tmp_path / "deltas", resume_at=1)
    write_round(again, 1, silent=True)

    def waits(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedleak.evaluation.watching.time.sleep", waits)
    monkeypatch.setattr("fedleak.evaluation.watching.complete_rounds", complete_rounds_now)
    with pytest.raises(KeyboardInterrupt):
        next(looks)
    assert json.loads((tmp_path / "watch" / VERDICT).read_text())["round"] == 0
    again.close()


def complete_rounds_now(folder: Path) -> CompleteRounds:
    """What is recorded, without a wait."""
    (journal,) = (read_journal(path) for path in journals_in(folder))
    return CompleteRounds(_hashes([journal]), journal.closed)


def test_verdict_without_scores_is_removed(tmp_path: Path) -> None:
    record(tmp_path, range(2))
    list(watch(tmp_path).looks())
    for kept in (tmp_path / "watch/rounds").glob("*.json"):
        kept.unlink()
    looks = watch(tmp_path).looks()
    assert next(looks).round == 0
    assert json.loads((tmp_path / "watch" / VERDICT).read_text())["round"] == 0


def test_second_watch_of_a_folder_is_refused(tmp_path: Path) -> None:
    record(tmp_path, range(2))
    first = watch(tmp_path).looks()
    next(first)
    with pytest.raises(InputError, match="no other process"):
        next(watch(tmp_path).looks())
    first.close()  # type: ignore[attr-defined]
    assert verdicts(watch(tmp_path).looks()) == [(0, "ok"), (1, "ok")]
