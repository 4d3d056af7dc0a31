"""What a statement says that an audit did not try: the fields of its gaps."""

from fedleak.reports.statement.numbers import Names, Strict


class NotMeasured(Strict):
    """A question without a result."""

    question: str
    """families of the attacks on it, or the class of attack"""
    infers: str
    """what would be inferred, in words"""
    reasons: list[str]
    """why it was not measured: the most frequent reason of the attacks of each family"""
    summary: str
    """why the attack that lacks least did not measure it, in plain words"""
    names: Names
    """names in public taxonomies, with the letters of its attacks"""


class DoesNotApply(Strict):
    """A question that cannot be asked of the recorded system."""

    question: str
    """families of the attacks on it, or the class of attack"""
    infers: str
    """what would be inferred, in words"""
    reason: str
    """why it does not apply"""


class NotRun(Strict):
    """Attacks that could not run for one reason."""

    question: str
    """family of the attacks"""
    attacks: list[str]
    """their names"""
    reason: str
    """what they lacked"""


class OtherServer(Strict):
    """What a server may do besides averaging, and the recording does not declare."""

    deviation: str
    """class in the package server"""
    does: str
    """what the server does"""
    letter: str | None
    """threat model, A to H, of the USENIX Security 2025 systematisation"""


class NotTried(Strict):
    """What this audit did not try."""

    not_measured: list[NotMeasured]
    """every question that applies and has no result"""
    could_not_run: list[NotRun]
    """attacks on the measured questions that could not run"""
    other_questions: list[NotRun]
    """attacks on other questions, none of which the recording fits"""
    without_attack: dict[str, str]
    """known classes of attack of which this version has none"""
    does_not_apply: list[DoesNotApply]
    """questions that cannot be asked of the recorded system"""
    deviations: list[OtherServer]
    """what a server may do besides averaging, and the recording does not declare"""
