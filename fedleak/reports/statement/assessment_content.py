"""What the annex of a statement holds for an impact assessment: its fields."""

from fedleak.reports.statement.numbers import Strict


class Topic(Strict):
    """Topic of an impact assessment."""

    topic: str
    """its name"""
    declared: str
    """what the controller declares; `open` if nothing"""


class RiskRow(Strict):
    """Risk of one question: what was measured, and how the controller judges it."""

    infers: str
    """what the server infers, in words"""
    measured: str
    """what was measured, in everyday words; that it was not measured otherwise"""
    before: str
    """severity and likelihood without the measures; `open` if not declared"""
    after: str
    """severity and likelihood with the measures; `open` if not declared"""


class Assessment(Strict):
    """What an impact assessment needs, as far as the controller declares it."""

    topics: list[Topic]
    """topics, from roles to the next review"""
    risks: list[RiskRow]
    """risks of the measured questions, and of others of which the controller declares one"""
    measures: list[str]
    """planned measures with owner and date"""
    advice: str
    """advice of the data-protection officer, who and when; `open` if none is declared"""
