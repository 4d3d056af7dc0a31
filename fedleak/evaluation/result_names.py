"""Names in results that pages read: columns, settings and suffixes, without what computes the values."""

from collections.abc import Mapping
from typing import Any

SETTING = "setting."
"""Prefix of the columns that identify the cell of a table that a row belongs to, e.g. ``setting.data``."""
DATA = SETTING + "data"
"""Setting of every table."""
RUN = SETTING + "run"
"""Setting of a page of several runs."""
RESULT: tuple[str, ...] = ("attack", "metric", "mean", "std", "low", "high", "n", "seeds", "seconds_per_victim")
"""Columns of a table of results, besides its settings and the fields of `fedleak.evaluation.scores.AttackInfo`."""
RATIO = ("ratio", "ratio_low", "ratio_high")
"""Columns of the ratio of two means, with the ends of its interval."""
DIFFERENCE: tuple[str, ...] = ("attack", "against", "metric", "mean", "low", "high", "n", "seeds", *RATIO)
"""Columns of a table of paired differences, in addition to its settings."""
ATTACKS = ("ours", "published")
"""Roles of attacks; the other lines are comparisons."""
LUCK = "luck"
"""Column of results with the probability of luck, see `fedleak.evaluation.luck`."""
PROBABILITY = "mean probability"
TRUE = "share true"
ANSWERS = "answers"
"""Columns of the table of details of an attack with priors: its reliability."""
LOSS = "auxiliary-loss"
"""Metric of the model after a round under a defence: its loss on auxiliary examples."""
CLIENTS = "clients"
"""Column of class shares over clients: their number."""
DISTANCE = "distance"
"""Column of class shares over clients: the mean distance of inferred shares from the true ones."""

BOUNDS: Mapping[str, str] = {"uniform": "bound", "count": "bound-count", "cascade": "bound-cascade"}
"""Labels of `fedleak.evaluation.steps.bounds.Bounds`, by the prior of the attacks that they bound."""
UPDATES = "updates"
"""Label of the table of updates, see `fedleak.evaluation.update_table`."""
MESSAGES = "messages"
"""Label of the table of what in messages is more than an update, see `fedleak.evaluation.lint_table`."""
LINTED = (
    "Tensors of the first rounds whose values look like rows, counts or statistics of people, and not like an update,"
    " whatever they are called: docs/audit/lint.md. Found without any attack."
)
"""What its rows are."""
MEANING = (
    "Means over the messages of the first rounds. Norm is the L2 norm of what a client sent; relative is that over the"
    " norm of the same tensor of the global model; rank is the effective rank of a matrix with singular values s,"
    " (sum s^2)^2 / sum s^4, of at most so many; noise floor is the standard deviation of white noise with the same"
    " median singular value, about the largest that noise in it can have; zeros is the share of numbers that are zero."
)
"""What its columns are."""


def setting_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Setting of one row by key, without missing values."""
    setting = {}
    for name, value in row.items():
        # NaN, which differs from itself, is a missing value too.
        if str(name).startswith(SETTING) and value is not None and value == value:
            setting[str(name).removeprefix(SETTING)] = value
    return setting
