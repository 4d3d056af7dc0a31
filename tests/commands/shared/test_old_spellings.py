"""A spelling of an earlier version is answered with the command in the present one."""

import pytest

from fedleak.commands import program
from fedleak.commands.shared.all_commands import all_commands
from fedleak.commands.shared.command import Command
from fedleak.commands.shared.old_spellings import check_spelling

COMMANDS = {name: command for name, command in all_commands().items() if isinstance(command, Command)}
FLAGS = [(name, option.name) for name, command in COMMANDS.items() for option in command.every_option if option.is_flag]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("audit --deltas runs/1/deltas", "audit runs/1/deltas"),
        ("audit --deltas=d --gate auc=0.6", "audit d --gate auc=0.6"),
        ("audit --gate auc=0.6 --deltas d", "audit d --gate auc=0.6"),
        ("audit d --attacks a.B,c", "audit d --also a.B,c"),
        ("audit --deltas d --attacks a --attacks b", "audit d --also a --also b"),
        ("audit d --attacks=a", "audit d --also=a"),
        ("audit --deltas", "audit DIR"),
        ("audit --deltas 'my folder'", "audit 'my folder'"),
        ("audit d --slow false --persons true", "audit d --persons"),
        ("run --attack direction --deltas d", "run d --attack direction"),
        ("watch d --gate auc=0.6 --attacks a", "watch d --gate auc=0.6 --also a"),
        ("reproduce t --attacks matched-filter", "reproduce t --also matched-filter"),
        ("convert --manifest m.yaml --out d", "convert m.yaml --out d"),
        ("convert --deltas d --out copy", "publish d --out copy"),
        *((f"{name} {flag} true", f"{name} {flag}") for name, flag in FLAGS),
        *((f"{name} {flag}=true", f"{name} {flag}") for name, flag in FLAGS),
        *((f"{name} {flag} false", name) for name, flag in FLAGS),
    ],
)
def test_the_answer_is_the_new_command(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = old.replace("'my folder'", "my_folder").split()
    assert program.main([word.replace("my_folder", "my folder") for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedleak: expected options as they are spelt now; found --")
    assert line.endswith(f"Type: fedleak {new}")


@pytest.mark.parametrize(
    "now", ["audit d --only a --also b", "audit d --slow", "list --all", "convert m.yaml --out d", "run d --history"]
)
def test_a_present_spelling_is_not_answered(now: str) -> None:
    name, *words = now.split()
    check_spelling(name, COMMANDS[name], words)
