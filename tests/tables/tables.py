"""What tests on tables share: a table that is run, its results, and the papers' numbers next to a setting."""

import shlex
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

from fedleak.commands import program
from fedleak.evaluation.posterior.posterior import POSTERIOR
from fedleak.evaluation.scores import records, setting_of
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.papers import with_papers
from fedleak.tables.cell import Cell
from fedleak.tables.table import Choice, read_table
from tests.frames import cell, results
from tests.places import CONFIGS

RECOMMENDER = f"""
train: {CONFIGS / "train" / "fncf_synthetic.yaml"}
metrics: [auc]
set: {{data.clients_per_round: 10, data.users: 30, model.local.epochs: 2, trainer.max_steps: 1}}
attacks: {{direction: {{}}}}
"""
"""A table of one cell that takes a second."""
RANKING = f"""
train: {CONFIGS / "train" / "fpdgd_mq2008.yaml"}
metrics: [auc]
set:
  data.clients_per_round: 1.0
  data.queries_per_client: 4
  model.manipulation: {{class_path: Codebook}}
  trainer.max_steps: 1
axes:
  data: {{synthetic-letor: {{data.queries: 40}}}}
  epsilon:
    inf: {{}}
    100: {{model.defenses: [{{class_path: LocalDP, init_args: {{epsilon: $, clip: 0.25, delta: 1.0e-8}}}}]}}
attacks: {{codebook: {{}}}}
"""
"""Two cells of rankings."""


@dataclass(frozen=True)
class Result:
    """One row of results."""

    attack: str
    metric: str
    setting: dict[str, Any]
    mean: float
    high: float
    n: int
    paper: float | None
    source: str | None


def command(folder: Path, text: str, *options: str) -> list[str]:
    """Arguments of ``fedleak`` that run a table into ``folder/out``."""
    (folder / "table.yaml").write_text(text)
    return ["reproduce", str(folder / "table.yaml"), "--out", str(folder / "out"), "--jobs", "1", *options]


def without_pages() -> AbstractContextManager[object]:
    """Runs write results and no page, whose figures take longer than a small training."""
    return mock.patch("fedleak.reports.write_run.write_page", return_value=[])


def reproduce(folder: Path, text: str, *options: str, page: bool = False) -> int:
    """Runs a table into ``folder/out``, with a page if one is asked for; returns the exit status."""
    with nullcontext() if page else without_pages():
        return program.main(command(folder, text, *options))


def cells_of(folder: Path, text: str, **choice: Any) -> list[Cell]:
    """The cells of a table."""
    (folder / "table.yaml").write_text(text)
    return read_table(folder / "table.yaml").cells(Choice(**{"out": folder / "out", **choice}))


def read(directory: Path) -> list[Result]:
    """The rows of a results.json."""
    names = ("attack", "metric", "mean", "high", "n", "source")
    rows = records(read_results(directory).results)
    return [
        Result(
            setting=setting_of(row),
            paper=None if row["source"] is None else row["paper"],
            **{name: row[name] for name in names},
        )
        for row in rows
    ]


def paper_value(name: str, metric: str, setting: dict[str, Any]) -> tuple[float, str] | None:
    """The paper's number next to an attack in a setting, rounded to three digits, and its source; None for none."""
    (row,) = records(with_papers(results(cell(name, metric, 0.5, setting=setting))))
    return None if row["source"] is None else (round(row["paper"], 3), row["source"])


def check_by_hand(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Runs the commands that a table prints for its first cell, and compares every score with the table's.

    Args:
        arguments: those of ``fedleak`` that ran the table.
        capsys: what is printed.
    """
    out = Path(arguments[arguments.index("--out") + 1])
    capsys.readouterr()
    assert program.main([*arguments, "--dry-run"]) == 0
    title, *lines = capsys.readouterr().out.split("\n# ")[0].splitlines()
    commands = [shlex.split(line.replace(str(out), str(out.with_name("by-hand")))) for line in lines]
    assert program.main(commands[0][1:]) == 0
    scores = pd.read_csv(out / "scores.csv")
    root = arguments[arguments.index("--data.root") + 1] if "--data.root" in arguments else None
    first = read_table(Path(arguments[1])).cells(Choice(out=out, root=root))[0]
    assert title == f"# {first.key}"
    for key, value in first.setting.items():
        scores = scores[scores[f"setting.{key}"].astype(str) == str(value)]
    for command in commands[1:]:
        with without_pages():
            assert program.main(command[1:]) == 0
        alone = pd.read_csv(Path(command[command.index("--out") + 1]) / "scores.csv")
        alone = alone[~alone["metric"].isin(POSTERIOR)]  # they depend on the priors that run with the attack
        together = scores[scores["attack"].isin(alone["attack"].unique()) & ~scores["metric"].isin(POSTERIOR)]
        assert len(alone)
        columns = ["attack", "round", "metric", "value", "items", "positives"]
        assert _sorted(alone[columns]).equals(_sorted(together[columns]))


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.round(9).sort_values(list(table.columns)).reset_index(drop=True)
