"""Types of the values of options: what a person typed, checked and converted."""

from collections.abc import Callable
from typing import Any, get_args

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import require

_LOGGERS = ("csv", "mlflow", "tensorboard", "wandb")
_LARGEST_SEED = 2**63 - 1
"""Of torch's generators: a signed integer of 64 bits."""


def words(text: str) -> list[str]:
    """Words of a list: ``a,b`` or ``[a, b]``."""
    return text.strip("[]").replace(",", " ").split()


def names(option: str) -> Callable[[str], list[str]]:
    """Type of a list of names that is not empty."""

    def listed(text: str) -> list[str]:
        require(words(text), f"{option} with the names of attacks", repr(text), "`fedleak list --all` has them.")
        return words(text)

    return listed


def seed(text: str) -> int:
    """A seed of the attacks' draws."""
    in_range = text.isdecimal() and int(text) <= _LARGEST_SEED
    require(in_range, "--seed from 0 to 2**63 - 1", text, "Set a seed in this range.")
    return int(text)


def at_least_one(option: str) -> Callable[[str], int]:
    """Type of a number of at least 1."""

    def number(text: str) -> int:
        in_range = text.isdecimal() and int(text) >= 1
        require(in_range, f"{option} of at least 1", text, "Set at least 1, or omit it.")
        return int(text)

    return number


def rounds(text: str) -> list[int]:
    """Numbers of rounds."""
    return [int(word) for word in words(text)]


def formats(text: str) -> list[str]:
    """Formats of further files."""
    from fedleak.reports.files import Format

    for word in words(text):
        require(word in get_args(Format), f"--format among {', '.join(get_args(Format))}", word, "Write one of them.")
    return words(text)


def value(text: str) -> Any:
    """Value of an option of a class, or of a key of a training, in YAML."""
    try:
        return load_yaml(text)
    except ValueError:
        return text


def override(text: str) -> tuple[str, Any]:
    """Key of a training with its value, from KEY=VALUE."""
    key, equals_sign, text_of_value = text.partition("=")
    require(equals_sign, "--set KEY=VALUE", text or "nothing", "E.g. --set model.local.epochs=5.")
    return key, value(text_of_value)


def from_zero(text: str) -> int:
    """Number of a round."""
    require(text.isdecimal(), "--until with the number of a round, from 0", text, "Set a number.")
    return int(text)


def minutes(text: str) -> float:
    """A time above 0."""
    digits = text.replace(".", "", 1)
    require(digits.isdecimal() and float(text) > 0, "--minutes with a number above 0", text, "Set a number, e.g. 5.")
    return float(text)


def loggers(text: str) -> list[str]:
    """Loggers of Lightning."""
    for word in words(text):
        require(word in _LOGGERS, f"--logger among {', '.join(_LOGGERS)}", word, "Write one of them.")
    return words(text)
