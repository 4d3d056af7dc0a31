"""What a controller declares about a system, for a statement: the fields of ``system.yaml``."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError
from fedleak.core.io.files import read_bounded
from fedleak.evaluation.limits import Limit, limits_of
from fedleak.reports.statement.numbers import Strict
from fedleak_recorder.nearest import did_you_mean

WAY_OUT = "docs/audit/system-example.yaml is an example, docs/audit/statement-reference.md explains every field."
Share = Annotated[float, Field(gt=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
RiskLevel = Literal["negligible", "limited", "significant", "maximum"]
_PLACEHOLDER = re.compile("<[^<>]+>")
_BY_QUESTION = ("prior", "acceptable_fpr", "sensitivity", "risks")


def _day(text: str) -> str:
    date.fromisoformat(text)
    return text


Date = Annotated[str, AfterValidator(_day)]


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


class Risk(Strict):
    """Risk of one question, as the controller judges it; the four levels are those of ISO/IEC 29134."""

    severity: RiskLevel
    """severity for the people, without the measures"""
    likelihood: RiskLevel
    """likelihood without the measures"""
    severity_after: RiskLevel | None = None
    """severity with the measures; null if it is open"""
    likelihood_after: RiskLevel | None = None
    """likelihood with the measures; null if it is open"""


class Measure(Strict):
    """Planned measure."""

    measure: Text
    """what will be done"""
    owner: Text
    """who answers for it"""
    due: Date
    """by when"""


class Officer(Strict):
    """Data-protection officer who was asked for advice."""

    name: Text
    """name, or office"""
    advice: Text
    """advice, and whether it was followed"""
    date: Date
    """when it was given"""


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
    clients: Annotated[int, Field(gt=0, le=10**10)] | None = None
    """optional: number of clients (devices or sites) that send updates; without it, each person has one"""
    joint_controllers: list[Text] | None = None
    """optional, as all below, where null means open: who decides jointly with the controller; [] for nobody"""
    processors: list[Text] | None = None
    """who processes the updates for the controller, e.g. a cloud provider; [] for nobody"""
    people_categories: list[Text] | None = None
    """categories of the people, e.g. customers, children, patients"""
    data_categories: list[Text] | None = None
    """categories of the data that clients train on"""
    special_categories: list[Text] | None = None
    """of these, what falls under Art. 9 or 10 GDPR, also if it can only be inferred; [] for none"""
    legal_basis: Text | None = None
    """legal basis, with the exception of Art. 9 where one is needed"""
    necessity: Text | None = None
    """why the purpose needs this processing, and less data would not do"""
    proportionality: Text | None = None
    """why it is in proportion to what it means for the people"""
    risks: dict[str, Risk] | None = None
    """risk by question, before and after the measures"""
    measures: list[Measure] | None = None
    """planned measures; [] for none"""
    officer: Officer | None = None
    """advice of the data-protection officer"""
    views_of_people: Text | None = None
    """what the people or their representatives say, or why they were not asked"""
    next_review: Date | None = None
    """when the audit and this assessment are repeated"""
    recording: Text | None = None
    """what becomes of the recording, which holds the true data of its clients: who can read it, when it is deleted"""
    recorded_clients: Text | None = None
    """how the recorded clients were chosen, and how far they stand for all"""
    transfers: list[Text] | None = None
    """transfers to third countries, with their safeguards; [] for none"""

    def of(self, field: Literal["prior", "acceptable_fpr", "sensitivity"], question: str) -> Any:
        """Value of a field for a question, None if none is declared for it."""
        value = getattr(self, field)
        if isinstance(value, dict):
            return value.get(question)
        return value


PARTS: dict[str, type[Strict]] = {"epsilon": Promise, "risks": Risk, "measures": Measure, "officer": Officer}
"""Fields of `System` that have fields of their own."""


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

    def with_limits(self, limits: Sequence[Limit] | None) -> list[Limit] | None:
        """Limits of the system and of the command line, None for none.

        Raises:
            InputError: the two differ for a metric.
        """
        limits_by_name = {limit.name: limit for limit in limits or ()}
        for limit in limits_of(self.system.limits):
            gate_limit = limits_by_name.setdefault(limit.name, limit)
            if gate_limit.bound != limit.bound:
                raise InputError(
                    expected=f"one limit of {limit.name}",
                    found=f"{gate_limit.bound:g} under --gate and {limit.bound:g} under limits of the system",
                    way_out="Omit one of the two.",
                )
        return [*limits_by_name.values()] or None


def _system(text: bytes, path: Path, questions: Collection[str]) -> System:
    try:
        content = load_yaml(text.decode("utf-8"), plain=True)
        if not isinstance(content, dict):
            raise ValueError("no `field: value` lines")
        placeholders = list(_placeholders(content))
        if placeholders:
            field, placeholder = placeholders[0]
            first = f"{placeholder!r} of {field}"
            if len(placeholders) > 1:
                first += f" and {len(placeholders) - 1} others"
            raise InputError(
                expected="values of your own in place of the placeholders of docs/audit/system-example.yaml",
                found=f"{first} in {path}",
                way_out="Replace them, or remove optional fields: the statement has these as open.",
            )
        system = System.model_validate(content)
    except ValidationError as error:
        raise _readable(error, path) from None
    except (ValueError, TypeError, AttributeError) as error:
        problem = " ".join(str(error).split())
        raise InputError(
            expected="a declaration of a system in YAML",
            found=f"{problem} in {path}",
            way_out=WAY_OUT,
        ) from None
    for field in _BY_QUESTION:
        value = getattr(system, field)
        if not isinstance(value, dict):
            continue
        for question in value:
            if question not in questions:
                raise InputError(
                    expected=f"a question under {field}, one of {', '.join(sorted(questions))}",
                    found=f"{question!r} in {path}",
                    way_out=did_you_mean(str(question), questions, WAY_OUT),
                )
    return system


def _placeholders(content: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Field and text of each placeholder, ``<what belongs here>``, at any depth and in place of a key."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _placeholders(key, field)
            yield from _placeholders(value, f"{field}.{key}" if field else str(key))
    elif isinstance(content, list):
        for value in content:
            yield from _placeholders(value, field)
    elif isinstance(content, str) and _PLACEHOLDER.fullmatch(content.strip()):
        yield field, content.strip()


def _readable(error: ValidationError, path: Path) -> InputError:
    """Error for the first field that is wrong; unknown fields first, since a misspelt one is missing too."""

    def order(problem: Mapping[str, Any]) -> tuple[bool, int]:
        # Of a field with alternative types, the problem furthest inside is that of the type that was meant.
        return problem["type"] != "extra_forbidden", -len(_keys(problem))

    problems = sorted(error.errors(), key=order)
    first = problems[0]
    keys = _keys(first)
    field = ".".join(keys)
    if first["type"] == "missing":
        return InputError(expected=f"the field {field}", found=f"none in {path}", way_out=WAY_OUT)
    if first["type"] == "extra_forbidden":
        schema = PARTS.get(keys[0], System) if len(keys) > 1 else System
        fields = [*schema.model_fields]
        return InputError(
            expected=f"a field among {', '.join(fields)}",
            found=f"{field!r} in {path}",
            way_out=did_you_mean(keys[-1], fields, WAY_OUT),
        )
    # Each alternative type has its own problem with the same field.
    expected = dict.fromkeys(_expected(problem) for problem in problems if _keys(problem) == keys)
    return InputError(
        expected=f"{field}: {' or '.join(expected)}",
        found=f"{first['input']!r:.80} in {path}",
        way_out=WAY_OUT,
    )


def _keys(problem: Mapping[str, Any]) -> list[str]:
    """Keys of the file that lead to a problem, without pydantic's names of alternative types."""
    types = re.compile(r"constrained-\w+|float|str|Promise|Risk|Measure|Officer|list\[.*|dict\[.*|\[key\]|function-.*")
    return [str(part) for part in problem["loc"] if not types.fullmatch(str(part))]


def _expected(problem: Mapping[str, Any]) -> str:
    """What a field should hold, in words; of a type without words here, pydantic's message."""
    list_of = "measures" if _keys(problem) == ["measures"] else "texts"
    words = {
        "string_type": "a text (in quotes)",
        "string_too_short": "a text that is not empty",
        "int_type": "a whole number",
        "float_type": "a number (1.0e-5, not 1e-5)",
        "dict_type": "one by question",
        "list_type": f"a list of {list_of}",
        "too_short": "at least one",
        "model_type": f"{_required(problem)}, or null",
        "finite_number": "a finite number",
        "value_error": "a date such as 2027-01-31",
    }
    if problem["type"] in words:
        return words[problem["type"]]
    message = str(problem["msg"]).removeprefix("Input should be ")
    if "than" in problem["type"]:
        return f"a number {message}"
    return message


def _required(problem: Mapping[str, Any]) -> str:
    """Required fields of a part of the file."""
    fields = PARTS.get(_keys(problem)[0], System).model_fields
    *names, last = (name for name, field in fields.items() if field.is_required())
    return f"{', '.join(names)} and {last}"
