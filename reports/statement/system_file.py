"""What a controller declares about a system, for a statement: the fields of ``system.yaml``."""

import difflib
import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from datamodules.io.files import read_bounded
from protocol.errors import InputError
from recordings.dump_manifest import PlainLoader
from reports.statement.numbers import Strict

WAY_OUT = "docs/system-example.yaml is an example, docs/statement.md explains every field."
Share = Annotated[float, Field(gt=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]


class Promise(Strict):
    """Differential privacy that a controller declares."""

    value: Annotated[float, Field(gt=0)]
    """epsilon"""
    delta: Annotated[float, Field(ge=0, lt=1)]
    """delta; 0 for pure differential privacy"""
    unit: Literal["client", "person", "record"]
    """whose data differ between neighbouring data sets"""
    rounds: Annotated[int, Field(gt=0)] | None = None
    """number of rounds that the budget covers; null for the whole training"""


class System(Strict):
    """Declaration of a controller: the content of ``system.yaml``."""

    system: Text
    """name of the system"""
    version: Text
    """its version, in quotes"""
    controller: Text
    """who answers for it, and how to reach them"""
    purpose: Text
    """what the data are processed for"""
    people: Annotated[int, Field(gt=0, le=10**10)]
    """number of people whose clients send updates"""
    prior: Share | dict[str, Share]
    """share of them of whom the answer to a question is yes; one number, or one by question"""
    acceptable_fpr: Share | dict[str, Share]
    """largest share of the others whom an attack may name wrongly; one number, or one by question"""
    sensitivity: Text | dict[str, Text]
    """how sensitive the answers are; a text, or one by question"""
    epsilon: Promise | None
    """declared differential privacy: value, delta, unit and, optionally, rounds; null if none is declared"""
    retention: Text
    """how long single updates are kept"""
    readers: Annotated[list[Text], Field(min_length=1)]
    """who can read single updates"""
    limits: dict[str, float] = Field(default={})
    """optional: limit by metric, as in --gate; without limits the statement judges nothing"""
    outside: list[Text] = Field(default=[])
    """optional: parts of the system that the audit does not cover"""

    def of(self, field: Literal["prior", "acceptable_fpr", "sensitivity"], question: str) -> Any:
        """Value of a field for a question, None if none is declared for it."""
        value = getattr(self, field)
        return value.get(question) if isinstance(value, dict) else value


@dataclass(frozen=True)
class Declaration:
    """A system as declared in a file, and the hash of the file."""

    system: System
    sha256: str

    @classmethod
    def read(cls, path: Path, questions: Collection[str]) -> "Declaration":
        """Reads ``system.yaml``; the keys of its fields by question are families of attacks.

        Raises:
            InputError: it is no YAML, or a field is missing, unknown or impossible; names the field.
        """
        text = read_bounded(path, way_out=WAY_OUT)
        return cls(_system(text, path, questions), hashlib.sha256(text).hexdigest())

    def with_limits(self, limits: Mapping[str, float] | None) -> dict[str, float] | None:
        """Limits of the system and of the command line, None for none.

        Raises:
            InputError: the two differ for a metric.
        """
        given = dict(limits or {})
        for name, limit in self.system.limits.items():
            if given.setdefault(name, limit) != limit:
                found = f"{given[name]:g} under --gate and {limit:g} under limits of the system"
                way_out = "Omit one of the two."
                raise InputError(expected=f"one limit of {name}", found=found, way_out=way_out)
        return given or None


def _system(text: bytes, path: Path, questions: Collection[str]) -> System:
    try:
        content = yaml.load(text.decode("utf-8"), PlainLoader)
        if not isinstance(content, dict):
            raise ValueError("no `field: value` lines")
        system = System.model_validate(content)
    except ValidationError as error:
        raise _readable(error, path) from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        found = f"{' '.join(str(error).split())} in {path}"
        raise InputError(expected="a declaration of a system in YAML", found=found, way_out=WAY_OUT) from None
    for field in ("prior", "acceptable_fpr", "sensitivity"):
        value = getattr(system, field)
        for question in value if isinstance(value, dict) else ():
            if question not in questions:
                expected = f"a question under {field}, one of {', '.join(sorted(questions))}"
                raise InputError(expected=expected, found=f"{question!r} in {path}", way_out=_near(question, questions))
    return system


def _readable(error: ValidationError, path: Path) -> InputError:
    """Error for the first field that is wrong; unknown fields first, since a misspelt one is missing too."""
    problems = sorted(error.errors(), key=lambda one: (one["type"] != "extra_forbidden", -len(_keys(one))))
    first = problems[0]
    field, above = ".".join(_keys(first)), _keys(first)[:-1]
    if first["type"] == "missing":
        return InputError(expected=f"the field {field}", found=f"none in {path}", way_out=WAY_OUT)
    if first["type"] == "extra_forbidden":
        known = [*(Promise if above else System).model_fields]
        way_out = _near(_keys(first)[-1], known)
        return InputError(expected=f"a field among {', '.join(known)}", found=f"{field!r} in {path}", way_out=way_out)
    wanted = " or ".join(dict.fromkeys(_wanted(one) for one in problems if _keys(one) == _keys(first)))
    return InputError(expected=f"{field}: {wanted}", found=f"{first['input']!r:.80} in {path}", way_out=WAY_OUT)


def _keys(problem: Mapping[str, Any]) -> list[str]:
    """Keys of the file that lead to a problem, without pydantic's names of alternative types."""
    types = re.compile(r"constrained-\w+|float|str|Promise|dict\[.*|\[key\]")
    return [str(part) for part in problem["loc"] if not types.fullmatch(str(part))]


def _wanted(problem: Mapping[str, Any]) -> str:
    kinds = {
        "string_type": "a text (in quotes)",
        "string_too_short": "a text that is not empty",
        "int_type": "a whole number",
        "float_type": "a number (1.0e-5, not 1e-5)",
        "dict_type": "one by question",
        "list_type": "a list of texts",
        "too_short": "at least one",
        "model_type": "value, delta and unit, or null",
        "finite_number": "a finite number",
    }
    number = "a number " if "than" in problem["type"] else ""
    return kinds.get(problem["type"]) or number + str(problem["msg"]).removeprefix("Input should be ")


def _near(name: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(name, known, n=2)
    return f"Did you mean {' or '.join(found)}?" if found else WAY_OUT
