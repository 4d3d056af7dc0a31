"""What a statement says of each question: the fields of a result, and of the clients exposed."""

from typing import Literal

from fedleak.reports.statement.numbers import Cell, Interval, Names, Strict

Answer = Literal["yes", "slightly", "not shown", "cannot be said"]
"""Whether a result is beyond guessing and the best baseline."""


class Baseline(Strict):
    """Best baseline of the same question; one that reads no update where there is one."""

    attack: str
    """its name"""
    reads_update: bool
    """whether it reads the update, because the question has no baseline without it"""
    result: Interval
    """its mean"""
    worst_tenth: Interval | None
    """its own worst tenth of clients"""


class Rates(Strict):
    """Rates at the threshold with the highest true-positive rate within the acceptable false-positive rate."""

    asks: str
    """question about one candidate"""
    acceptable_fpr: float
    """declared largest false-positive rate"""
    fpr: Interval
    """realised false-positive rate, at most the declared one"""
    tpr: Interval
    """true-positive rate"""
    candidates: int
    """number of candidates with a score"""
    positives: int
    """number of the true ones"""
    clients: int
    """number of clients they are about"""


class Exposed(Strict):
    """A record that a client holds and that the attack finds most easily."""

    client: int
    """number of the client"""
    place: int
    """its place among the candidates"""
    others_above: int
    """number of candidates that the client does not hold with at least its score"""


class ByMetric(Strict):
    """Largest leak by one metric."""

    metric: str
    """metric"""
    meaning: str
    """meaning of the metric"""
    attack: str
    """best attack by it"""
    result: Interval
    """its mean over clients"""
    baseline: str | None
    """best baseline by it, null if there is none"""
    baseline_result: Interval | None
    """its mean"""


class Measured(Strict):
    """Result of one question, by the metric by which most is inferred."""

    question: str
    """family of attacks"""
    estimate: str
    """type of the attacks' estimates, which tells questions of one family apart"""
    infers: str
    """what the server infers, in words"""
    sensitivity: str | None
    """declared sensitivity, null if none is declared for this question"""
    attack: str
    """best attack, chosen by its mean"""
    attacks: int
    """number of attacks that it is the best of"""
    setting: dict[str, Cell]
    """setting of the result, e.g. the data"""
    sees: str
    """what the attack sees"""
    knows: str
    """what it knows beforehand"""
    names: Names
    """names of the question and the threat model in public taxonomies"""
    metric: str
    """metric of the result"""
    meaning: str
    """meaning of the metric"""
    direction: Literal["higher means that more is inferred", "lower means that more is inferred"]
    """direction of the metric"""
    result: Interval
    """mean over clients"""
    n: int
    """number of clients"""
    seeds: int
    """number of trainings"""
    guessing: float | None
    """value of guessing, null if it depends on the data"""
    certainty: float
    """value of a perfect attack, the ceiling"""
    certain: int
    """number of clients for whom the attack is perfect in all rounds"""
    baseline: Baseline | None
    """best baseline, null if there is none"""
    answer: Answer
    """whether the result is beyond guessing and the baseline, not by luck, and by how much of the way to certainty"""
    worst_tenth: Interval | None
    """mean over the tenth of the clients, or five of few, about whom most is inferred"""
    worst_clients: int
    """number of these clients"""
    worst_people: list[int]
    """their numbers with `--persons`, the worst first; else none"""
    most_exposed: list[Exposed]
    """records that the attack finds most easily, empty where it does not ask about single records"""
    rates: Rates | None
    """rates at one threshold, null where the attack ranks nothing or no acceptable rate is declared"""
    adds: str
    """what the update adds to what is known without it, in bits; empty where it was not measured"""
    not_run: list[str]
    """attacks on the same question, of the same family, that gave no result"""
    others: list[ByMetric]
    """the same question by the other metrics of a leak"""
    everyday: str
    """the result in everyday words"""
    sentence: str
    """the result in a sentence, with the attack and the metric"""


class Combined(Strict):
    """What a measured and declared numbers give together."""

    question: str
    """family of attacks"""
    estimate: str
    """type of the attacks' estimates, as in `measured`"""
    clients: int
    """declared number of clients, that of people where each has one"""
    prior: float
    """declared share of them of whom the answer is yes"""
    true: float
    """prior * clients"""
    exposed: Interval
    """tpr * prior * clients: of these, those that the attack names"""
    wrong: Interval
    """fpr * (1 - prior) * clients: others that it names"""
    precision: Interval | None
    """share of the named for whom the answer is yes; null if nobody is named"""
    lift: Interval | None
    """precision / prior"""
    sources: list[str]
    """where the numbers are in this file"""
    sentence: str
    """the result in a sentence"""
