"""The annex of a statement for an impact assessment: what the controller declares, and what is open."""

from collections.abc import Sequence

from fedleak.reports.statement.assessment_content import Assessment, RiskRow, Topic
from fedleak.reports.statement.measured_content import Measured
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
    # Risks of the measured questions first, then those that the controller declares of others.
    risks = [_row(question.infers, question.everyday, declared.get(question.question)) for question in questions]
    measured = {question.question for question in questions}
    for name, risk in declared.items():
        if name not in measured:
            risks.append(_row(name, "Not measured.", risk))
    advice = OPEN
    if system.officer is not None:
        advice = f"{system.officer.advice} ({system.officer.name}, {system.officer.date})"
    return Assessment(
        topics=[Topic(topic=topic, declared=_text(getattr(system, field))) for field, topic in _TOPICS.items()],
        risks=risks,
        measures=_measures(system),
        advice=advice,
    )


def _measures(system: System) -> list[str]:
    """Planned measures with owner and date; null in the declaration is open, an empty list says that there are none."""
    if system.measures is None:
        return [OPEN]
    if not system.measures:
        return [_NONE]
    return [f"{planned.measure} ({planned.owner}, by {planned.due})" for planned in system.measures]


def _text(value: str | int | list[str] | None) -> str:
    if value is None:
        return OPEN
    if isinstance(value, list):
        return "; ".join(value) or _NONE
    if isinstance(value, int):
        return shown(value, whole=True)
    return value


def _row(infers: str, measured: str, risk: Risk | None) -> RiskRow:
    def level(severity: str | None, likelihood: str | None) -> str:
        return f"severity {severity or OPEN}, likelihood {likelihood or OPEN}"

    if risk is None:
        return RiskRow(infers=infers, measured=measured, before=OPEN, after=OPEN)
    return RiskRow(
        infers=infers,
        measured=measured,
        before=level(risk.severity, risk.likelihood),
        after=level(risk.severity_after, risk.likelihood_after),
    )
