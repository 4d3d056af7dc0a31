"""Results that name nobody: numbers over several clients, and clients under numbers from a secret key."""

import dataclasses
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.result_names import CLIENTS, DISTANCE

CLIENT = "client"
"""Column of an attack's own table that holds a client's number."""
_OF_A_CLIENT = ("victim", "person", "true", "inferred", "low", "high")
"""Columns of class shares that differ between clients."""
_SHOWN_DIGITS = 2
"""Digits of a mean true share: with all but one client's shares, the last one's follow only to n / 200."""
_PLAIN = 10**6
"""Numbers below it stand as they are."""
_DIGITS = 4
"""Last digits of longer numbers that stand on a page."""
_BYTES = 6
"""Below 2**48, a number is exact in a spreadsheet; of 100,000 clients, two share one with probability 2e-5."""


def without_persons(evaluation: Evaluation, key: bytes) -> Evaluation:
    """An evaluation in which every client has a number that needs the key; the order of the rows stays.

    A client has the same number in all rounds, trainings and tables, so that scores can still be grouped and paired by
    client; under another key all numbers differ, so that different clients are never taken for one. Both ``victim`` and
    ``person`` become this number.
    """
    scores, profiles = evaluation.scores, evaluation.profiles
    pseudonyms = zip(scores["seed"], scores["victim"], strict=True)
    person_of = dict(zip(pseudonyms, scores["person"], strict=True))
    # Class shares that are means over clients have no victims.
    if "victim" in profiles:
        people = []
        for seed, victim in zip(profiles["seed"], profiles["victim"], strict=True):
            people.append(person_of.get((seed, victim), victim))
        profiles = profiles.assign(victim=_numbers(people, key))
    numbers = _numbers(scores["person"], key)
    return dataclasses.replace(
        evaluation,
        scores=scores.assign(victim=numbers, person=numbers),
        profiles=profiles,
        details={label: _renumbered(table, key) for label, table in evaluation.details.items()},
    )


def in_order_of_persons(evaluation: Evaluation) -> Evaluation:
    """An evaluation whose rows are by the number of the client within each attack, training, round and metric.

    In the order of the recording's messages, the rows would still show which message is whose.
    """
    scores = _in_order(evaluation.scores)
    profiles = _in_order(evaluation.profiles)
    return dataclasses.replace(evaluation, scores=scores, profiles=profiles)


def over_clients(evaluation: Evaluation) -> Evaluation:
    """An evaluation whose page, figures and tables hold numbers over at least `FEWEST` clients, and no client's.

    A recording without its ground truth can be attacked by everybody who has it. What an attack infers about each
    pseudonym is then known, so that a true value of a client, or the error of an attack about it, names its pseudonym,
    in any order and under any number. So true and inferred class shares become means, rounded, and curves of fewer
    clients, pictures of records and rows about a client in attacks' own tables are left out. Scores stay: what is drawn
    of them are means and ends of bands, see `fedleak.reports.figures.by_attack`. Applied twice, it is applied once.
    """
    # The curve of few clients would show theirs.
    roc = {label: (rates, count) for label, (rates, count) in evaluation.roc.items() if count >= FEWEST}
    return dataclasses.replace(
        evaluation,
        roc=roc,
        pictures={},
        profiles=_mean_profiles(evaluation.profiles),
        details={label: _without_clients(table) for label, table in evaluation.details.items()},
    )


def rows_without_clients(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of an attack's own table but those about a client."""
    without_clients = []
    for row in rows:
        if row.get(CLIENT) is None:
            without_clients.append({name: value for name, value in row.items() if name != CLIENT})
    return without_clients


def client_labels(numbers: Iterable[int]) -> dict[int, str]:
    """Label of each client on a page, by its number; it depends on the other clients only where they share digits.

    Numbers of up to six digits stand as they are. Of longer ones, from a key, the last four stand, or more if another
    client has the same.

    >>> client_labels([7, 140737488354821, 99900001111, 88800001111])
    {7: '7', 140737488354821: '4821', 88800001111: '800001111', 99900001111: '900001111'}
    """
    labels: dict[int, str] = {}
    unlabelled = []
    for number in sorted({int(number) for number in numbers}):
        if number < _PLAIN:
            labels[number] = str(number)
        else:
            unlabelled.append(number)
    # More digits for those who share the last ones, up to all that a number of 64 bits has.
    for digits in range(_DIGITS, 21):
        last_digits = {number: str(number)[-digits:] for number in unlabelled}
        counts = Counter(last_digits.values())
        labels |= {number: text for number, text in last_digits.items() if counts[text] == 1}
        unlabelled = [number for number in unlabelled if number not in labels]
    return labels


def _mean_profiles(profiles: pd.DataFrame) -> pd.DataFrame:
    """Class shares over the clients of each attack, training, round and setting, where there are enough of them."""
    if profiles.empty or "victim" not in profiles:
        return profiles
    keys = [name for name in profiles if name not in _OF_A_CLIENT]
    distances = profiles.assign(**{DISTANCE: (profiles["inferred"] - profiles["true"]).abs()})
    groups = distances.groupby(keys, sort=False, dropna=False)
    means = groups.agg(
        **{CLIENTS: ("victim", "nunique")},
        true=("true", "mean"),
        inferred=("inferred", "mean"),
        **{DISTANCE: (DISTANCE, "mean")},
    ).reset_index()
    enough = means[means[CLIENTS] >= FEWEST].reset_index(drop=True)
    return enough.round({"true": _SHOWN_DIGITS, "inferred": _SHOWN_DIGITS, DISTANCE: _SHOWN_DIGITS})


def _without_clients(table: pd.DataFrame) -> pd.DataFrame:
    """A table without its rows about a client, and without the columns that only these have."""
    if CLIENT not in table:
        return table
    over_several = table[table[CLIENT].isna()].dropna(axis="columns", how="all")
    return over_several.reset_index(drop=True)


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Rows sorted by client within each attack, training, round and metric, which keep their order."""
    keys = [name for name in ("attack", "seed", "round", "metric") if name in table]
    if "victim" not in table or table.empty:
        return table
    blocks = table.groupby(keys, sort=False, dropna=False).ngroup()
    ordered = table.assign(block=blocks).sort_values(["block", "victim"], kind="stable")
    return ordered.drop(columns="block").reset_index(drop=True)


def _numbers(people: Iterable[int], key: bytes) -> list[int]:
    return [_number(int(person), key) for person in people]


def _number(person: int, key: bytes) -> int:
    return int.from_bytes(hmac.digest(key, f"number of person {person}".encode(), "sha256")[:_BYTES], "big")


def _renumbered(table: pd.DataFrame, key: bytes) -> pd.DataFrame:
    """An attack's own table with the numbers that need the key in the place of clients'."""
    if CLIENT not in table:
        return table
    numbers = []
    for client in table[CLIENT]:
        # Rows that are about no client have none.
        numbers.append(client if pd.isna(client) else _number(int(client), key))
    return table.assign(**{CLIENT: pd.Series(numbers, index=table.index, dtype=table[CLIENT].dtype)})
