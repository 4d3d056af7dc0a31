"""What a statement says of differential privacy: the fields of promises, bounds and the pyramid."""

from typing import Literal

from fedleak.reports.statement.numbers import Cell, Interval, Number, Strict
from fedleak.reports.statement.system_file import Promise


class Bound(Strict):
    """Lower bound of epsilon from canaries."""

    metric: str
    """epsilon-cp, epsilon-one-run, epsilon-one-run-fdp or epsilon-gdp, named for what it assumes"""
    value: Number
    """the bound, at 95% confidence"""
    n: int
    """number of canaries"""
    delta: float | None
    """delta of the bound, null if the audit does not say it"""
    rounds: int | None
    """number of rounds that it covers, null if the audit does not say it"""
    at_declared: Number
    """the same bound at the delta and the rounds of the declaration, null if it does not compare"""
    role: Literal["bound", "check"]
    """the bound, which is the only one to decide, or one of its checks: the largest of several 95% bounds is none"""
    refutes: bool | None
    """whether the bound exceeds the declared epsilon in its own terms; null for a check or if it does not compare"""
    note: str
    """why it does not compare, or what it means"""


class Sent(Strict):
    """Epsilon of the updates as they were sent."""

    mean: Interval
    """mean over clients"""
    worst: Number
    """largest of a client"""
    n: int
    """number of clients"""
    delta: float | None
    """delta of these, null if the audit does not say it"""
    messages: int | None
    """largest number of messages of a client that they cover, null if the audit does not say it"""
    at_declared: Number
    """largest of a client at the delta and the rounds of the declaration, null if it does not compare"""


class Level(Strict):
    """Line of the pyramid of NIST SP 800-226."""

    level: Literal["top", "middle", "bottom"]
    """level of the pyramid"""
    item: str
    """what a claim of differential privacy depends on"""
    status: Literal["checked", "declared", "not looked at"]
    """whether this audit checked it, the controller declares it, or neither"""
    note: str
    """what was found or declared"""


class Privacy(Strict):
    """Differential privacy: declared, as sent, and lower bounds."""

    declared: Promise | None
    """declaration of the controller"""
    recorded: Sent | None
    """epsilon by the clip and the noise that the recording declares, null if not looked at"""
    as_sent: Sent | None
    """epsilon of the noise that the release check found, null if not looked at"""
    lower_bounds: list[Bound]
    """lower bounds from canaries, the one that decides first; empty if not looked at"""
    findings: list[dict[str, Cell]]
    """rows of the release check"""
    sentence: str
    """the three in a sentence"""
    pyramid: list[Level]
    """a line for each item of the pyramid"""
