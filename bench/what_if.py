"""What-if against training: the trainings with defences of a table, and the same defences on its recordings without.

python -m bench.what_if prior_composition --root DATA --out runs/what_if/prior_composition

For each training of the table with `model.defenses`, its attacks run on its recording, and on the recording of the
training that differs from it by the defences alone, as if clients had used them. In the first round both have the same
global model; later ones differ by drift. With the step `accuracy`, the rank correlation of what defences leave of the
mean update with the accuracy of the trained model in the last round that is attacked is printed too.
"""

import argparse
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from evaluation.auditing import audit
from evaluation.scores import records, setting_columns
from evaluation.summary import summarise
from evaluation.what_if import COSINE, ERROR, LOSS, SignalKept
from experiments.cell import Cell
from experiments.cell_cache import recording_of
from experiments.commands.defences_file import built
from experiments.running import run_table
from experiments.table import Choice, read_table
from protocol.metric_table import metric
from recordings.what_if import DefendedRecording

_PAPER = Path(__file__).resolve().parents[1] / "configs" / "paper"
_KEPT = (COSINE, ERROR, LOSS)
_ACCURACY = "accuracy"
_KEYS = ["attack", "metric"]


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


def tried(cell: Cell, plain: Cell) -> pd.DataFrame:
    """Scores of a cell's attacks on the recording without its defences, as if clients had used them."""
    made = built(_defences(cell), f"{cell.key} in {cell.table}")
    found = audit(
        DefendedRecording.of(recording_of(plain), made, seed=cell.seed),
        list(cell.make_attacks().values()),
        **cell.audit_options(),
        steps=[SignalKept()],
        progress=False,
    )
    return found.evaluation.scores


def compare(name: str, root: str | None, out: Path, seeds: int, jobs: int) -> pd.DataFrame:
    """A row per setting, attack and metric: the mean and interval trained, those of the what-if, and the difference.

    The two draw different noise, so a difference agrees with none if it is within the interval of a difference of two
    independent means.
    """
    table = read_table(_PAPER / f"{name}.yaml")
    cells = table.cells(Choice(root=root, scale="small", seeds=seeds, out=out, progress=False))
    trained = {cell.key: finished.evaluation for cell, finished in run_table(cells, jobs=jobs, name=name)}
    chosen = list(pairs(cells))
    parts = [(trained[cell.key], tried(cell, plain)) for cell, plain in tqdm(chosen, desc="what-if", unit="cell")]
    lines = parts[0][0]
    for evaluation, _ in parts:
        lines.lines.update(evaluation.lines)
    both = []
    for scores in (pd.concat([one.scores for one, _ in parts]), pd.concat([own for _, own in parts])):
        lines.scores = scores
        both.append(summarise(lines))
    keys, own = [*setting_columns(both[0]), *_KEYS], {*table.metrics, *_KEPT, _ACCURACY}
    columns = [*keys, "mean", "low", "high", "n"]
    joined = both[0][columns].merge(both[1][[*columns[:-1]]], on=keys, suffixes=("", "_what_if"), how="outer")
    joined = joined[joined["metric"].isin(own)].astype({"n": "Int64"})
    joined["difference"] = joined["mean_what_if"] - joined["mean"]
    halves = [(joined[f"high{one}"] - joined[f"low{one}"]) / 2 for one in ("", "_what_if")]
    joined["agree"] = joined["difference"].abs() <= (halves[0] ** 2 + halves[1] ** 2) ** 0.5 + 1e-9
    return joined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--root")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    found = compare(options.table, options.root, options.out, options.seeds, options.jobs)
    found.to_csv(options.out / "what_if.csv", index=False)
    shown = found[[*(name for name in found.columns if found[name].map(repr).nunique() > 1)]]
    leaks = shown[[metric(name).leak and name not in _KEPT for name in found["metric"]]].dropna(subset=["difference"])
    print(leaks.to_string(index=False, float_format="{:.3f}".format))
    for name, own in leaks.groupby("metric"):
        worst, agree = own["difference"].abs().max(), own["agree"].mean()
        print(f"{name}: largest difference {worst:.3f}, within its 95% interval in {agree:.0%} of {len(own)} rows")
    settings = setting_columns(found)
    accuracy = {_key(row, settings): row["mean"] for row in records(found[found["metric"] == _ACCURACY])}
    for name in _KEPT if accuracy else ():
        rows = [(_key(row, settings), row["mean_what_if"]) for row in records(found[found["metric"] == name])]
        points = pd.DataFrame([(value, accuracy[key]) for key, value in rows if key in accuracy])
        if len(points) > 2:
            rank = points[0].corr(points[1], method="spearman")
            print(f"Spearman of {name} with the accuracy of the trained model: {rank:.3f} ({len(points)} defences)")


def _key(row: dict[str, Any], settings: list[str]) -> str:
    return repr([row[name] for name in settings])


if __name__ == "__main__":
    main()
