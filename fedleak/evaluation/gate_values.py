"""Values of attacks that a gate holds against a limit: means over clients, those of rounds, and worst clients."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fedleak.evaluation.audited_results import AuditedResults
from fedleak.evaluation.gate_differences import beyond_baseline, changes_from_reference
from fedleak.evaluation.limited_value import AgainstLimit, AttackInSetting, LimitedValue, hidden
from fedleak.evaluation.limits import BEYOND_BASELINE, CHANGE, FEWEST, Limit
from fedleak.evaluation.paired_means import crossed, mean_over_clients
from fedleak.evaluation.scores import rows_of


def values_against(limit: Limit, audited: AuditedResults) -> AgainstLimit:
    """The values that a limit is held against."""
    if limit.metric == CHANGE:
        if audited.changes_of is None:
            return AgainstLimit([])
        return changes_from_reference(limit, audited.changes_of(audited.evaluation))
    rows = audited.rows(limit)
    if limit.metric == BEYOND_BASELINE:
        return beyond_baseline(limit, rows, audited)
    values: list[LimitedValue] = []
    for row in rows:
        values += _measured(limit, row, audited, tests=len(rows))
    return AgainstLimit(values)


def _measured(limit: Limit, row: Mapping[str, Any], audited: AuditedResults, tests: int) -> Iterator[LimitedValue]:
    """An attack's mean over clients, and that of each round whose mean is beyond the limit; or its worst client.

    `tests` is the number of attacks and settings that are held against the limit.
    """
    measured_by = audited.attack_in_setting(row)
    sign = limit.sign
    if limit.entry.worst_client:
        yield _worst_client(limit, row, measured_by, audited.evaluation.scores)
        return
    scores = rows_of(audited.evaluation.scores, row)
    if scores.empty:
        # Results without their scores have the ends for one test.
        safe, leaky = sorted((sign * row["low"], sign * row["high"]))
        n = int(row["n"])
        enough = n >= FEWEST or audited.recorded is not None
        yield LimitedValue(measured_by, sign * row["mean"], safe, leaky, n, enough)
        return
    not_drawn = None
    if audited.recorded is not None:
        not_drawn = 1 - scores["victim"].nunique() / audited.recorded
    # The mean over all rounds does not pass if it hides clients that are beyond the limit.
    of_clients = sign * crossed(scores).mean(axis=1)
    doubt = hidden(of_clients, limit=limit.signed_bound, tests=tests, binary=limit.entry.binary, sign=sign)
    mean_value = _of_mean(limit, measured_by, scores, tests, not_drawn)
    yield dataclasses.replace(mean_value, doubt=doubt)
    yield from _rounds(limit, measured_by, scores, tests, not_drawn)


def _of_mean(
    limit: Limit, measured_by: AttackInSetting, scores: pd.DataFrame, tests: int, not_drawn: float | None
) -> LimitedValue:
    """Mean over clients of some scores, whose end further from the leak is for so many tests.

    `not_drawn` is the share of the clients of the recording that were not attacked, where the limit is about these
    clients; None where it is about clients like these.
    """
    mean = mean_over_clients(scores)
    if limit.sign < 0:
        mean = -mean
    # Only the safe end can fail the gate, so only it is widened for the number of tests.
    if not_drawn is None:
        safe, leaky = mean.ends(low_tests=tests)
    else:
        safe, leaky = mean.ends_of_recording(not_drawn, low_tests=tests)
    n = len(crossed(scores).mean(axis=1).dropna())
    return LimitedValue(
        measured_by,
        mean.mean,
        safe,
        leaky,
        n,
        enough=n >= FEWEST or not_drawn is not None,
        is_fact=not_drawn is not None and not_drawn <= 0,
        mean=mean,
        tests=tests,
    )


def _rounds(
    limit: Limit, measured_by: AttackInSetting, scores: pd.DataFrame, tests: int, not_drawn: float | None
) -> Iterator[LimitedValue]:
    """Rounds whose mean over clients is beyond the limit, where clients have values of their own.

    Of the clients of a round, as many were attacked as of all clients of the recording.
    """
    rounds = scores["round"].nunique()
    # With one round the mean over all is its mean; influences are of clients whose values depend on one another.
    if rounds < 2 or scores["influence"].notna().any():
        return
    for round_number, of_round in scores.groupby("round"):
        values = crossed(of_round).mean(axis=1).dropna()
        if len(values) and limit.exceeded_by(float(values.mean())):
            in_round = dataclasses.replace(measured_by, round=int(str(round_number)))
            # Any of the rounds could have been beyond the limit, so each is one of tests * rounds tests.
            value = _of_mean(limit, in_round, of_round, tests * rounds, not_drawn)
            yield dataclasses.replace(value, doubt="one round is beyond the limit")


def _worst_client(
    limit: Limit, row: Mapping[str, Any], measured_by: AttackInSetting, scores: pd.DataFrame
) -> LimitedValue:
    """Value of the worst client, with the interval of metrics ``NAME-low`` and ``NAME-high`` if there are such."""

    def by_client(metric_name: str) -> "pd.Series[float]":
        of_metric = rows_of(scores, {**row, "metric": metric_name})
        return (limit.sign * of_metric["value"]).groupby(of_metric["person"]).max()

    values = by_client(limit.metric)
    low = by_client(f"{limit.metric}-low")
    high = by_client(f"{limit.metric}-high")
    safe, leaky = (low, high) if limit.sign > 0 else (high, low)
    # A client without an interval has its value for both ends.
    worst_safe = float(safe.reindex(values.index).fillna(values).max())
    worst_leaky = float(leaky.reindex(values.index).fillna(values).max())
    # A client without a value could be the worst.
    if values.isna().any():
        worst_leaky = math.inf
    return LimitedValue(measured_by, float(values.max()), worst_safe, worst_leaky, len(values), enough=True)
