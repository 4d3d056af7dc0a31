"""Options of ``attack.py`` become the arguments of the command's function."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.attacks.ranking.codebook import CodebookAttack
from fedleak.attacks.recommendation.raifle import Raifle
from fedleak.commands.attack_parser import parsed
from fedleak.commands.audit import audit
from fedleak.commands.list_attacks import list_attacks
from fedleak.commands.reproduce import reproduce
from fedleak.core.errors import InputError
from fedleak.evaluation.message_selection import MessageSelection


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {}),
        (["--slow"], {"slow": True}),
        (["--slow", "--victims", "3"], {"slow": True, "victims": 3}),
        (["--slow", "false"], {"slow": False}),
        (["--persons=true"], {"persons": True}),
        (["--gate", "auc=0.6", "--gate", "l1=1"], {"gate": ["auc=0.6", "l1=1"]}),
        (["--gate.auc=0.6", "--gate", "l1=1"], {"gate": ["l1=1", "auc=0.6"]}),
        (["--attacks", "a,b", "--attacks", "[c, d]"], {"attacks": ["a", "b", "c", "d"]}),
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
    assert parsed(["audit", "--deltas", "d", *given]) == (audit, {"deltas": "d", **expected})


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
        "--deltas",
        "d",
        "--attack",
        "recommendation/raifle",
        "--attack.max_iter",
        "60",
        "--attack.user=joint",
    ]
    _, arguments = parsed([*words, "--rounds", "[0, 2]", "--messages", '{"known_rounds": [0, 2]}', "--history", "true"])
    assert arguments.pop("attack") == Raifle(max_iter=60, user="joint")
    selection = MessageSelection(known_rounds=(0, 2))
    assert arguments == {"deltas": "d", "rounds": [0, 2], "messages": selection, "history": True}
    assert parsed([*words, "--messages.pairs", "anonymous"])[1]["messages"].pairs == "anonymous"


def test_command_line_comes_before_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "{attack: {class_path: fedleak.attacks.Raifle, init_args: {max_iter: 7, user: joint}}, deltas: d, seed: 3}"
    )
    _, arguments = parsed(["run", "--config", str(config), "--seed", "4", "--attack.max_iter", "9"])
    assert arguments.pop("attack") == Raifle(max_iter=9, user="joint")
    assert (arguments["deltas"], arguments["seed"]) == ("d", 4)
    _, arguments = parsed(["run", "--config", str(config), "--attack", "codebook"])
    assert arguments["attack"] == CodebookAttack()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "COMMAND"),
        (["audt"], "audit"),
        (["audit"], "--deltas"),
        (["audit", "--deltas"], "--deltas"),
        (["audit", "--deltas", "d", "--victms", "3"], "Did you mean --victims?"),
        (["audit", "--deltas", "d", "--attack.user", "3"], "--attack.user"),
        (["audit", "--deltas", "d", "--seed.x", "3"], "--seed.x"),
        (["audit", "--deltas", "d", "--slow", "perhaps"], "perhaps"),
        (["audit", "--deltas", "d", "--format", "svg,png"], "svg, pdf, csv, tex"),
        (["audit", "--deltas", "d", "--seed", "x"], "--seed from 0"),
        (["audit", "d"], "found d"),
        (["reproduce", "t", "--scale", "large"], "large"),
        (["run", "--attack", "recommendation/raifle"], "--deltas"),
        (["run", "--deltas", "d", "--attack", "raifel"], "raifle"),
        (
            ["run", "--deltas", "d", "--attack", "recommendation/raifle", "--attack.max_itr", "3"],
            "Did you mean max_iter",
        ),
        (
            ["run", "--deltas", "d", "--attack", "recommendation/raifle", "--attack.max_iter", "0"],
            "max_iter=0: expected a number >0",
        ),
        (
            ["run", "--deltas", "d", "--attack", "recommendation/raifle", "--attack.max_iter", "x"],
            "max_iter='x'.*integer",
        ),
        (
            ["run", "--deltas", "d", "--attack", "recommendation/raifle", "--attack.user", "both"],
            "user='both'.*'fixed' or 'joint'",
        ),
        (["run", "--deltas", "d", "--attack", "recommendation/raifle", "--messages.pair", "3"], "pair"),
        (["run", "--deltas", "d", "--attack", "recommendation/raifle", "--rounds", "x"], "rounds"),
    ],
)
def test_mistake_is_one_line(words: list[str], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as error:
        parsed(words)
    assert "\n" not in str(error.value)
