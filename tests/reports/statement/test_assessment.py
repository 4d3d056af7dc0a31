from pathlib import Path

from fedleak.reports.statement.assessment import OPEN, assessment
from fedleak.reports.statement.assessment_content import Assessment
from fedleak.reports.statement.system_file import Declaration
from tests.places import FILLED_SYSTEM, ROOT
from tests.wording import lacking

QUESTIONS = ("recommendation", "composition", "reconstruction", "sums-over-rounds")


def made(path: Path) -> Assessment:
    return assessment(Declaration.read(path, QUESTIONS).system, [])


def test_what_is_not_declared_is_open() -> None:
    found = made(ROOT / "docs" / "samples" / "plain-updates.system.yaml")
    declared = {one.topic: one.declared for one in found.topics}
    assert declared["legal basis"] == "consent"
    assert declared["necessity"] == declared["next review"] == declared["transfers to third countries"] == OPEN
    assert found.advice == OPEN
    assert [(one.infers, one.before, one.after) for one in found.risks] == [
        (name, f"severity {severity}, likelihood maximum", f"severity {OPEN}, likelihood {OPEN}")
        for name, severity in (("composition", "limited"), ("reconstruction", "significant"))
    ]
    assert {one.measured for one in found.risks} == {"Not measured."}
    (measure,) = found.measures
    assert not lacking(measure, "local privacy", "secure aggregation", "head of the app team", "2027-03-31")


def test_a_whole_declaration_leaves_nothing_open() -> None:
    found = made(ROOT / "docs" / "samples" / "noise-and-sums.system.yaml")
    assert OPEN not in {one.declared for one in found.topics} | {one.after for one in found.risks} | {found.advice}
    assert {one.topic: one.declared for one in found.topics}["joint controllers"] == "none, as declared"


def test_the_example_declares_every_topic() -> None:
    assert OPEN not in {one.declared for one in made(FILLED_SYSTEM).topics}
