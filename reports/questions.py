"""Questions of a report: results that answer the same question, with their main metric first."""

import pandas as pd

from protocol.metric_table import METRICS, metric
from reports.run import ATTACKS


def by_question(results: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Title and rows of each question, in the order of the results.

    Bounds and models, which answer no question, stand with the questions whose metrics they have, or else at the end.
    """
    references = (results["role"] == "reference").to_numpy()
    keys = results["question"].fillna("")
    found, used = [], set[int]()
    for question in dict.fromkeys(keys[~references]):
        own = (keys == question).to_numpy() & ~references
        near = references & results["metric"].isin(results["metric"][own]).to_numpy()
        used |= set(results.index[near])
        found.append((_title(results[own]), results[own | near]))
    rest = results[references & ~results.index.isin(used)]
    return [*found, ("Bounds and models", rest)] if len(rest) else found


def metrics_of(results: pd.DataFrame) -> list[str]:
    """Metrics of some results: those that judge attacks, then the others, in the table's order."""
    given = list(dict.fromkeys(results["metric"]))
    order = [*METRICS, *given]
    return sorted(given, key=lambda name: (not metric(name).judged, order.index(name)))


def _title(rows: pd.DataFrame) -> str:
    inferred = [text for text in rows["tells"][rows["role"].isin(ATTACKS)] if text] or [*rows["tells"], ""]
    return f"Can the server infer {inferred[0]}?" if inferred[0] else "Results"
