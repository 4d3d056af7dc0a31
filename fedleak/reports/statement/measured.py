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
from fedleak.reports.statement.content import Baseline, ByMetric, Exposed, Measured, Rates
from fedleak.reports.statement.everyday import answer_in_a_word, everyday
from fedleak.reports.statement.numbers import (
    Names,
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
    asked = {one.estimates.question() for one in attacks if one.estimates.truth}
    of_content = {one.estimates.question() for one in attacks if set(one.estimates.truth) - NO_DATA}
    cells = Cells(results)
    found = []
    for answer in leading(answers(results)):
        row = answer.row
        if row is None or answer.question not in asked or answer.family in ("", DECLARED_PRIVACY):
            continue
        if not metric(answer.metric).leak:
            continue
        baseline = None if answer.baseline is None else _baseline(answer.baseline, evaluation, seed)
        made = _measured(row, len(answer.attacks), baseline, evaluation, system, seed)
        made["adds"] = bits_sentence(answer.bits)
        made["names"] = names_of(row, attacks, evaluation)
        made["not_run"] = _not_run(row, attacks, evaluation)
        made["others"] = _by_other_metrics(answer, cells)
        made["answer"] = answer_in_a_word(answer, summed=summed)
        made["everyday"] = everyday(made, _READS_UPDATES if summed == 1 else _READS_SUMS)
        made["sentence"] = _sentence(made)
        found.append((answer.question in of_content, answer.gain or 0.0, Measured(**made)))
    return [question for *_, question in sorted(found, key=lambda entry: (not entry[0], -entry[1]))]


def _by_other_metrics(answer: Answer, cells: Cells) -> list[ByMetric]:
    """The same question by the other metrics of a leak, each by the attack that is best by it."""
    of_question = [
        row
        for row in cells.rows
        if row["role"] in ATTACKS
        and (row["question"], row["family"]) == (answer.question, answer.family)
        and row["metric"] != answer.metric
        and metric(row["metric"]).leak
    ]
    by_metric: dict[str, list[Row]] = {}
    for row in of_question:
        by_metric.setdefault(row["metric"], []).append(row)
    return [_by_metric(max(rows, key=cells.rank), cells) for rows in by_metric.values()]


def _not_run(row: Row, attacks: Sequence[Attack], evaluation: Evaluation) -> list[str]:
    """Names of the attacks on a question, of one family, that gave no result."""
    own = [one for one in attacks if not one.baseline and one.family == row["family"]]
    own = [one for one in own if one.estimates.question() == row["question"]]
    reasons = evaluation.missing.keys() | evaluation.unrelated.keys()
    return [one.name for one in own if {one.name, f"{one.family}/{one.name}"} & reasons]


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
    row: Row, tried: int, baseline: Baseline | None, evaluation: Evaluation, system: System, seed: int
) -> dict[str, Any]:
    """Fields of `Measured` without the sentence."""
    entry, own = metric(row["metric"]), rows_of(evaluation.scores, row)
    worst, people = worst_tenth(own, seed=seed), [int(person) for person in worst_clients(own).index]
    direction = "lower" if entry.lower_is_better else "higher"
    return {
        **{"question": row["family"], "estimate": row["question"], "infers": row["tells"]},
        **{"attack": row["attack"], "attacks": tried},
        **{"sensitivity": system.of("sensitivity", row["family"]), "setting": setting_of(row)},
        **{"sees": row["sees"], "knows": row["knows"], "metric": row["metric"], "meaning": entry.meaning},
        **{"direction": f"{direction} means that more is inferred", "result": of_row(row)},
        **{"n": int(row["n"]), "seeds": int(row["seeds"]), "guessing": entry.guessing, "certainty": entry.certainty},
        "certain": int(np.isclose(crossed(own).mean(axis=1), entry.certainty, atol=1e-9).sum()),
        "baseline": baseline,
        **{
            "worst_tenth": None if worst is None else of_range(worst),
            "worst_clients": len(people),
            "worst_people": people,
        },
        "most_exposed": _most_exposed(evaluation, row["attack"]),
        "rates": _rates(row, evaluation, system.of("acceptable_fpr", row["family"])),
    }


def names_of(row: Row, attacks: Sequence[Attack], evaluation: Evaluation) -> Names:
    """Names of the attack of a row; the letter is that of an active adversary if the server deviated."""
    info = evaluation.lines.get(row["attack"], AttackInfo())
    of_family = {attack.name: attack for attack in attacks if attack.family == row["family"]}
    attack = of_family.get(info.name)
    found = TAXONOMY.get(row["family"], NONE_FITS) if attack is None else attack.public_names()
    if info.active:
        found = replace(found, letter=MANIPULATING.get(found.letter or ""))
    return of_taxonomy(found)


def _most_exposed(evaluation: Evaluation, attack: str) -> list[Exposed]:
    """The records that an attack on candidates lists in its own table."""
    table = evaluation.details.get(attack, pd.DataFrame())
    if PLACE not in table:
        return []
    rows = records(table[table[PLACE].notna()])
    return [Exposed(client=int(r["client"]), place=int(r[PLACE]), others_above=int(r["others above"])) for r in rows]


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
    ranked = evaluation.candidates.get(row["attack"])
    point = None if ranked is None or acceptable is None else operating_point(ranked, acceptable)
    if point is None:
        return None
    counts = {name: getattr(point, name) for name in ("asks", "candidates", "positives", "clients")}
    return Rates(acceptable_fpr=point.allowed, fpr=of_range(point.fpr), tpr=of_range(point.tpr), **counts)


def _sentence(made: Mapping[str, Any]) -> str:
    """The attack's result with its metric and direction."""
    result, baseline, rates = made["result"], made["baseline"], made["rates"]
    against = [] if made["guessing"] is None else [f"guessing gives {made['guessing']:g}"]
    if baseline is not None:
        without = "a baseline" if baseline.reads_update else "without the update"
        against.append(f"{baseline.attack}, {without}, gives {shown(baseline.result.value)}")
    reached = f"The attack {made['attack']} reaches {made['metric']} {with_interval(result)} over {made['n']} clients"
    if made["attacks"] > 1:
        reached += f" (chosen among {made['attacks']} attacks by the same data)"
    parts = [
        reached + (f", where {' and '.join(against)}" if against else ""),
        f"{made['meaning'].rstrip('.')}; {made['direction']}" if made["meaning"] else made["direction"].capitalize(),
    ]
    if rates is not None:
        parts.append(
            f"At one threshold it names {percent(rates.tpr)} of the right answers and, wrongly, {percent(rates.fpr)} of"
            f" the others (acceptable: {in_percent(rates.acceptable_fpr)})"
        )
    return f"{made['adds']} {'. '.join(parts)}.".strip()
