"""Words of a command line of ``fedleak train``: its subcommand, its configuration files, and its options."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError, require
from fedleak.core.moved import with_current_paths
from fedleak.core.places import CONFIGS
from fedleak.training.lightning.train_parser import SUBCOMMANDS
from fedleak_recorder.nearest import did_you_mean, nearest

_FILE = ("--config", "-c")
_HELP = ("--help", "-h")
_WITHOUT_VALUE = "--print_config"
"""Option that may stand alone."""
_COMMANDS = f"a command of fedleak train: {' or '.join(SUBCOMMANDS)}"
EXAMPLE = "configs/train/fncf_synthetic.yaml"
"""Configuration of a training that needs no download."""


@dataclass(frozen=True)
class Given:
    """Part of a training's configuration from one place.

    Attributes:
        content: values by key, nested as in a configuration file.
        origin: the place for messages, such as " in run.yaml"; empty for the command line.
    """

    content: Mapping[str, Any]
    origin: str = ""


@dataclass(frozen=True)
class CommandWords:
    """Words of a command line, read as far as a check needs them.

    Attributes:
        subcommand: ``fit`` or ``validate``; None where only help was asked for.
        files: configuration files, in order.
        parts: what they and the options give, in order.
        asks: whether the command line only asks for help or for the configuration.
    """

    subcommand: str | None
    files: list[Path]
    parts: list[Given]
    asks: bool


def read_words(words: Sequence[str]) -> CommandWords:
    """Reads the words after ``fedleak train``.

    Raises:
        InputError: there is no subcommand, an option lacks its value, or a configuration file cannot be read.
    """
    names = {word.partition("=")[0] for word in words}
    if any(name in _HELP or (name.startswith("--") and name.endswith(".help")) for name in names):
        return CommandWords(subcommand=None, files=[], parts=[], asks=True)
    subcommand = None
    files: list[Path] = []
    parts: list[Given] = []
    # Later files and options override earlier ones, so their order is kept.
    for name, value in _options(words):
        if name == "":
            subcommand = _subcommand(value) if subcommand is None else _no_option(value)
        elif name in _FILE:
            files.append(Path(value))
            parts.append(_read_file(Path(value), subcommand))
        elif name != _WITHOUT_VALUE:
            parts.append(Given(_nested(name.removeprefix("--"), value)))
    if subcommand is None:
        file = files[0] if files else EXAMPLE
        raise InputError(
            expected=_COMMANDS,
            found="none",
            way_out=f"E.g. fedleak train fit --config {file}",
        )
    return CommandWords(subcommand, files, parts, asks=_WITHOUT_VALUE in names)


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names of options, with dashes, and their values; a word that is neither has the empty name."""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals_sign, value = word.partition("=")
        if name not in _FILE and not name.startswith("--"):
            yield "", word
        elif equals_sign or name == _WITHOUT_VALUE:
            yield name, value
        else:
            has_value = waiting and not waiting[0].startswith("--")
            require(has_value, f"a value after {name}", "none", f"Write {name} VALUE.")
            yield name, waiting.pop(0)


def _subcommand(word: str) -> str:
    way_out = "`fedleak train --help` says what they do."
    if word == "test":
        way_out = "`fedleak train validate` measures a checkpoint on the data's test examples."
    require(word in SUBCOMMANDS, _COMMANDS, word, did_you_mean(word, SUBCOMMANDS, way_out))
    return word


def _no_option(word: str) -> str:
    way_out = "`fedleak train fit --help` lists the options."
    if Path(word).suffix in (".yaml", ".yml"):
        way_out = f"Write --config {word}."
    raise InputError(expected="options, which begin with two dashes", found=word, way_out=way_out)


def _nested(key: str, value: str) -> dict[str, Any]:
    """Mapping of one value below a dotted key."""
    nested: Any = value
    for name in reversed(key.split(".")):
        nested = {name: nested}
    return dict(nested)


def _read_file(path: Path, subcommand: str | None) -> Given:
    """Content of a configuration file; that of its subcommand where it stands before the subcommand."""
    if not path.is_file():
        raise _missing_file(path)
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(
            expected=f"a configuration in YAML, UTF-8, in {path}",
            found=str(error),
            way_out="Correct the file; YAML is indented by spaces.",
        ) from error
    if content is None:
        content = {}
    require(
        isinstance(content, dict),
        f"a mapping of keys to values in {path}",
        str(content)[:80],
        "Write `key: value` lines.",
    )
    is_table = {"train", "metrics"} <= {*content} or "over" in content
    way_out = f"It is a table: fedleak reproduce {path}."
    require(not is_table, f"a configuration of a training in {path}", ", ".join(map(str, content)), way_out)
    if subcommand is None:
        # Before the subcommand, a file has the options of each one below its name.
        of_subcommands = [content[name] for name in SUBCOMMANDS if isinstance(content.get(name), dict)]
        content = of_subcommands[0] if of_subcommands else {}
    return Given(with_current_paths(content), f" in {path}")


def _missing_file(path: Path) -> InputError:
    """Error for a configuration file that is not there, with those beside it or in configs/train of a near name."""
    # Of two files with one name, the one beside the missing file.
    files: dict[str, Path] = {}
    for folder in (CONFIGS / "train", path.parent):
        for file in sorted(folder.glob("*.yaml")):
            files[file.stem] = file
    near = [files[stem] for stem in nearest(path.stem, files)]
    way_out = f"An example is {EXAMPLE}."
    if near:
        way_out = f"Did you mean {' or '.join(map(_from_here, near))}?"
    problem = "a folder" if path.is_dir() else "no such file"
    return InputError(expected=f"a configuration file at {path}", found=problem, way_out=way_out)


def _from_here(file: Path) -> str:
    """Path of a file as one would write it in this folder."""
    short_path = Path("configs", "train", file.name)
    if short_path.is_file() and short_path.samefile(file):
        return str(short_path)
    return str(file)
