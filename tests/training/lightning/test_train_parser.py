"""A library's error becomes the first line of its first cause, whole."""

import pytest

from fedleak.core.errors import InputError
from fedleak.training.lightning.train_parser import SUBCOMMANDS, one_line, overview


def caught(*messages: str, cause: Exception | None = None) -> BaseException:
    """Error with the first message, of which the next one is the cause."""
    for message in reversed(messages):
        error = ValueError(message)
        error.__cause__ = cause
        cause = error
    assert cause is not None
    return cause


def test_error_is_the_first_line_of_its_first_cause() -> None:
    error = caught('key "model":\n  much more', "class 'a.FNCF':\n  much more", "found x: 3.\nhere.")
    assert one_line(error) == "found x: 3"


def test_own_error_is_shown_with_what_was_expected() -> None:
    own = InputError(expected="a rate above 0", found="-1", way_out="Correct it.")
    assert one_line(caught('key "model":\n more', cause=own)) == "expected a rate above 0; found -1"


def test_an_error_without_a_message_has_the_name_of_its_class() -> None:
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_overview_names_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    overview().print_help()
    said = capsys.readouterr().out
    for name in SUBCOMMANDS:
        assert name in said
