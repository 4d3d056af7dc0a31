"""Options of ``fedleak`` become the arguments of the command's function."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from fedleak.attacks.ranking.codebook import CodebookAttack
from fedleak.attacks.recommendation.raifle import Raifle
from fedleak.commands import program
from fedleak.commands.audit import audit
from fedleak.commands.command_table import ADVANCED, COMMANDS, PASSED_ON
from fedleak.commands.list_attacks import list_attacks
from fedleak.commands.parser import parsed
from fedleak.commands.reproduce import reproduce
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
        (["--gate.auc=0.6", "--gate", "l1=1"], {"gate": ["l1=1", "auc=0.6"]}),
        (["--only", "a,b", "--only", "[c, d]"], {"only": ["a", "b", "c", "d"]}),
        (["--also", "a,b"], {"also": ["a", "b"]}),
        (["--format", "svg,tex"], {"format": ["svg", "tex"]}),
        (["--format=svg", "--format", "tex"], {"format": ["svg", "tex"]}),
        (["--format=[svg, tex]"], {"format": ["svg", "tex"]}),
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
    assert parsed(["audit", "d", *given]) == (audit, {"recording": "d", **expected})
    assert parsed(["audit", *given, "d"]) == (audit, {"recording": "d", **expected})


def test_options_of_a_table() -> None:
    words = ["--data.root", "d", "--set", "model.local.epochs=5", "--set", "data.root=null", "--dry-run", "--jobs", "2"]
    expected = {"root": "d", "set": {"model.local.epochs": 5, "data.root": None}, "dry_run": True, "jobs": 2}
    assert parsed(["reproduce", "t", *words, "--scale", "paper"]) == (
        reproduce,
        {"config": "t", "scale": "paper", **expected},
    )
    assert parsed(["list"]) == (list_attacks, {})


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
    _, arguments = parsed([*words, "--rounds", "[0, 2]", "--messages", '{"known_rounds": [0, 2]}', "--history"])
    assert arguments.pop("attack") == Raifle(max_iter=60, user="joint")
    selection = MessageSelection(known_rounds=(0, 2))
    assert arguments == {"recording": "d", "rounds": [0, 2], "messages": selection, "history": True}
    assert parsed([*words, "--messages.pairs", "anonymous"])[1]["messages"].pairs == "anonymous"


def test_command_line_comes_before_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "{attack: {class_path: fedleak.attacks.Raifle, init_args: {max_iter: 7, user: joint}}, recording: d, seed: 3}"
    )
    _, arguments = parsed(["run", "--config", str(config), "--seed", "4", "--attack.max_iter", "9"])
    assert arguments.pop("attack") == Raifle(max_iter=9, user="joint")
    assert (arguments["recording"], arguments["seed"]) == ("d", 4)
    _, arguments = parsed(["run", "--config", str(config), "--attack", "codebook"])
    assert arguments["attack"] == CodebookAttack()


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
            "max_iter=0: expected a number >0",
        ),
        (
            ["run", "d", "--attack", "recommendation/raifle", "--attack.max_iter", "x"],
            "max_iter='x'.*integer",
        ),
        (
            ["run", "d", "--attack", "recommendation/raifle", "--attack.user", "both"],
            "user='both'.*'fixed' or 'joint'",
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
    assert sorted(firsts) == sorted([*COMMANDS, *PASSED_ON])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_has_each_option_with_its_default_in_a_group_and_advanced_ones_last(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as status:
        program.main([name, "--help"])
    assert status.value.code == 0
    text = capsys.readouterr().out
    headings = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    own = [*COMMANDS[name].groups, "help"]
    assert headings[: len(own)] == own
    assert ADVANCED not in own or own.index(ADVANCED) == len(own) - 2
    for option in COMMANDS[name].options:
        assert f"  {option.name}" in text or f"  {option.parsing['metavar']}" in text
        assert bool(option.default) != option.required
    said = " ".join(text.split())
    assert said.count("(default: ") == sum(bool(option.default) for option in COMMANDS[name].options)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_are_the_arguments_of_its_function(name: str) -> None:
    function = getattr(importlib.import_module(f"fedleak.commands.{COMMANDS[name].function}"), COMMANDS[name].function)
    further = {f"{one.key}_arguments" for one in COMMANDS[name].options if one.name in ("--learner", "--to")}
    taken = {option.key for option in COMMANDS[name].options} - {"config" if name == "run" else ""}
    assert set(inspect.signature(function).parameters) == taken | further
