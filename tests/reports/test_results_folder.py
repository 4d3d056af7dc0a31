"""Folders of results are made before the work, and what cannot be one is named."""

from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.commands.audit import _next
from fedleak.commands.run import check_own_folder
from fedleak.core.errors import InputError
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.run import Run
from fedleak.reports.results_folder import print_outputs, results_folder, results_in, shell_command
from tests.frames import cell, results
from tests.toys import train as train_toy


def test_a_folder_of_results_is_made_empty(tmp_path: Path) -> None:
    with results_folder(tmp_path / "a/b") as folder:
        assert folder == tmp_path / "a/b"
        assert not list(folder.iterdir())


@pytest.mark.parametrize("held", [(), ("scores.csv",)])
def test_a_folder_stays_after_a_failure_if_it_holds_results(held: tuple[str, ...], tmp_path: Path) -> None:
    def work() -> None:
        with results_folder(tmp_path / "a/b") as folder:
            for name in held:
                (folder / name).write_text("1")
            raise ValueError("work")

    with pytest.raises(ValueError, match="work"):
        work()
    assert (tmp_path / "a").exists() == bool(held)
    assert tmp_path.exists()


@pytest.mark.parametrize("place", ["mine", "mine/below"])
def test_a_file_in_its_place_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InputError, match=f"the file {tmp_path / 'mine'}"), results_folder(tmp_path / place):
        pass


@pytest.mark.integration
def test_an_audit_runs_no_attack_before_its_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_toy(tmp_path, rounds=1)
    monkeypatch.setattr("fedleak.evaluation.auditing.audit", lambda *_, **__: pytest.fail("it attacked"))
    assert program.main(["audit", str(tmp_path / "deltas"), "--out", "/proc/self/fedleak"]) == 2
    assert "--out" in capsys.readouterr().err


def test_only_what_exists_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("report.html", "results.json", "gate.xml"):
        (tmp_path / name).write_text("")
    print_outputs(results_in(tmp_path), then=shell_command("audit", "a folder", why="remark"))
    assert capsys.readouterr().out.splitlines() == [
        f"report: {tmp_path / 'report.html'}",
        f"results: {tmp_path / 'results.json'}, {tmp_path / 'gate.xml'}",
        "next: fedleak audit 'a folder'  # remark",
    ]


@pytest.mark.parametrize(
    ("missing", "limits", "reference", "words"),
    [
        (
            {"raifle": Reason("slow", way_out="add --slow", says="it is slow")},
            [Limit(None, "auc", 0.6)],
            None,
            "audit d --gate auc=0.6 --slow ",
        ),
        (
            {"raifle": Reason("slow", way_out="add --slow", says="it is slow")},
            None,
            "first",
            "audit d --reference first --slow ",
        ),
        ({"decaf": Reason("lacking", ("learner",))}, None, None, "audit d --gate METRIC=LIMIT "),
        ({"pac": Reason("under-defences", way_out="give --slow")}, None, None, "audit d --slow "),
        ({}, [Limit(None, "auc", 0.6)], None, "report out RUN "),
    ],
)
def test_after_an_audit_come_slow_attacks_a_gate_or_a_page(
    missing: dict[str, Reason], limits: list[Limit] | None, reference: str | None, words: str
) -> None:
    assert _next("d", Path("out"), missing, limits, reference).startswith(f"fedleak {words}")


def run_of(*attacks: str) -> Run:
    rows = [cell(name, "auc", 0.5) for name in attacks]
    data = {"name": "d", "sha256": "0"}
    return Run("e", "python attack.py audit", 0, None, {}, data, "machine", 1.0, results(*rows))


def test_a_run_does_not_replace_an_audit(tmp_path: Path) -> None:
    check_own_folder(tmp_path)
    run_of("direction").write(tmp_path)
    check_own_folder(tmp_path)
    run_of("direction", "popularity").write(tmp_path)
    with pytest.raises(InputError, match=r"the results of 2 attacks in .* Name another folder"):
        check_own_folder(tmp_path)
