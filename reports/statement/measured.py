"""What an audit measured, by question."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from attacks.base import Attack
from attacks.record_membership.estimates import PLACE
from evaluation.failures import best_guess, is_near
from evaluation.risk import operating_point, worst_clients, worst_tenth
from evaluation.runner import Evaluation
from evaluation.scores import records, rows_of, setting_of
from evaluation.summary import crossed
from protocol.metric_table import METRICS, metric
from protocol.taxonomy import MANIPULATING, NONE_FITS, TAXONOMY
from reports.headline import added, best_baseline
from reports.run import ATTACKS
from reports.statement.numbers import Cell, Interval, Names, Strict, of_range, of_row, of_taxonomy, shown, with_interval
from reports.statement.system_file import System

DECLARED_PRIVACY = "declared-privacy"
"""Family of the checks of declared noise, which are no question about a client."""


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


class Measured(Strict):
    """Result of one question."""

    question: str
    """family of attacks"""
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
    beyond_baseline: bool
    """false if mean or interval hardly differ from guessing or the baseline"""
    worst_tenth: Interval | None
    """mean over the tenth of the clients about whom most is inferred"""
    worst_clients: int
    """number of these clients"""
    worst_people: list[int]
    """their numbers, the worst first"""
    most_exposed: list[Exposed]
    """records that the attack finds most easily, empty where it does not ask about single records"""
    rates: Rates | None
    """rates at one threshold, null where the attack ranks nothing or no acceptable rate is declared"""
    adds: str
    """what the update adds to what is known without it, in bits; empty where it was not measured"""
    sentence: str
    """the result in a sentence"""


Row = dict[str, Any]


def measured(
    results: pd.DataFrame, evaluation: Evaluation, system: System, *, attacks: Sequence[Attack], seed: int
) -> list[Measured]:
    """Best attack of each question, the largest leak first, by the results and the evaluation behind them."""
    scored = results[results["role"].isin(ATTACKS) & results["mean"].notna() & results["family"].notna()]
    scored = scored[(scored["family"] != DECLARED_PRIVACY) & scored["metric"].map(lambda name: metric(name).leak)]
    reading = [one.name for one in attacks if one.baseline and _reads_update(one)]
    blind = results[~results["attack"].isin(reading)]
    found = []
    for _, rows in scored.groupby("family", sort=False):
        judging = [name for name in METRICS if METRICS[name].judged and name in set(rows["metric"])]
        name = judging[0] if judging else rows["metric"].iloc[0]
        sign = -1 if metric(name).lower_is_better else 1
        candidates = records(rows[rows["metric"] == name])
        best = max(candidates, key=lambda row: sign * row["mean"])
        tried = len({row["attack"] for row in candidates})
        baseline = best_baseline(best, blind) or best_baseline(best, results)
        against = None if baseline is None else _baseline(baseline, reading, evaluation, seed)
        made = _measured(best, tried, against, evaluation, system, seed) | {"adds": added(best, results)}
        made["names"] = names_of(best, attacks, evaluation)
        gain, beyond = _gain(best, results), not is_near(best, results)
        found.append((gain, Measured(**made, beyond_baseline=beyond, sentence=_sentence(made, beyond))))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def _gain(row: Row, results: pd.DataFrame) -> float:
    guess, certain = best_guess(row, results), metric(row["metric"]).certainty
    return 0.0 if guess is None or guess == certain else (row["mean"] - guess) / (certain - guess)


def _reads_update(baseline: Attack) -> bool:
    model = baseline.threat_model
    return "deltas" in model.fields and model.sees not in ("no update", "no message")


def _measured(
    row: Row, tried: int, baseline: Baseline | None, evaluation: Evaluation, system: System, seed: int
) -> dict[str, Any]:
    """Fields of `Measured` without the sentence."""
    entry, own = metric(row["metric"]), rows_of(evaluation.scores, row)
    worst, people = worst_tenth(own, seed=seed), [int(person) for person in worst_clients(own).index]
    direction = "lower" if entry.lower_is_better else "higher"
    return {
        **{"question": row["family"], "infers": row["tells"], "attack": row["attack"], "attacks": tried},
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
        "rates": _rates(row, evaluation, system.of("acceptable_fpr", row["family"]), seed),
    }


def names_of(row: Row, attacks: Sequence[Attack], evaluation: Evaluation) -> Names:
    """Names of an attack by its label; the letter is that of an active adversary if the server deviated."""
    label = row["attack"].rpartition("/")[2]
    own = {name: attack for attack in attacks if attack.family == row["family"] for name in attack.names()}
    attack = own.get(label) or own.get(label.removesuffix("+prior"))
    found = TAXONOMY.get(row["family"], NONE_FITS) if attack is None else attack.public_names()
    if row["attack"] in evaluation.lines and evaluation.lines[row["attack"]].active:
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


def _rates(row: Row, evaluation: Evaluation, acceptable: float | None, seed: int) -> Rates | None:
    ranked = evaluation.candidates.get(row["attack"])
    point = None if ranked is None or acceptable is None else operating_point(ranked, acceptable, seed=seed)
    if point is None:
        return None
    counts = {name: getattr(point, name) for name in ("asks", "candidates", "positives", "clients")}
    return Rates(acceptable_fpr=point.allowed, fpr=of_range(point.fpr), tpr=of_range(point.tpr), **counts)


def _sentence(made: Mapping[str, Any], beyond: bool) -> str:
    """The result in plain words, with its direction."""
    result, baseline, rates = made["result"], made["baseline"], made["rates"]
    more = "From an update, the server can infer"
    if not beyond:
        more = "Hardly better than guessing or a baseline, the server can infer"
    against = [] if made["guessing"] is None else [f"guessing gives {made['guessing']:g}"]
    if baseline is not None:
        without = "a baseline" if baseline.reads_update else "without the update"
        against.append(f"{baseline.attack}, {without}, gives {shown(baseline.result.value)}")
    reached = f"{made['attack']} reaches {made['metric']} {with_interval(result)} over {made['n']} clients"
    if made["attacks"] > 1:
        reached += f" (chosen among {made['attacks']} attacks by the same data)"
    parts = [
        f"{more} {made['infers']}: {reached}" + (f", where {' and '.join(against)}" if against else ""),
        f"{made['meaning'].rstrip('.')}; {made['direction']}" if made["meaning"] else made["direction"].capitalize(),
    ]
    if rates is not None:
        parts.append(
            f"It finds {with_interval(rates.tpr)} of the true ones and wrongly names {shown(rates.fpr.value)} of the"
            f" others (acceptable: {rates.acceptable_fpr:g})"
        )
    return f"{made['adds']} {'. '.join(parts)}.".strip()
