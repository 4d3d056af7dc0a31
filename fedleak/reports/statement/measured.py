"""What an audit measured, by question."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fedleak.core.attack import Attack
from fedleak.core.estimates import PLACE
from fedleak.core.metric_table import metric
from fedleak.core.taxonomy import MANIPULATING, NONE_FITS, TAXONOMY
from fedleak.evaluation.answers import Answer, answers, leading
from fedleak.evaluation.attack_descriptions import NO_DATA
from fedleak.evaluation.comparisons import Cells, Comparison
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.paired_means import crossed
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.risk import operating_point, worst_clients, worst_tenth
from fedleak.evaluation.scores import AttackInfo, records, rows_of, setting_of
from fedleak.reports.answer_words import bits_sentence
from fedleak.reports.statement.everyday import answer_in_a_word, everyday
from fedleak.reports.statement.measured_content import Baseline, ByMetric, Exposed, Measured, Rates
from fedleak.reports.statement.numbers import (
    Names,
    hundredths,
    in_percent,
    of_range,
    of_row,
    of_taxonomy,
    percent,
    shown,
    with_interval,
)
from fedleak.reports.statement.system_file import System

DECLARED_PRIVACY = "declared-privacy"
"""Family of the checks of declared noise, which are no question about a client."""


Row = dict[str, Any]
_READS_UPDATES = "Whoever can read a client's updates"
_READS_SUMS = "Whoever can read sums that contain a client's updates"


def measured(
    results: pd.DataFrame,
    evaluation: Evaluation,
    system: System,
    *,
    attacks: Sequence[Attack],
    seed: int,
    summed: int = 1,
) -> list[Measured]:
    """Best attack of each question, by the results and the evaluation behind them.

    Questions about the content of a client's data come before those about whose update it is, and of each kind the
    largest leak first.

    The best attack, its metric and what it is compared with are those of `fedleak.evaluation.answers`. What an attack
    infers without ground truth is no question. `summed` is the largest number of clients in one message.
    """
    asked_questions = {attack.estimates.question() for attack in attacks if attack.estimates.truth}
    # Questions whose truth is more than who sent an update.
    of_content = {attack.estimates.question() for attack in attacks if set(attack.estimates.truth) - NO_DATA}
    cells = Cells(results)
    questions: list[tuple[tuple[bool, float], Measured]] = []
    for answer in leading(answers(results)):
        row = answer.row
        if row is None or answer.question not in asked_questions or answer.family in ("", DECLARED_PRIVACY):
            continue
        # E.g. what an attack expects of itself is no leak.
        if not metric(answer.metric).leak:
            continue
        baseline = None if answer.baseline is None else _baseline(answer.baseline, evaluation, seed)
        fields = _measured(row, len(answer.attacks), baseline, evaluation, system, seed)
        fields["adds"] = bits_sentence(answer.bits)
        fields["names"] = names_of(row, attacks, evaluation)
        fields["not_run"] = _not_run(row, attacks, evaluation)
        fields["others"] = _by_other_metrics(answer, cells)
        fields["answer"] = answer_in_a_word(answer, summed=summed)
        # Sentences are about the fields above, so they come last.
        fields["everyday"] = everyday(fields, _READS_UPDATES if summed == 1 else _READS_SUMS)
        fields["everyday"] += certificate(row, evaluation.scores)
        fields["sentence"] = _sentence(fields)
        order = (answer.question not in of_content, -(answer.gain or 0.0))
        questions.append((order, Measured(**fields)))
    questions.sort(key=lambda ordered: ordered[0])
    return [question for _, question in questions]


def certificate(row: Row, scores: pd.DataFrame) -> str:
    """What the best attack is certain of before it is compared with the truth; empty without certificates.

    A certificate is no luck of few clients, so it is said whatever the comparison with baselines shows.
    """
    names = metric(row["metric"]).certified
    if names is None:
        return ""
    name_of_share, name_of_false, words = names
    shares = rows_of(scores, {**row, "metric": name_of_share})["value"].dropna()
    false = rows_of(scores, {**row, "metric": name_of_false})["value"].dropna()
    if not len(shares) or not len(false):
        return ""
    if float(shares.max()) == 0:
        return " It is certain of nothing by itself: only the comparison with the truth says how much is right."
    count = int(false.sum())
    wrong = f"{count} of these are wrong"
    if count == 0:
        wrong = "none of these is wrong"
    return f" By itself it is certain of {words.format(hundredths(float(shares.mean()) * 100))}, and {wrong}."


def _by_other_metrics(answer: Answer, cells: Cells) -> list[ByMetric]:
    """The same question by the other metrics of a leak, each by the attack that is best by it."""
    by_metric: dict[str, list[Row]] = {}
    for row in cells.rows:
        same_question = row["question"] == answer.question and row["family"] == answer.family
        other_leak = row["metric"] != answer.metric and metric(row["metric"]).leak
        if row["role"] in ATTACKS and same_question and other_leak:
            by_metric.setdefault(row["metric"], []).append(row)
    return [_by_metric(max(rows, key=cells.rank), cells) for rows in by_metric.values()]


def _not_run(row: Row, attacks: Sequence[Attack], evaluation: Evaluation) -> list[str]:
    """Names of the attacks on a question, of one family, that gave no result."""
    without_result = evaluation.missing.keys() | evaluation.unrelated.keys()
    names = []
    for attack in attacks:
        if attack.baseline or attack.family != row["family"] or attack.estimates.question() != row["question"]:
            continue
        if {attack.name, f"{attack.family}/{attack.name}"} & without_result:
            names.append(attack.name)
    return names


def _by_metric(row: Row, cells: Cells) -> ByMetric:
    baseline = cells.baseline(row)
    return ByMetric(
        metric=row["metric"],
        meaning=metric(row["metric"]).meaning,
        attack=row["attack"],
        result=of_row(row),
        baseline=None if baseline is None else baseline.name,
        baseline_result=None if baseline is None or baseline.row is None else of_row(baseline.row),
    )


def _measured(
    row: Row, attack_count: int, baseline: Baseline | None, evaluation: Evaluation, system: System, seed: int
) -> dict[str, Any]:
    """Fields of `Measured` without the sentence."""
    entry = metric(row["metric"])
    direction = "lower" if entry.lower_is_better else "higher"
    scores = rows_of(evaluation.scores, row)
    worst = worst_tenth(scores, seed=seed)
    worst_people = [int(person) for person in worst_clients(scores).index]
    # A client whose mean over rounds and trainings is that of a perfect attack, so each of them is.
    is_certain = np.isclose(crossed(scores).mean(axis=1), entry.certainty, atol=1e-9)
    return {
        "question": row["family"],
        "estimate": row["question"],
        "infers": row["tells"],
        "attack": row["attack"],
        "attacks": attack_count,
        "sensitivity": system.of("sensitivity", row["family"]),
        "setting": setting_of(row),
        "sees": row["sees"],
        "knows": row["knows"],
        "metric": row["metric"],
        "meaning": entry.meaning,
        "direction": f"{direction} means that more is inferred",
        "result": of_row(row),
        "n": int(row["n"]),
        "seeds": int(row["seeds"]),
        "guessing": entry.guessing,
        "certainty": entry.certainty,
        "certain": int(is_certain.sum()),
        "baseline": baseline,
        "worst_tenth": None if worst is None else of_range(worst),
        "worst_clients": len(worst_people),
        "worst_people": worst_people,
        "most_exposed": _most_exposed(evaluation, row["attack"]),
        "rates": _rates(row, evaluation, system.of("acceptable_fpr", row["family"])),
    }


def names_of(row: Row, attacks: Sequence[Attack], evaluation: Evaluation) -> Names:
    """Names of the attack of a row; the letter is that of an active adversary if the server deviated."""
    info = evaluation.lines.get(row["attack"], AttackInfo())
    of_family = {attack.name: attack for attack in attacks if attack.family == row["family"]}
    attack = of_family.get(info.name)
    taxonomy = TAXONOMY.get(row["family"], NONE_FITS) if attack is None else attack.public_names()
    if info.active:
        taxonomy = replace(taxonomy, letter=MANIPULATING.get(taxonomy.letter or ""))
    return of_taxonomy(taxonomy)


def _most_exposed(evaluation: Evaluation, attack: str) -> list[Exposed]:
    """The records that an attack on candidates lists in its own table."""
    table = evaluation.details.get(attack, pd.DataFrame())
    if PLACE not in table:
        return []
    return [
        Exposed(client=int(row["client"]), place=int(row[PLACE]), others_above=int(row["others above"]))
        for row in records(table[table[PLACE].notna()])
    ]


def _baseline(comparison: Comparison, evaluation: Evaluation, seed: int) -> Baseline:
    row = comparison.row
    assert row is not None  # a baseline is a line of the results
    worst = worst_tenth(rows_of(evaluation.scores, row), seed=seed)
    return Baseline(
        attack=comparison.name,
        reads_update=comparison.kind == "control",
        result=of_row(row),
        worst_tenth=None if worst is None else of_range(worst),
    )


def _rates(row: Row, evaluation: Evaluation, acceptable: float | None) -> Rates | None:
    """Rates at the best threshold within the acceptable false-positive rate; None for an attack without a ranking."""
    ranked = evaluation.candidates.get(row["attack"])
    if ranked is None or acceptable is None:
        return None
    point = operating_point(ranked, acceptable)
    if point is None:
        return None
    return Rates(
        asks=point.asks,
        acceptable_fpr=point.allowed,
        fpr=of_range(point.fpr),
        tpr=of_range(point.tpr),
        candidates=point.candidates,
        positives=point.positives,
        clients=point.clients,
    )


def _sentence(fields: Mapping[str, Any]) -> str:
    """The attack's result with its metric and direction."""
    # 1. The value with its interval, n, and what it is compared with.
    value = with_interval(fields["result"])
    reached = f"The attack {fields['attack']} reaches {fields['metric']} {value} over {fields['n']} clients"
    if fields["attacks"] > 1:
        reached += f" (chosen among {fields['attacks']} attacks by the same data)"
    against = []
    if fields["guessing"] is not None:
        against.append(f"guessing gives {fields['guessing']:g}")
    baseline = fields["baseline"]
    if baseline is not None:
        without = "a baseline" if baseline.reads_update else "without the update"
        against.append(f"{baseline.attack}, {without}, gives {shown(baseline.result.value)}")
    if against:
        reached += f", where {' and '.join(against)}"
    # 2. What the metric means, and which direction is more leakage.
    direction = fields["direction"].capitalize()
    if fields["meaning"]:
        direction = f"{fields['meaning'].rstrip('.')}; {fields['direction']}"
    sentences = [reached, direction]
    # 3. The rates at one threshold.
    rates = fields["rates"]
    if rates is not None:
        sentences.append(
            f"At one threshold it names {percent(rates.tpr)} of the right answers and, wrongly, {percent(rates.fpr)} of"
            f" the others (acceptable: {in_percent(rates.acceptable_fpr)})"
        )
    return f"{fields['adds']} {'. '.join(sentences)}.".strip()
