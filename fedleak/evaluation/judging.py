"""Rows of results and scores by whose metric attacks are compared."""

from collections.abc import Mapping

import pandas as pd

from fedleak.core.metric_table import judges


def is_judged(table: pd.DataFrame, questions: Mapping[str, str | None] | None = None) -> "pd.Series[bool]":
    """Whether attacks are compared by the metric of each row.

    Args:
        table: results, or scores.
        questions: question by attack, for scores, which have no column of it; None for results.
    """
    of_rows = table["question"] if questions is None else table["attack"].map(questions)
    of_rows = of_rows.where(of_rows.notna(), None)
    values = [judges(str(name), question) for name, question in zip(table["metric"], of_rows, strict=True)]
    return pd.Series(values, index=table.index, dtype=bool)
