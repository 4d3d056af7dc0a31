"""Errors of jsonargparse become one line with the nearest known name, without a look at its messages' wording."""

import pytest

from fedleak.core.errors import InputError
from fedleak.training.lightning.train_parser import OneLineParser, first_cause, one_line


def parser_of(*options: str) -> OneLineParser:
    parser = OneLineParser(prog="train.py fit", exit_on_error=False)
    for option in options:
        parser.add_argument(f"--{option}", type=int)
    return parser


@pytest.mark.parametrize(
    ("message", "suggestion"),
    [
        ("Option 'lerning_rate' is not accepted", "Did you mean local.learning_rate?"),
        ("Group 'local' does not accept option 'lr'", "Did you mean local.learning_rate?"),
        ("unrecognized arguments: --lokal.learning_rate=3", "Did you mean local.learning_rate?"),
        ("Option 'zzz' is not accepted", ""),
        ("the file is missing", ""),
    ],
)
def test_name_is_suggested_only_where_one_is_near(message: str, suggestion: str) -> None:
    assert parser_of("local.learning_rate", "local.epochs", "hidden").near(message) == suggestion


def caught(*messages: str, cause: Exception | None = None) -> BaseException:
    """Error with the first message, of which the next one is the cause."""
    for message in reversed(messages):
        error = ValueError(message)
        error.__cause__ = cause
        cause = error
    assert cause is not None
    return cause


def test_error_is_its_first_cause_behind_the_headings() -> None:
    union = "Does not validate against any of the Union subtypes\nErrors:\n - more"
    error = caught(
        'key "model":\n  much more', union, "class 'a.FNCF':\n  much more", 'key "dim":\n x', "found x\nhere."
    )
    assert one_line(error) == 'key "model": class \'a.FNCF\': key "dim": found x here'
    assert str(first_cause(error)) == "found x\nhere."


def test_unknown_option_of_a_class_is_the_cause() -> None:
    unknown = InputError(expected="options that it takes", found="Option 'x'", way_out="Known: y.")
    assert parser_of().explained(caught('key "model":\n more', cause=unknown)) == (
        "key \"model\": Option 'x'",
        "Known: y.",
    )
