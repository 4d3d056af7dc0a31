"""Means of scores over clients, and paired differences of two lines, with what their intervals are made of."""

import numpy as np
import pandas as pd

from fedleak.core.metric_table import metric as metric_of
from fedleak.evaluation.mean_interval import UNBOUNDED, MeanOverClients
from fedleak.evaluation.upper_end import Values


def paired(first: pd.DataFrame, second: pd.DataFrame) -> tuple[MeanOverClients, pd.DataFrame, bool]:
    """Paired difference of the scores of two lines for one setting and metric, the first minus the second.

    Returns:
        The mean, of which intervals are asked; differences of clients ``(P, S)`` by seed, without those that have
        none; and whether clients affect each other's values.
    """
    gaps = _gap(crossed(first), crossed(second))
    influences = _gap(crossed(first, "influence"), crossed(second, "influence"))
    # A difference of two values in a span is between -(most - least) and most - least.
    least, most = metric_of(str(first["metric"].iloc[0])).span or UNBOUNDED
    mean = _mean_over_clients(gaps, influences, clusters(first), (least - most, most - least))
    return mean, gaps, not influences.empty


def mean_over_clients(rows: pd.DataFrame) -> MeanOverClients:
    """Mean of the scores of one line, setting and metric, of which intervals are asked."""
    span = metric_of(str(rows["metric"].iloc[0])).span or UNBOUNDED
    return _mean_over_clients(crossed(rows), crossed(rows, "influence"), clusters(rows), span)


def crossed(rows: pd.DataFrame, column: str = "value") -> pd.DataFrame:
    """Table of clients by seeds: mean over rounds, NaN where a client has no value under a seed.

    Args:
        rows: scores of one line, setting and metric.
        column: ``value`` or ``influence``; the table is empty if an influence is missing.
    """
    if column == "influence" and bool(rows["influence"].isna().any()):
        return pd.DataFrame()
    person, people = pd.factorize(rows["person"])
    seed, seeds = pd.factorize(rows["seed"])
    sums = np.zeros((len(people), len(seeds)))
    counts = np.zeros((len(people), len(seeds)))
    # A client may have no value in some of its rounds: the mean is over the others.
    has_value = rows[column].notna().to_numpy()
    cells = person[has_value], seed[has_value]
    np.add.at(sums, cells, rows[column].to_numpy()[has_value])
    np.add.at(counts, cells, 1)
    with np.errstate(invalid="ignore"):
        return pd.DataFrame(sums / counts, index=people, columns=seeds)


def clusters(rows: pd.DataFrame) -> "pd.Series[int] | None":
    """Round of each client if every client took part in one and the same of several under every seed, else None."""
    by_person = rows.groupby("person", sort=False)["round"]
    rounds = by_person.first()
    in_one_round = bool((by_person.nunique() == 1).all())
    # With one round there is one cluster, and with one client a round none.
    if in_one_round and 1 < rounds.nunique() < len(rounds):
        return rounds
    return None


def _mean_over_clients(
    values: pd.DataFrame, influences: pd.DataFrame, groups: "pd.Series[int] | None", span: tuple[float, float]
) -> MeanOverClients:
    """Mean over clients ``(P, S)`` and trainings, with what its intervals are made of.

    Args:
        values: values by client and training, NaN where there is none.
        influences: influences by client and training; empty where clients do not affect each other's values.
        groups: group of each client, None where every client is a unit.
        span: least and largest possible value.
    """
    if values.empty or not bool(values.notna().any(axis=None)):
        nothing = np.empty(0)
        return MeanOverClients(np.nan, nothing, nothing, span, nothing, nothing)
    unit_values, sizes = _of_units(values, groups)
    unit_influences = np.empty(0)
    if not influences.empty:
        unit_influences, _ = _of_units(influences, groups)
    # Where every client has a training of its own, the spread over clients already has that over trainings.
    has_value = values.notna()
    own_training = bool((has_value.sum(axis=0) == 1).all() and (has_value.sum(axis=1) == 1).all())
    by_training = values.mean(axis=0).dropna().to_numpy()
    trainings = np.empty(0) if own_training or len(by_training) < 2 else by_training
    mean = float(np.nanmean(values.to_numpy()))
    return MeanOverClients(mean, unit_values, sizes, span, trainings, unit_influences)


def _of_units(values: pd.DataFrame, groups: "pd.Series[int] | None") -> tuple[Values, Values]:
    """``(U,)`` means and numbers of clients of the units: of clients, or of groups of them."""
    of_clients = values.mean(axis=1).dropna()
    if groups is None:
        return of_clients.to_numpy(), np.ones(len(of_clients))
    by_group = of_clients.groupby(groups.reindex(of_clients.index))
    return by_group.mean().to_numpy(), by_group.size().to_numpy().astype(np.float64)


def _gap(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """First line's values minus the second's, for clients and seeds with a finite difference."""
    if first.empty or second.empty:
        return pd.DataFrame()
    gap = first - second.reindex(index=first.index, columns=first.columns)
    finite = gap.where(np.isfinite(gap))
    return finite.loc[finite.notna().any(axis=1), finite.notna().any(axis=0)]
