import html
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.tools.statement_page import schema
from fedleak.commands import program
from fedleak.core.io.files import sha256_of
from fedleak.evaluation.registry import REGISTRY
from fedleak.reports.statement.content import Statement
from fedleak.reports.statement.gaps import KNOWN_CLASSES
from fedleak.reports.statement.statement import verdict_in_words
from tests.places import FILLED_SYSTEM
from tests.toys import train


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    train(folder, rounds=2, users=24, items=120)
    return folder / "deltas"


@pytest.fixture(scope="module")
def folder(deltas: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit with the example, to which a limit and a promise are added."""
    out = tmp_path_factory.mktemp("audit")
    content = yaml.safe_load(FILLED_SYSTEM.read_text(encoding="utf-8"))
    content |= {"limits": {"auc": 0.6}, "epsilon": {"value": 8.0, "delta": 1e-5, "unit": "client"}}
    (out / "system.yaml").write_text(yaml.safe_dump(content))
    given = ["--statement", str(out / "system.yaml")]
    assert program.main(["audit", str(deltas), "--out", str(out), *given]) == 3  # the limit is exceeded
    return out


@pytest.fixture(scope="module")
def content(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    return made


def at(content: Any, source: str) -> Any:
    """What a source such as ``measured[0].rates.tpr`` names."""
    for key in source.replace("[", ".").replace("]", "").split("."):
        content = content[int(key) if key.isdigit() else key]
    return content


@pytest.mark.integration
def test_the_statement_is_of_its_schema(folder: Path, content: dict[str, Any]) -> None:
    text = (folder / "statement.json").read_text(encoding="utf-8")
    statement = Statement.model_validate_json(text)  # strict, and no other field
    assert json.loads(statement.model_dump_json()) == content
    assert content.keys() == json.loads(schema())["properties"].keys()
    try:
        from jsonschema import validate  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return
    validate(content, json.loads(schema()))


@pytest.mark.integration
def test_measured_numbers_are_those_of_the_results(folder: Path, content: dict[str, Any]) -> None:
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))["results"]
    (one,) = [own for own in content["measured"] if own["question"] == "recommendation"]
    row = next(row for row in results if (row["attack"], row["metric"]) == (one["attack"], "auc"))
    assert one["result"] == {"value": row["mean"], "low": row["ci95"][0], "high": row["ci95"][1]}
    assert one["n"] == row["n"] == 24
    assert one["baseline"]["attack"] == "popularity"
    assert not one["baseline"]["reads_update"]
    assert one["worst_tenth"]["value"] >= one["result"]["value"]
    assert (one["worst_clients"], one["worst_people"]) == (5, [])  # without --persons
    assert one["most_exposed"] == []
    assert one["names"]["letter"] == REGISTRY[f"recommendation/{one['attack']}"].threat_model.letter
    assert one["names"]["nist"] in ("NISTAML.032", "NISTAML.033")
    assert one["rates"]["fpr"]["value"] <= one["rates"]["acceptable_fpr"] == 0.01
    assert one["rates"]["tpr"]["value"] > 0.5
    assert one["answer"] == "yes"
    assert "which of the items it was shown the client interacted with: the best attack picks" in one["everyday"]
    assert "of 100 cases (95% interval for clients like these" in one["everyday"]
    assert "For the 5 clients about whom most is inferred: " in one["everyday"]
    assert "raifle" in one["not_run"]
    assert {other["metric"] for other in one["others"]} >= {"f1", "bits"}
    assert "higher means that more is inferred" in one["sentence"]
    assert f"chosen among {one['attacks']} attacks" in one["sentence"]


@pytest.mark.integration
def test_combined_numbers_follow_from_their_sources(content: dict[str, Any]) -> None:
    one = next(own for own in content["combined"] if own["question"] == "recommendation")
    tpr, fpr, clients, prior = (at(content, source) for source in one["sources"])
    share = prior["recommendation"]
    assert (clients, one["clients"], one["prior"]) == (12000, 12000, share)
    assert one["exposed"]["value"] == pytest.approx(tpr["value"] * share * clients)
    assert one["wrong"]["value"] == pytest.approx(fpr["value"] * (1 - share) * clients)
    named = tpr["value"] * share + fpr["value"] * (1 - share)
    assert one["precision"]["value"] == pytest.approx(tpr["value"] * share / named)
    assert one["lift"]["value"] == pytest.approx(tpr["value"] / named)


@pytest.mark.integration
def test_the_declaration_is_verbatim_and_hashed(folder: Path, content: dict[str, Any]) -> None:
    declared = yaml.safe_load((folder / "system.yaml").read_text(encoding="utf-8"))
    dated = ("epsilon", "measures", "officer", "next_review")  # safe_load makes dates of texts
    assert {name: content["declared"][name] for name in declared if name not in dated} == {
        name: value for name, value in declared.items() if name not in dated
    }
    assert content["declared"]["next_review"] == str(declared["next_review"])
    assert content["declared"]["epsilon"] == {**declared["epsilon"], "rounds": None}
    provenance = content["provenance"]
    assert provenance["system_sha256"] == sha256_of(folder / "system.yaml")
    assert provenance["results_sha256"] == sha256_of(folder / "results.json")
    assert len(provenance["recording_sha256"]) == 64


@pytest.mark.integration
def test_what_was_not_looked_at_is_said(content: dict[str, Any]) -> None:
    assert content["privacy"]["as_sent"] is None
    assert "was not looked at" in content["privacy"]["sentence"]
    missing = content["not_tried"]
    assert "raifle" in [name for one in missing["could_not_run"] for name in one["attacks"]]
    assert "composition" in {one["question"] for one in missing["other_questions"]}
    assert "reconstruction" in missing["without_attack"] or "reconstruction" in {
        o["question"] for o in missing["other_questions"]
    }
    names = {one["question"]: one["names"] for one in missing["not_measured"]}
    assert names["attributes"]["nist"] == "NISTAML.034"
    assert "manipulated-model" not in missing["without_attack"]  # this version has servers that send made models
    assert "manipulated-model" in names
    inapplicable = {one["question"]: one["reason"] for one in missing["does_not_apply"]}
    assert "sums-over-rounds" in inapplicable
    assert "no records but the items" in inapplicable["composition"]
    assert "Probing" in [one["deviation"] for one in missing["deviations"]]
    asked = {
        kind.estimates.question()
        for kind in REGISTRY.values()
        if not kind.baseline and kind.estimates.truth and kind.family != "declared-privacy"
    }
    count = len(asked | (set(KNOWN_CLASSES) - {kind.family for kind in REGISTRY.values()}))
    applying = len(content["measured"]) + len(missing["not_measured"])
    assert applying + len(missing["does_not_apply"]) == count
    assert f"Measured: {len(content['measured'])} of {applying} questions that can be asked" in content["summary"][-1]
    assert f"({len(missing['does_not_apply'])} others do not apply to it)" in content["summary"][-1]
    assert any("never a proof of anonymity" in one for one in content["limits"])
    assert "generated" in content["generated"]


@pytest.mark.integration
def test_the_page_starts_with_five_sentences_and_a_row_for_every_question(
    folder: Path, content: dict[str, Any]
) -> None:
    page = html.unescape((folder / "statement.html").read_text(encoding="utf-8"))
    assert len(content["summary"]) == 5
    first = page.partition('<div class="details">')[0]
    assert first.count("<li>") == 5
    assert first.count("<table") == 1
    limit = (
        "No attack may be better than one that picks the right one of a right and a wrong answer in 60 of 100 cases."
    )
    assert f"{limit} Not kept." in first
    rows = first.partition("<tbody>")[2].split("</tr>")[:-1]
    listed = [*content["measured"], *content["not_tried"]["not_measured"]]
    for one, row in zip(listed, rows[: len(listed)], strict=True):
        assert one["infers"] in row
        assert (one["everyday"] if "everyday" in one else f"Not measured: {one['summary']}") in row
    for one in content["not_tried"]["does_not_apply"]:
        (row,) = [row for row in rows[len(listed) :] if f"Does not apply: {one['reason']}" in row]
        assert one["infers"] in row
    assert "<script" not in page
    assert "http" not in page.replace('<meta http-equiv="Content-Security-Policy"', "")
    assert "None" not in page


@pytest.mark.integration
def test_the_page_ends_with_the_annex_and_the_terms(folder: Path, content: dict[str, Any]) -> None:
    page = html.unescape((folder / "statement.html").read_text(encoding="utf-8"))
    annex = page.partition("Annex for an impact assessment</h2>")[2]
    for topic in content["assessment"]["topics"]:
        assert f"<dt>{topic['topic']}</dt><dd>{topic['declared']}</dd>" in annex
    assert "severity significant, likelihood limited" in annex
    assert "secure aggregation of 100 clients (head of engineering, by 2027-03-31)" in annex
    for term, meaning in content["terms"].items():
        assert f"<dt>{term}</dt><dd>{meaning}</dd>" in annex


@pytest.mark.integration
def test_a_table_of_the_first_page_breaks_between_its_rows(folder: Path) -> None:
    """A table that must not break moves to the next sheet as a whole."""
    style = (
        (folder / "statement.html").read_text(encoding="utf-8").partition("@media print")[2].partition("</style>")[0]
    )
    kept_whole = [rule.partition("{")[0] for rule in style.split("}") if "break-inside: avoid" in rule]
    assert kept_whole
    assert not any("table" in selector for selector in kept_whole)


@pytest.mark.parametrize(
    ("limit", "verdict", "about", "said"),
    [
        (
            *("recommendation/bits", "ok", "clients"),
            "No attack that infers which of the items it was shown the client interacted with may be better than one"
            " that adds 0.2 bits to what is known of a client without the update. Kept.",
        ),
        (
            *("beyond-baseline", "undecided", "clients"),
            "No attack may infer more than the best baseline of its question by over 0.2, in its metric. Undecided:"
            " these clients do not show on which side of the limit clients like them are.",
        ),
        (
            *("top1", "undecided", "recording"),
            "No attack may be better than one that names the right user of 20 of 100 messages. Undecided: these clients"
            " do not show on which side of the limit all clients of the recording are.",
        ),
    ],
)
def test_a_limit_stands_in_words_and_says_whom_it_is_about(limit: str, verdict: str, about: str, said: str) -> None:
    entry = {"metric": limit, "limit": 0.2, "verdict": verdict, "message": "", "about": about}
    assert verdict_in_words(entry, [kind() for kind in REGISTRY.values()]).everyday == said


@pytest.mark.integration
def test_the_example_judges_nothing(deltas: Path, tmp_path: Path) -> None:
    given = ["--statement", str(FILLED_SYSTEM), "--victims", "6"]
    assert program.main(["audit", str(deltas), "--out", str(tmp_path), *given]) == 0
    content = json.loads((tmp_path / "statement.json").read_text(encoding="utf-8"))
    assert content["gate"] == []
    assert "Limits set by" not in (tmp_path / "statement.html").read_text(encoding="utf-8")


@pytest.mark.integration
def test_a_wrong_declaration_ends_before_any_attack(
    deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "system.yaml"
    path.write_text(FILLED_SYSTEM.read_text(encoding="utf-8").replace("people: 12000", "people: 0"))
    assert program.main(["audit", str(deltas), "--out", str(tmp_path), "--statement", str(path)]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("fedleak: expected people: a number greater than 0; found 0 in ")
    assert "\n" not in line
    assert [one.name for one in tmp_path.iterdir()] == ["system.yaml"]
