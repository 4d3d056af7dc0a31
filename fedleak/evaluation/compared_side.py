"""The scores of one of two runs that are compared, by attack, metric and setting, and the ranks of its attacks."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pandas as pd

from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import SETTING, AttackInfo, describe, setting_columns
from fedleak.evaluation.stored_run import StoredRun

Key = tuple[str, ...]
"""Metric and settings, as texts: what two rows must have in common to be compared."""


class ComparedSide:
    """Scores of a run that are compared: of attacks, by the metrics that judge them; and their means."""

    def __init__(self, evaluation: Evaluation, name: str) -> None:
        scores = as_recorded(evaluation.scores)
        self.name = name
        self.lines = evaluation.lines
        roles = {label: info.role for label, info in self.lines.items()}
        questions = {label: info.question for label, info in self.lines.items()}
        of_attacks = scores["attack"].map(roles).isin(ATTACKS)
        judged = is_judged(scores, questions)
        self.scores = scores[of_attacks & judged]
        self.columns = setting_columns(self.scores)
        self.distinct = {}
        for column in self.columns:
            self.distinct[column] = set(self.scores[column].map(repr))
        self.people = set(self.scores["person"])

    def cells(self, settings: Sequence[str]) -> dict[tuple[str, Key], pd.DataFrame]:
        """Scores by attack and `Key`, without those that have no value."""
        # A setting that this run does not have is the text "None", like one whose value is None.
        absent = pd.Series([None] * len(self.scores), index=self.scores.index, dtype=object)
        settings_as_text = {}
        for name in settings:
            column = self.scores.get(name, absent)
            settings_as_text[name] = column.map(repr)
        texts = self.scores.assign(**settings_as_text)
        keys = ["attack", "metric", *settings]
        cells = {}
        for (label, *key), rows in texts.groupby(keys, sort=False, dropna=False):
            if rows["value"].notna().any():
                cells[str(label), tuple(map(str, key))] = self.scores.loc[rows.index]
        return cells

    def info(self, rows: pd.DataFrame) -> AttackInfo:
        """Description of the attack of some scores."""
        return self.lines.get(str(rows["attack"].iloc[0]), AttackInfo())

    def label(self, rows: pd.DataFrame, settings: Sequence[str]) -> str:
        """Label of the attack of some scores, with its setting."""
        label = str(rows["attack"].iloc[0])
        values = {name.removeprefix(SETTING): rows[name].iloc[0] for name in settings if name in rows}
        described = describe(values)
        if described:
            return f"{label} in {described}"
        return label


CellScores = Mapping[tuple[str, Key], pd.DataFrame]
Rank = tuple[bool, float, float]
"""What puts one attack before another, see `fedleak.evaluation.comparisons.Cells.rank`."""


def attack_ranks(run: StoredRun, settings: Sequence[str]) -> dict[tuple[str, Key], Rank]:
    """Rank of every attack of a run by attack and `Key`."""
    table = run.table
    if table is None:
        from fedleak.evaluation.summary import summarise  # it imports torch, which stored runs do without

        table = summarise(run.evaluation)
    results = as_recorded(table)
    cells = Cells(results)
    # An attack of which no result is reported comes last.
    ranks: dict[tuple[str, Key], Rank] = defaultdict(lambda: (False, -math.inf, -math.inf))
    for row in cells.rows:
        key = str(row["metric"]), *(repr(row.get(name)) for name in settings)
        ranks[str(row["attack"]), key] = cells.rank(row)
    return ranks
