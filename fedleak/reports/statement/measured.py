"""What an audit measured, by question."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fedleak.attacks.record_membership.estimates import PLACE
from fedleak.core.attack import Attack
from fedleak.core.metric_table import judges, metric
from fedleak.core.taxonomy import MANIPULATING, NONE_FITS, TAXONOMY
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.paired_means import crossed
from fedleak.evaluation.risk import operating_point, worst_clients, worst_tenth
from fedleak.evaluation.scores import AttackInfo, records, rows_of, setting_columns, setting_of
from fedleak.reports.attack_descriptions import NO_DATA
from fedleak.reports.headline import added, best_baseline
from fedleak.reports.run import ATTACKS
from fedleak.reports.statement.content import Baseline, ByMetric, Exposed, Measured, Rates
from fedleak.reports.statement.everyday import answer, everyday, gain
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

    Of several metrics that judge attacks, the one counts by which the best attack goes furthest from guessing, or the
    best baseline, to certainty. What an attack infers without ground truth is no question. `summed` is the largest
    number of clients in one message.
    """
    scored = results[results["role"].isin(ATTACKS) & results["mean"].notna() & results["family"].notna()]
    scored = scored[(scored["family"] != DECLARED_PRIVACY) & scored["metric"].map(lambda name: metric(name).leak)]
    asked = {one.estimates.question() for one in attacks if one.estimates.truth}
    of_content = {one.estimates.question() for one in attacks if set(one.estimates.truth) - NO_DATA}
    scored = scored[scored["question"].isin(asked)]
    reading = reading_baselines(attacks)
    results = _with_blind_baselines(results, attacks, reading)
    blind = results[~results["attack"].isin(reading)]
    found = []
    for _, rows in scored.groupby("question", sort=False):
        leaks = {name: max(records(own), key=_inferred) for name, own in rows.groupby("metric", sort=False)}
        judging = [row for name, row in leaks.items() if judges(str(name), row["question"])] or list(leaks.values())[:1]
        best = max(judging, key=lambda row: gain(row, results))
        tried = rows[rows["metric"] == best["metric"]]["attack"].nunique()
        baseline = best_baseline(best, blind) or best_baseline(best, results)
        against = None if baseline is None else _baseline(baseline, reading, evaluation, seed)
        made = _measured(best, tried, against, evaluation, system, seed) | {"adds": added(best, results)}
        made["names"] = names_of(best, attacks, evaluation)
        made["not_run"] = _not_run(best, attacks, evaluation)
        made["others"] = [_by_metric(row, results) for row in leaks.values() if row is not best]
        reads = against is not None and against.reads_update
        made["answer"] = answer(best, results, reads=reads, summed=summed)
        made |= {
            "everyday": everyday(made, _READS_UPDATES if summed == 1 else _READS_SUMS),
            "sentence": _sentence(made),
        }
        found.append((made["estimate"] in of_content, gain(best, results), Measured(**made)))
    return [question for *_, question in sorted(found, key=lambda entry: (not entry[0], -entry[1]))]


def _with_blind_baselines(results: pd.DataFrame, attacks: Sequence[Attack], reading: Sequence[str]) -> pd.DataFrame:
    """Results with baselines of other questions about the same ground truth, where a question has only ones that read.

    A baseline that reads sums is worse than none where they are mostly noise: any attack would seem to infer something.
    """
    truth = {one.estimates.question(): {*one.estimates.truth} - {"clients"} for one in attacks}
    blind = results[(results["role"] == "baseline") & results["mean"].notna() & ~results["attack"].isin(reading)]
    settings, tables = setting_columns(results), [results]
    for question in results["question"].dropna().unique():
        if question in set(blind["question"]) or not truth.get(question):
            continue
        others = [other for other, names in truth.items() if names == truth[question]]
        for cell in records(results[results["question"] == question][settings].drop_duplicates()):
            tables.append(blind[blind["question"].isin(others)].assign(question=question, **cell))
    return pd.concat(tables, ignore_index=True)


def _inferred(row: Row) -> float:
    """A mean, larger for more leakage."""
    return -row["mean"] if metric(row["metric"]).lower_is_better else float(row["mean"])


def _not_run(row: Row, attacks: Sequence[Attack], evaluation: Evaluation) -> list[str]:
    """Names of the attacks on a question, of one family, that gave no result."""
    own = [one for one in attacks if not one.baseline and one.family == row["family"]]
    own = [one for one in own if one.estimates.question() == row["question"]]
    reasons = evaluation.missing.keys() | evaluation.unrelated.keys()
    return [one.name for one in own if {one.name, f"{one.family}/{one.name}"} & reasons]


def _by_metric(row: Row, results: pd.DataFrame) -> ByMetric:
    found = best_baseline(row, results)
    name, result = (None, None) if found is None else (found["attack"], of_row(found))
    meaning = metric(row["metric"]).meaning
    common: dict[str, Any] = {"metric": row["metric"], "meaning": meaning, "attack": row["attack"]}
    return ByMetric(**common, result=of_row(row), baseline=name, baseline_result=result)


def reading_baselines(attacks: Sequence[Attack]) -> list[str]:
    """Names of the baselines that read the update."""
    models = {one.name: one.threat_model for one in attacks if one.baseline and not one.of_others}
    blind = ("no update", "no message")
    return [name for name, model in models.items() if "deltas" in model.fields and model.sees not in blind]


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


def _baseline(row: Row, reading: Sequence[str], evaluation: Evaluation, seed: int) -> Baseline:
    worst, reads = worst_tenth(rows_of(evaluation.scores, row), seed=seed), row["attack"] in reading
    own = None if worst is None else of_range(worst)
    return Baseline(attack=row["attack"], reads_update=reads, result=of_row(row), worst_tenth=own)


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
