"""A command is a file: nothing lists commands by hand."""

import itertools
from pathlib import Path

import pytest

from fedleak import commands
from fedleak.commands import program
from fedleak.commands.shared.all_commands import all_commands, command_named

FILE = """
from dataclasses import dataclass
from fedleak.commands.shared.command import Command, Options

@dataclass(frozen=True)
class GreetOptions(Options):
    pass

def greet(options: GreetOptions) -> int:
    print("hello")
    return 7

COMMAND = Command("greetings", 99, "greets", {}, GreetOptions, greet, loads="")
"""


def test_every_file_but_the_program_is_a_command() -> None:
    files = {path.stem for path in Path(str(commands.__file__)).parent.glob("*.py")}
    assert {*all_commands()} == files - {"__init__", "program"}
    assert command_named("program") is None


def test_places_are_distinct_and_headings_whole() -> None:
    headings = [command.heading for command in all_commands().values()]
    assert len({command.place for command in all_commands().values()}) == len(headings)
    assert sum(before != after for before, after in itertools.pairwise(headings)) == len({*headings}) - 1


def test_a_new_file_is_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "greet.py").write_text(FILE)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    assert program.main(["greet"]) == 7
    assert program.main(["--help"]) == 0
    assert "greetings:\n  greet      greets\n" in capsys.readouterr().out
