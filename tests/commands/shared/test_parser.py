"""Options of ``fedleak`` become the fields of the command's dataclass."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fedleak.attacks.ranking.codebook import CodebookAttack
from fedleak.attacks.recommendation.raifle import Raifle
from fedleak.commands import audit, program, reproduce
from fedleak.commands import list as list_command
from fedleak.commands.list import ListOptions
from fedleak.commands.reproduce import ReproduceOptions
from fedleak.commands.run import RunOptions
from fedleak.commands.shared.all_commands import all_commands
from fedleak.commands.shared.audit_options import AuditOptions
from fedleak.commands.shared.command import Command
from fedleak.commands.shared.parser import parsed
from fedleak.commands.shared.shared_options import ADVANCED
from fedleak.commands.watch import WatchOptions
from fedleak.core.errors import InputError
from fedleak.evaluation.message_selection import MessageSelection


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {}),
        (["--slow"], {"slow": True}),
        (["--slow", "--victims", "3"], {"slow": True, "victims": 3}),
        (["--persons", "--out", "o"], {"persons": True, "out": "o"}),
        (["--gate", "auc=0.6", "--gate", "l1=1"], {"gate": ["auc=0.6", "l1=1"]}),
        (["--gate.auc=0.6", "--gate", "l1=1"], {"gate": ["l1=1"], "gate_by_name": {"auc": 0.6}}),
        (["--only", "a,b", "--only", "[c, d]"], {"only": ["a", "b", "c", "d"]}),
        (["--also", "a,b"], {"also": ["a", "b"]}),
        (["--format", "svg,tex"], {"formats": ["svg", "tex"]}),
        (["--format=svg", "--format", "tex"], {"formats": ["svg", "tex"]}),
        (["--format=[svg, tex]"], {"formats": ["svg", "tex"]}),
        (["--seed", "0", "--out=o"], {"seed": 0, "out": "o"}),
        (
            [
                "--learner",
                "my.Net",
                "--learner.hidden",
                "32",
                "--learner.local.epochs=2",
                "--learner.local.rate",
                "-1e-3",
            ],
            {"learner": "my.Net", "learner_arguments": {"hidden": 32, "local": {"epochs": 2, "rate": "-1e-3"}}},
        ),
    ],
)
def test_options_of_an_audit(given: list[str], expected: dict[str, Any]) -> None:
    call = audit.COMMAND, AuditOptions(recording="d", **expected)
    assert parsed(["audit", "d", *given]) == call
    assert parsed(["audit", *given, "d"]) == call


def test_limits_are_those_of_both_spellings() -> None:
    assert AuditOptions("d", gate=["l1=1"], gate_by_name={"auc": 0.6}).limits == ["l1=1", "auc=0.6"]


def test_options_of_a_table() -> None:
    words = ["--data.root", "d", "--set", "model.local.epochs=5", "--set", "data.root=null", "--dry-run", "--jobs", "2"]
    overrides = [("model.local.epochs", 5), ("data.root", None)]
    expected = ReproduceOptions(config="t", root="d", overrides=overrides, dry_run=True, jobs=2, scale="paper")
    assert parsed(["reproduce", "t", *words, "--scale", "paper"]) == (reproduce.COMMAND, expected)
    assert parsed(["list"]) == (list_command.COMMAND, ListOptions())


def test_attack_and_messages_of_a_run_are_made() -> None:
    words = [
        "run",
        "d",
        "--attack",
        "recommendation/raifle",
        "--attack.max_iter",
        "60",
        "--attack.user=joint",
    ]
    _, options = parsed([*words, "--rounds", "[0, 2]", "--messages", '{"known_rounds": [0, 2]}', "--history"])
    attack, selection = Raifle(max_iter=60, user="joint"), MessageSelection(known_rounds=(0, 2))
    assert options == RunOptions("d", attack, selection, rounds=[0, 2], history=True)
    _, options = parsed([*words, "--messages.pairs", "anonymous"])
    assert isinstance(options, RunOptions)
    assert options.messages.pairs == "anonymous"


def test_command_line_comes_before_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "{attack: {class_path: fedleak.attacks.Raifle, init_args: {max_iter: 7, user: joint}}, recording: d, seed: 3}"
    )
    _, options = parsed(["run", "--config", str(config), "--seed", "4", "--attack.max_iter", "9"])
    assert options == RunOptions("d", Raifle(max_iter=9, user="joint"), MessageSelection(), seed=4)
    _, options = parsed(["run", "--config", str(config), "--attack", "codebook"])
    assert options == RunOptions("d", CodebookAttack(), MessageSelection(), seed=3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "COMMAND"),
        (["audt"], "audit"),
        (["audit"], "DIR"),
        (["watch", "d"], "--gate"),
        (["convert", "m.yaml"], "--out"),
        (["audit", "d", "--only", ""], "--only with the names"),
        (["audit", "d", "--victms", "3"], "Did you mean --victims?"),
        (["audit", "d", "--attack.user", "3"], "--attack.user"),
        (["audit", "d", "--seed.x", "3"], "--seed.x"),
        (["audit", "d", "--learner", "Net", "--learner.a", "3", "--learner.a.b", "4"], "--learner.a.b without a value"),
        (["audit", "d", "--slow", "perhaps"], "perhaps"),
        (["audit", "d", "--format", "svg,png"], "svg, pdf, csv, tex"),
        (["audit", "d", "--seed", "x"], "--seed from 0"),
        (["audit", "d", "e"], "found e"),
        (["reproduce", "t", "--scale", "large"], "large"),
        (["run", "--attack", "recommendation/raifle"], "DIR"),
        (["run", "d", "--attack", "raifel"], "raifle"),
        (
            ["run", "d", "--attack", "recommendation/raifle", "--attack.max_itr", "3"],
            "Did you mean max_iter",
        ),
        (
            ["run", "d", "--attack", "recommendation/raifle", "--attack.max_iter", "0"],
            "max_iter: a whole number above 0.*found 0",
        ),
        (
            ["run", "d", "--attack", "recommendation/raifle", "--attack.max_iter", "x"],
            "max_iter: a whole number.*found 'x'",
        ),
        (
            ["run", "d", "--attack", "recommendation/raifle", "--attack.user", "both"],
            "user: one of fixed, joint.*found 'both'",
        ),
        (["run", "d", "--attack", "recommendation/raifle", "--messages.pair", "3"], "pair"),
        (["run", "d", "--attack", "recommendation/raifle", "--rounds", "x"], "rounds"),
    ],
)
def test_mistake_is_one_line(words: list[str], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as error:
        parsed(words)
    assert "\n" not in str(error.value)


def test_the_recording_of_a_run_may_stand_in_its_configuration_under_its_name(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("{attack: direction, deltas: d}")
    with pytest.raises(InputError, match=r"Rename it: recording: DIR"):
        parsed(["run", "--config", str(config)])


def test_the_overview_has_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    firsts = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert firsts == [*all_commands()]


def test_a_limit_by_its_name_is_a_limit() -> None:
    _, options = parsed(["watch", "d", "--gate.auc", "0.6"])
    assert options == WatchOptions("d", gate_by_name={"auc": 0.6})


PARSED = {name: command for name, command in all_commands().items() if isinstance(command, Command)}


@pytest.mark.parametrize("name", PARSED)
def test_a_help_has_each_option_with_its_default_in_a_group_and_advanced_ones_last(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as status:
        program.main([name, "--help"])
    assert status.value.code == 0
    text = capsys.readouterr().out
    headings = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    own = [*PARSED[name].groups, "help"]
    assert headings[: len(own)] == own
    assert ADVANCED not in own or own.index(ADVANCED) == len(own) - 2
    options = PARSED[name].every_option
    for option in options:
        assert f"  {option.name}" in text or f"  {option.value_name}" in text
        assert bool(option.default) != option.required
    said = " ".join(text.split())
    assert said.count("(default: ") == sum(bool(option.default) for option in options)


@pytest.mark.parametrize("name", PARSED)
def test_the_options_of_a_command_are_the_fields_of_its_dataclass(name: str) -> None:
    options = PARSED[name].every_option
    keys = {option.key for option in options} | {option.further for option in options if option.further}
    if name == "run":
        # Its file is read, and its attack and messages are made, before the dataclass is.
        keys -= {"config", "attack_arguments", "messages_arguments"}
    assert {field.name for field in dataclasses.fields(PARSED[name].options)} == keys
