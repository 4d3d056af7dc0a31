"""The list of attacks: by question, within its width, and those that fit a recording."""

from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.evaluation.registry import REGISTRY
from tests.toys import train


def headings(text: str) -> list[str]:
    """Families in the order of the list."""
    families = {kind.family for kind in REGISTRY.values()}
    heads = [line.partition(":")[0] for line in text.splitlines() if ":" in line]
    return [head for head in heads if head in families]


def test_list_has_every_attack_within_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["list", "--all"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    words = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert {kind.name for kind in REGISTRY.values()} <= words
    assert len(set(headings(text))) == len(headings(text)) == len({kind.family for kind in REGISTRY.values()})


def test_list_has_a_line_for_each_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["list"]) == 0
    text = capsys.readouterr().out
    families: dict[str, list[bool]] = {}
    for kind in REGISTRY.values():
        families.setdefault(kind.family, []).append(kind.baseline)
    rows = [line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in families]
    assert [row[:3] for row in rows] == [
        [family, str(baselines.count(False)), str(baselines.count(True))] for family, baselines in families.items()
    ]
    assert "which of the served items did a client interact with?" in text
    assert "served items, updates" in text


def test_word_of_a_question_finds_every_family_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["list", "--question", "membership"]) == 0
    text = capsys.readouterr().out
    assert sorted(headings(text)) == ["membership", "record-membership"]
    assert "candidate-fit" in text
    assert program.main(["list", "--question", "re-identification"]) == 0
    assert headings(capsys.readouterr().out) == ["re-identification"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--question", "membershp"), "membership?"),
        (("--learner", "FNCF"), "--fits"),
        (("--fits", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_of_the_list(words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["list", *words]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.integration
def test_attacks_that_fit_a_recording_come_before_the_reasons_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, rounds=1, users=6)
    assert program.main(["list", "--fits", str(tmp_path / "deltas")]) == 0
    fitting, _, others = capsys.readouterr().out.partition(" attacks fit ")
    assert {"recommendation", "interactions"} <= set(headings(fitting))
    assert "ranking" not in headings(fitting)
    assert "ranking/codebook" in others
    assert "lacks" in others
