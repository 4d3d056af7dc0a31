"""Words of ``fedleak train`` are read into parts of a configuration, in order."""

from pathlib import Path

import pytest

from fedleak.core.errors import InputError
from fedleak.tables.command_words import Given, read_words


def test_files_and_options_are_parts_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: {class_path: modules.FNCF}\n", encoding="utf-8")
    words = read_words(["fit", "--model.local.lr", "-1", "--config", str(path), "--data=Digits"])
    assert words.subcommand == "fit"
    assert words.files == [path]
    assert not words.asks
    assert words.parts == [
        Given({"model": {"local": {"lr": "-1"}}}),
        # The path of a class of an older version is today's.
        Given({"model": {"class_path": "fedleak.modules.learners.fncf.FNCF"}}, f" in {path}"),
        Given({"data": "Digits"}),
    ]


def test_a_file_before_the_subcommand_holds_its_configuration_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("fit: {seed_everything: 3}\n", encoding="utf-8")
    assert read_words([f"--config={path}", "fit"]).parts == [Given({"seed_everything": 3}, f" in {path}")]


@pytest.mark.parametrize(
    "words", [["--help"], ["fit", "-h"], ["fit", "--model.help", "FNCF"], ["fit", "--data.help=X"]]
)
def test_who_asks_for_help_gives_nothing(words: list[str]) -> None:
    assert read_words(words).asks
    assert read_words(words).subcommand is None


def test_the_printed_configuration_may_be_incomplete() -> None:
    assert read_words(["validate", "--print_config"]).asks
    assert read_words(["validate", "--print_config=skip_null", "--data", "Digits"]).parts == [Given({"data": "Digits"})]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a command of fedleak train: fit or validate; found none"),
        (["fti"], "found fti. Did you mean fit?"),
        (["fit", "--model"], "a value after --model; found none"),
        (["fit", "--model", "--data"], "a value after --model; found none"),
        (["fit", "fit"], "options, which begin with two dashes; found fit"),
        (["fit", "--config", "decaf_digit"], "decaf_digits.yaml"),
    ],
)
def test_what_is_no_command_line_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_words(words)
    assert message in str(refused.value)


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.touch()
    assert read_words(["fit", "-c", str(path)]).parts == [Given({}, f" in {path}")]
