"""The annex of a statement for an impact assessment: what the controller declares, and what is open."""

from collections.abc import Sequence

from fedleak.reports.statement.content import Assessment, Measured, RiskRow, Topic
from fedleak.reports.statement.numbers import shown
from fedleak.reports.statement.system_file import Risk, System

OPEN = "open"
_NONE = "none, as declared"
_TOPICS = {
    "controller": "controller",
    "joint_controllers": "joint controllers",
    "processors": "processors",
    "purpose": "purpose",
    "legal_basis": "legal basis",
    "necessity": "necessity",
    "proportionality": "proportionality",
    "people": "number of people",
    "people_categories": "categories of people",
    "data_categories": "categories of data",
    "special_categories": "special categories (Art. 9 and 10 GDPR)",
    "readers": "who can read single updates",
    "retention": "retention of single updates",
    "transfers": "transfers to third countries",
    "recorded_clients": "choice of the recorded clients, and how far they stand for all",
    "recording": "what becomes of the recording, which holds the true data of its clients",
    "views_of_people": "views of the people or their representatives",
    "next_review": "next review",
}
"""Topics of the annex by the field of system.yaml that holds them."""


def assessment(system: System, questions: Sequence[Measured]) -> Assessment:
    """The annex of a system; nothing in it that is not declared or measured."""
    declared = system.risks or {}
    others = [name for name in declared if name not in {one.question for one in questions}]
    officer = system.officer
    return Assessment(
        topics=[Topic(topic=topic, declared=_text(getattr(system, field))) for field, topic in _TOPICS.items()],
        risks=[
            *(_row(one.infers, one.everyday, declared.get(one.question)) for one in questions),
            *(_row(name, "Not measured.", declared[name]) for name in others),
        ],
        measures=[OPEN]
        if system.measures is None
        else [f"{one.measure} ({one.owner}, by {one.due})" for one in system.measures] or [_NONE],
        advice=OPEN if officer is None else f"{officer.advice} ({officer.name}, {officer.date})",
    )


def _text(value: str | int | list[str] | None) -> str:
    if value is None:
        return OPEN
    if isinstance(value, list):
        return "; ".join(value) or _NONE
    return shown(value, whole=True) if isinstance(value, int) else value


def _row(infers: str, found: str, risk: Risk | None) -> RiskRow:
    def level(severity: str | None, likelihood: str | None) -> str:
        return f"severity {severity or OPEN}, likelihood {likelihood or OPEN}"

    if risk is None:
        return RiskRow(infers=infers, measured=found, before=OPEN, after=OPEN)
    return RiskRow(
        infers=infers,
        measured=found,
        before=level(risk.severity, risk.likelihood),
        after=level(risk.severity_after, risk.likelihood_after),
    )
