from pathlib import Path
from typing import Any

import pytest
import yaml

from fedleak.core.errors import InputError
from fedleak.evaluation.limits import limits_of
from fedleak.reports.statement.system_file import Declaration, System
from tests.places import FILLED_SYSTEM, ROOT

EXAMPLE = ROOT / "docs" / "audit" / "system-example.yaml"
QUESTIONS = ("recommendation", "composition")
RISK = {"severity": "limited", "likelihood": "maximum"}
PROMISE = {"value": 8.0, "delta": 1e-5, "unit": "client"}


def read(folder: Path, **changed: Any) -> Declaration:
    content = {**yaml.safe_load(FILLED_SYSTEM.read_text(encoding="utf-8")), **changed}
    path = folder / "system.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value != "absent"}))
    return Declaration.read(path, QUESTIONS)


def test_a_filled_file_is_read() -> None:
    system = Declaration.read(FILLED_SYSTEM, QUESTIONS).system
    assert (system.people, system.of("prior", "composition"), system.of("prior", "images")) == (12000, 0.1, None)
    assert system.of("acceptable_fpr", "images") == 0.01


def leaves(content: Any) -> list[Any]:
    """Values of a file below all its fields and lists."""
    if isinstance(content, dict):
        content = list(content.values())
    return [leaf for part in content for leaf in leaves(part)] if isinstance(content, list) else [content]


def test_every_value_of_the_example_is_a_placeholder() -> None:
    content = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert content.keys() == System.model_fields.keys()
    assert [value for value in leaves(content) if not (value.startswith("<") and value.endswith(">"))] == []


def test_the_example_is_refused_in_one_line_that_names_a_field() -> None:
    with pytest.raises(
        InputError, match=r"^expected .*own.*; found '<name of the system>' of system and \d+ others"
    ) as e:
        Declaration.read(EXAMPLE, QUESTIONS)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("recorded_clients", "<how the recorded clients were chosen>", "recorded_clients"),
        ("readers", ["operators", " <who else> "], "readers"),
        ("prior", {"composition": "<share>"}, "prior.composition"),
        ("risks", {"<question>": RISK}, "risks"),
        ("measures", [{"measure": "x", "owner": "<who answers for it>", "due": "2027-01-01"}], "measures.owner"),
        ("people", "<number of people>", "people"),
        ("next_review", "<date>", "next_review"),
    ],
)
def test_one_placeholder_that_is_left_is_refused_wherever_it_stands(
    field: str, value: Any, named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=rf"found '<[^>]*>' of {named} in "):
        read(tmp_path, **{field: value})


def test_the_guide_quotes_what_an_unchanged_example_is_refused_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (ROOT / "docs" / "audit" / "statement.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    Path("system.yaml").write_bytes(EXAMPLE.read_bytes())
    with pytest.raises(InputError) as refused:
        Declaration.read(Path("system.yaml"), QUESTIONS)
    assert f"fedleak: {refused.value}\n" in guide


def test_less_than_and_greater_than_within_a_text_are_no_placeholder(tmp_path: Path) -> None:
    assert read(tmp_path, purpose="values < 3 and > 1, mail to Ann <ann@a.example>").system.purpose.startswith("values")


@pytest.mark.parametrize("field", [name for name, one in System.model_fields.items() if one.is_required()])
def test_a_missing_field_is_named(field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"expected the field {field}; found none in .*audit/system-example.yaml"):
        read(tmp_path, **{field: "absent"})


@pytest.mark.parametrize(
    ("field", "value", "expected", "found"),
    [
        ("people", 0, "people: a number greater than 0", "0"),
        ("people", True, "people: a whole number", "True"),
        ("people", 1.5, "people: a whole number", "1.5"),
        ("people", 10**11, "people: a number less than or equal to 10000000000", "10{11}"),
        ("prior", 1.5, "prior: a number less than 1 or one by question", "1.5"),
        ("prior", {"composition": 2.0}, "prior.composition: a number less than 1", "2.0"),
        ("prior", {"compositon": 0.1}, "a question under prior, one of composition, .*", "'compositon' .*Did you mean"),
        ("acceptable_fpr", 0, "acceptable_fpr: a number greater than 0", "0"),
        ("version", 4.2, r"version: a text \(in quotes\)", "4.2"),
        ("purpose", "", "purpose: a text that is not empty", "''"),
        ("readers", [], "readers: at least one", ""),
        ("readers", "me", "readers: a list of texts", "'me'"),
        ("epsilon", 8, "epsilon: value, delta and unit, or null", "8"),
        ("epsilon", {**PROMISE, "value": -8.0}, "epsilon.value: a number greater than 0", "-8.0"),
        ("epsilon", {**PROMISE, "delta": "1e-5"}, r"epsilon.delta: a number \(1.0e-5, not 1e-5\)", "'1e-5'"),
        ("epsilon", {**PROMISE, "unit": "user"}, "epsilon.unit: 'client', 'person' or 'record'", "'user'"),
        ("epsilon", {**PROMISE, "round": 3}, "a field among value, delta, unit, rounds", "'epsilon.round' .*rounds"),
        ("limits", {"auc": float("nan")}, "limits.auc: a finite number", "nan"),
        ("clients", 0, "clients: a number greater than 0", "0"),
        ("next_review", "soon", "next_review: a date such as 2027-01-31", "'soon'"),
        (
            "measures",
            [{"measure": "x", "ownr": "y", "due": "2027-01-01"}],
            "a field among measure, owner, due",
            ".*ownr",
        ),
        (
            "risks",
            {"composition": {**RISK, "severity": "high"}},
            "risks.composition.severity: 'negligible', ",
            "'high'",
        ),
        (
            "risks",
            {"compositon": RISK},
            "a question under risks, one of composition, .*",
            "'compositon' .*Did you mean",
        ),
        ("officer", "me", "officer: name, advice and date, or null", "'me'"),
        ("poeple", 5, "a field among system, .*", "'poeple' in .*Did you mean people"),
    ],
)
def test_an_impossible_field_is_one_line(field: str, value: Any, expected: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^expected {expected}.*; found {found}") as error:
        read(tmp_path, **{field: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["- a\n", "a: b: c\n", "people: 1\npeople: 2\n", "", "{" * 5000])
def test_what_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "system.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"^expected a declaration of a system in YAML; found") as error:
        Declaration.read(path, QUESTIONS)
    assert "\n" not in str(error.value)


def test_what_the_annex_needs_is_optional(tmp_path: Path) -> None:
    optional = {name for name, one in System.model_fields.items() if not one.is_required()} - {"limits", "outside"}
    left_out = read(tmp_path, **dict.fromkeys(optional, "absent")).system
    assert {getattr(left_out, name) for name in optional} == {None}
    given = read(tmp_path, risks={"composition": RISK}, transfers=[], next_review="2027-01-31").system
    assert given.risks is not None
    assert given.risks["composition"].likelihood_after is None
    assert (given.transfers, given.next_review) == ([], "2027-01-31")


def test_limits_of_both_places_are_limits(tmp_path: Path) -> None:
    declared = read(tmp_path, limits={"auc": 0.6})
    assert declared.with_limits(None) == limits_of({"auc": 0.6})
    both = limits_of({"l1": 0.3, "auc": 0.6})
    assert declared.with_limits(both) == both
    assert read(tmp_path, limits={}).with_limits(None) is None
    with pytest.raises(InputError, match=r"expected one limit of auc; found 0.7 under --gate and 0.6 under limits"):
        declared.with_limits(limits_of({"auc": 0.7}))
