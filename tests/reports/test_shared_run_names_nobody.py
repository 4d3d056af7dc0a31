"""What may be passed on of a run (docs/audit/reports.md) does not undo the removal of the truth from a recording.

Who has a recording without its truth repeats its attacks, and so knows what they infer about each pseudonym. Here that
is the truth itself, the worst case. The attack takes every vector of shares from the files, from the heights of bars
and the places of dots in figures too, and assigns them to pseudonyms so that the distances are smallest.
"""

import json
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from fedleak.core.estimates import ROC_GRID, Reconstruction
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, from_records, score_table
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.exporters.bundle import Bundle
from fedleak.reports.exporters.model_card import ModelCard
from fedleak.reports.exporters.sarif import Sarif
from fedleak.reports.write_run import write_run
from tests.reports.toys import LINES

CLIENTS, CLASSES = 9, 8
STAY = ("evaluation.json", "scores.csv")
"""Files that hold a row per client, and are not passed on."""
Floats = npt.NDArray[np.float64]


def true_shares() -> Floats:
    return np.random.default_rng(0).dirichlet(np.full(CLASSES, 0.4), CLIENTS)


def audited() -> AuditResult:
    true, people = true_shares(), [10**7 + number for number in range(CLIENTS)]
    common = {"setting": {"data": "d"}, "seed": 0, "victims": people}
    errors = {"codebook": np.zeros(CLIENTS), "raifle": true[:, 0], "chance": np.abs(true - 1 / CLASSES).sum(1)}
    scores = [score_table(name, {"l1": own.tolist()}, **common) for name, own in errors.items()]  # type: ignore[arg-type]
    rows = [
        {"attack": name, "seed": 0, "round": 0, "victim": people[one], "class": number, "true": true[one, number]}
        | {"inferred": guess, "low": guess, "high": guess, "setting.data": "d"}
        for one in range(CLIENTS)
        for number in range(CLASSES)
        for name, guess in (("codebook", true[one, number]), ("chance", 1 / CLASSES))
    ]
    images = torch.rand(CLIENTS, 1, 4, 4)
    evaluation = Evaluation(
        scores=concat(scores),
        lines=dict(LINES),
        profiles=pd.DataFrame(rows),
        pictures={"codebook": Reconstruction(images, images)},
        roc={"codebook": (3 * ROC_GRID.double().sqrt().numpy(), 3)},
        details={
            "codebook": from_records([{"client": one, "true": float(true[i, 0])} for i, one in enumerate(people)])
        },
    )
    return AuditResult(evaluation, ["l1"], {"name": "d", "sha256": "0"}, seconds=1.0)


def written(folder: Path, *, persons: bool) -> list[Path]:
    """Files of a run and of its exporters that may be passed on."""
    write_run(audited(), directory=folder, formats=["svg", "csv", "tex"], key=b"k", persons=persons)
    run = read_results(folder)
    for exporter in (Bundle(), Sarif(), ModelCard()):
        exporter.export(run, folder)
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in STAY]


def vectors(files: list[Path]) -> Floats:
    """``(N, CLASSES)`` every vector that could be shares of classes: in figures, tables and lists of numbers."""
    found = list[Floats]()
    for path in files:
        text = path.read_bytes().decode("utf-8", errors="replace")
        for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
            bars = [_box(d) for d in re.findall(r'<path d="([^"]*)"', svg)]
            dots = [float(y) for y in re.findall(r'<use [^>]*y="([\d.]+)"', svg)]
            heights = [float(np.ptp(box[:, 1])) for box in bars if len(box) == 4]
            for values in (heights, dots, [-y for y in dots]):
                found += [np.array(values[at : at + CLASSES]) for at in range(len(values) - CLASSES + 1)]
        numbers = [float(number) for number in re.findall(r"(?<![\w.])\d\.\d+(?![\w.])", text)]
        found += [np.array(numbers[at : at + CLASSES]) for at in range(min(len(numbers), 5000) - CLASSES + 1)]
        if path.suffix == ".csv":
            table = pd.read_csv(path)
            for column in table.select_dtypes("number"):
                values = table[column].dropna().tolist()
                found += [np.array(values[at : at + CLASSES]) for at in range(len(values) - CLASSES + 1)]
    shares = [(own - min(own.min(), 0.0)) for own in found]
    return np.array([own / own.sum() for own in shares if own.sum() > 0]).reshape(-1, CLASSES)


def _box(path: str) -> Floats:
    return np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", path), dtype=float).reshape(-1, 2)


def linked(files: list[Path]) -> int:
    """Number of clients of whom a file holds the true shares, by the assignment of vectors that is nearest to all."""
    distances = np.abs(true_shares()[:, None] - vectors(files)[None]).sum(2)
    return int((distances[linear_sum_assignment(distances)] < 0.02).sum())


@pytest.mark.integration
def test_every_client_is_found_in_files_with_persons(tmp_path: Path) -> None:
    """The attack works: without this, the next test would show nothing."""
    assert linked(written(tmp_path, persons=True)) == CLIENTS


def test_no_client_is_found_in_what_may_be_passed_on(tmp_path: Path) -> None:
    files = written(tmp_path, persons=False)
    assert {"report.html", "results.json", "audit.zip", "audit.sarif", "model-card.md"} <= {path.name for path in files}
    assert not {"compositions.csv", "roc.csv"} & {path.name for path in files}  # the curve is of three clients
    assert linked(files) == 0
    whole = b"".join(path.read_bytes() for path in files).decode("utf-8", errors="replace")
    assert "data-client=" not in whole.replace("[data-client]", "").partition("<script>")[0]
    assert "data:image" not in whole.replace("img-src data:", "")  # no record
    numbers = set(pd.read_csv(tmp_path / "scores.csv")["person"].astype(str))
    assert not [number for number in numbers if number in whole]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"mean over {CLIENTS} clients of the true class shares" in page


def test_what_stays_holds_no_true_shares_of_a_client_either(tmp_path: Path) -> None:
    written(tmp_path, persons=False)
    content = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert content["pictures"] == {}
    assert "victim" not in content["profiles"]
    assert "client" not in content["details"]["codebook"]


@pytest.mark.parametrize("clients", [4])
def test_of_fewer_than_five_clients_nothing_is_drawn(tmp_path: Path, clients: int) -> None:
    found = audited()
    kept = [10**7 + number for number in range(clients)]
    evaluation = found.evaluation
    evaluation.scores = evaluation.scores[evaluation.scores["victim"].isin(kept)].reset_index(drop=True)
    evaluation.profiles = evaluation.profiles[evaluation.profiles["victim"].isin(kept)].reset_index(drop=True)
    write_run(found, directory=tmp_path, key=b"k")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "class shares (bars)" not in page
    assert "a faint band" not in page
