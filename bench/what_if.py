"""What-if against training: the trainings with defences of a table, and the same defences on its recordings without.

python -m bench.what_if what_if_rounds --data digits --out runs/what_if/digits
python -m bench.what_if what_if_rounds --data MNIST --root DATA --out runs/what_if/MNIST

For each training of the table with `model.defenses`, its attacks run on its recording, and on the recording of the
training that differs from it by the defences alone, as if clients had used them. Rows of baselines are not counted:
they read no update, so they agree by construction. A row misses if its two means over clients differ by more than 1.96
standard errors of a difference of independent means; it is printed whether the what-if then says that more or less
leaks than the training shows. With the step `accuracy`, the rank correlation of what defences leave of the mean update
with the accuracy of the trained model in the last round that is attacked is printed too.
"""

import argparse
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from fedleak.commands.shared.defences_file import built
from fedleak.core.metric_table import metric
from fedleak.core.places import table_files
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.runner import Evaluation, joined
from fedleak.evaluation.scores import setting_columns
from fedleak.evaluation.summary import summarise
from fedleak.evaluation.what_if import COSINE, ERROR, LOSS, SignalKept, audited_under
from fedleak.recordings.what_if import DefendedRecording
from fedleak.tables.cell import Cell
from fedleak.tables.cell_cache import recording_of
from fedleak.tables.running import run_table
from fedleak.tables.table import Choice, read_table

_SIGNALS = (COSINE, ERROR, LOSS)
_ACCURACY = "accuracy"
_ATTACKS = ("ours", "published")
_STANDARD_ERRORS = 1.96
"""Half of the 95% interval of a normal difference; those of `summary` hold for any law and are wider."""
_ROUNDING = 1e-9
LESS, MORE, WITHIN = "less leak", "more leak", "within"
"""What a what-if says next to the training."""


def pairs(cells: list[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Each cell with defences, and the one with the same training, attacks and seed without."""
    plain = {_rest(cell): cell for cell in cells if not _defences(cell)}
    for cell in cells:
        if _defences(cell) and _rest(cell) in plain:
            yield cell, plain[_rest(cell)]


def _defences(cell: Cell) -> list[Any]:
    return cell.training["model"]["init_args"].get("defenses") or []


def _rest(cell: Cell) -> str:
    training = copy.deepcopy(cell.training)
    training["model"]["init_args"].pop("defenses", None)
    return json.dumps([training, cell.attacks, cell.seed], sort_keys=True, default=str)


def tried(cell: Cell, plain: Cell) -> Evaluation:
    """Evaluation of a cell's attacks on the recording without its defences, as if clients had used them."""
    defences = built(_defences(cell), f"{cell.key} in {cell.table}")
    recording = DefendedRecording.of(recording_of(plain), defences, seed=cell.seed)
    return audited_under(cell.plan(recording, [SignalKept()])).evaluation


def compare(
    name: str, root: str | None, out: Path, seeds: int, jobs: int, data: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per setting, attack and judged metric, and one per setting and signal.

    The columns of the first are the mean and its spread in the training and in the what-if, the difference, and in
    ``says`` one of `LESS`, `MORE` and `WITHIN`. The two draw different noise, so a difference is within if it is at
    most 1.96 standard errors of a difference of two independent means. Those of the second are the mean of the what-if
    and the accuracy of the trained model.
    """
    table = read_table(table_files()[name])
    cells = table.cells(Choice(root=root, data=data, scale="small", seeds=seeds, out=out, progress=False))
    finished_cells = run_table(cells, engine=Processes(jobs=jobs), name=name)
    trained = {cell.key: finished.evaluation for cell, finished in finished_cells}
    compared = list(pairs(cells))
    what_ifs = [tried(cell, plain) for cell, plain in tqdm(compared, desc="what-if", unit="cell")]
    with_training = summarise(joined([trained[cell.key] for cell, _ in compared]))
    with_what_if = summarise(joined(what_ifs))
    settings = setting_columns(with_training)
    return compared_rows(with_training, with_what_if, settings), _signals(with_training, with_what_if, settings)


def compared_rows(trained: pd.DataFrame, tried_rows: pd.DataFrame, settings: list[str]) -> pd.DataFrame:
    """Rows of attacks by judged metrics in the training and in the what-if, and what the latter says, see `compare`."""
    keys = [*settings, "attack", "metric"]
    rows = trained[trained["role"].isin(_ATTACKS) & trained["metric"].map(lambda name: metric(name).judged)]
    both = rows[[*keys, "mean", "std", "n"]].merge(
        tried_rows[[*keys, "mean", "std", "n"]], on=keys, suffixes=("", "_what_if")
    )
    both = both.dropna(subset=["mean", "mean_what_if"])
    both["difference"] = both["mean_what_if"] - both["mean"]
    squared_error = both["std"] ** 2 / both["n"] + both["std_what_if"] ** 2 / both["n_what_if"]
    allowed = _STANDARD_ERRORS * squared_error**0.5 + _ROUNDING
    sign = both["metric"].map(lambda name: -1 if metric(name).lower_is_better else 1)
    gain = sign * both["difference"]
    both["says"] = WITHIN
    both.loc[gain > allowed, "says"] = MORE
    both.loc[gain < -allowed, "says"] = LESS
    return both.reset_index(drop=True)


def _signals(trained: pd.DataFrame, tried_rows: pd.DataFrame, settings: list[str]) -> pd.DataFrame:
    accuracy = trained[trained["metric"] == _ACCURACY][[*settings, "mean"]]
    signals = tried_rows[tried_rows["metric"].isin(_SIGNALS)][[*settings, "metric", "mean"]]
    return signals.merge(accuracy.rename(columns={"mean": _ACCURACY}), on=settings)


def said(leaks: pd.DataFrame) -> str:
    """One line: how many rows are within, and how the others err, by how much in the mean."""
    counts = leaks["says"].value_counts()
    line = f"{counts.get(WITHIN, 0)} of {len(leaks)} rows within ({counts.get(WITHIN, 0) / len(leaks):.0%})"
    for direction in (LESS, MORE):
        misses = leaks[leaks["says"] == direction]["difference"].abs()
        if len(misses):
            line += (
                f"; {len(misses)} say {direction}, by {misses.mean():.3f} in the mean and {misses.max():.3f} at most"
            )
    return line


def main() -> None:
    """Trains what is not trained yet, tries the defences, and prints each row and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--root")
    parser.add_argument("--data", help="the only data set to run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    leaks, signals = compare(options.table, options.root, options.out, options.seeds, options.jobs, options.data)
    leaks.to_csv(options.out / "what_if.csv", index=False)
    signals.to_csv(options.out / "signals.csv", index=False)
    differing = [name for name in leaks.columns if leaks[name].map(repr).nunique() > 1]
    print(leaks[differing].to_string(index=False, float_format="{:.3f}".format))
    for attack, rows in leaks.groupby("attack"):
        print(f"{attack}: {said(rows)}")
    print(f"all attacks: {said(leaks)}")
    for name, rows in signals.groupby("metric"):
        if len(rows) > 2:
            rank = rows["mean"].corr(rows[_ACCURACY], method="spearman")
            print(f"Spearman of {name} with the accuracy of the trained model: {rank:.3f} ({len(rows)} defences)")


if __name__ == "__main__":
    main()
