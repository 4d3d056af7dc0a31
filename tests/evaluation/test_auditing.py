"""An audit in Python is that of the command, with a table for a notebook."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from fedleak.attacks.interactions.baselines import Chance, Popularity
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.commands import program
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.estimates import Candidates, Scores
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.defenses.local_dp import LocalDP
from fedleak.evaluation import audit
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import AuditResult, run_audit
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.posterior.posterior import POSTERIOR
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.registry import chosen_attacks
from fedleak.evaluation.relevance import relevant
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.steps import RecordingRun, RecordingStep
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from tests import toys

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.mark.integration
def test_an_audit_has_a_table_and_the_numbers_of_the_command(tmp_path: Path) -> None:
    toys.train(tmp_path, rounds=2)
    found = audit(tmp_path / "deltas", [MatchedFilter(), "popularity", "closed-form"], progress=False)
    means = {row["attack"]: row["mean"] for _, row in found.results[found.results["metric"] == "auc"].iterrows()}
    assert means["matched-filter"] > 0.95 > means["popularity"]
    assert set(found.scores["round"]) == {0, 1}
    assert found.missing == {}  # class composition is no question about this recording
    assert "matched-filter" in repr(found)
    assert "<table" in found._repr_html_()

    assert program.main(["audit", str(tmp_path / "deltas")]) == 0
    written = json.loads((tmp_path / "results.json").read_text())["results"]
    command = {row["attack"]: row["mean"] for row in written if row["metric"] == "auc"}
    assert {name: command[name] for name in means} == means

    words = ["audit", str(tmp_path / "deltas"), "--only", "matched-filter,popularity", "--out", str(tmp_path / "two")]
    assert program.main(words) == 0
    written = json.loads((tmp_path / "two" / "results.json").read_text())["results"]
    assert {row["attack"]: row["mean"] for row in written if row["metric"] == "auc"} == means

    one = audit(Recording(tmp_path / "deltas"), only=["direction"], rounds=[1], victims=3, progress=False)
    assert set(one.scores["round"]) == {1}
    assert one.scores["victim"].nunique() <= 3


class Defective(Direction):
    """An attack with a defect."""

    name = "defective"

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        raise ZeroDivisionError("1 // 0")


@pytest.mark.integration
def test_exception_of_an_attack_leaves_the_others_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toys.train(tmp_path, rounds=1)
    found = audit(tmp_path / "deltas", [Defective(), "direction"], progress=False)
    assert set(found.scores["attack"]) == {"direction"}
    assert "ZeroDivisionError" in str(found.missing["defective"])
    assert list(found.evaluation.tracebacks) == ["defective"]
    plan = AuditPlan(recording=Recording(tmp_path / "deltas"), attacks=[Defective()], separate=False)
    with pytest.raises(InputError, match="defective"):
        evaluate_recording(plan, Execution(progress=False))

    command = ["audit", str(tmp_path / "deltas"), "--also", f"{__name__}.Defective"]
    assert program.main([*command, "--gate", "auc=1"]) == 0
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    assert "defective could not run" in said.out
    assert "did not run: " in said.out.partition("gate ok")[2]
    assert "1 // 0" in (tmp_path / "errors.txt").read_text()
    alone = ["run", "--attack", f"{__name__}.Defective", str(tmp_path / "deltas")]
    assert program.main(alone) == 2
    assert program.main(["audit", str(tmp_path / "deltas")]) == 0
    assert not (tmp_path / "errors.txt").exists()


@pytest.mark.integration
def test_images_and_candidates_have_the_type_of_a_double_model(tmp_path: Path) -> None:
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=12)
    data = SyntheticImages(split=split, train_per_class=30, test_per_class=2, auxiliary_per_class=2)
    module = FederatedClassifier(
        network=ClassifierOptions(hidden=8, channels=2), local=LocalTraining(learning_rate=0.1)
    )
    toys.quiet_trainer(1, tmp_path, DeltaRecorder(dtype="float64")).fit(module, datamodule=data)
    found = audit(tmp_path / "deltas", progress=False)
    assert found.evaluation.tracebacks == {}
    assert {"decaf", "llg", "llg-dummies"} <= set(found.scores["attack"])


def test_an_unknown_attack_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="manifest"):
        audit(tmp_path)


def test_nothing_scored_is_an_empty_table() -> None:
    empty = AuditResult(Evaluation(), ["auc"], {"name": "d", "sha256": "0"})
    assert len(empty.results) == 0


def test_a_baseline_alone_is_no_answer() -> None:
    """Unless the attacks on its question are slow, or were not to run."""
    attacks: list[Attack] = [Direction(), Popularity(), Chance()]
    rows = concat([score_table("popularity", {"auc": [0.7]}, setting={}, seed=0, victims=[1])])
    line = AttackInfo(role="baseline", family="interactions", question=Direction.estimates.question())
    found = Evaluation(
        rows, {"popularity": line}, missing={"direction": Reason("misfit", says="it has no item deltas")}
    )
    left = relevant(found, attacks, {"labels"})
    assert left.lines == {}
    assert left.scores.empty
    assert "popularity" in left.unrelated
    slow = {"direction": Reason("slow", says="it is slow (x)")}
    assert relevant(dataclasses.replace(found, missing=slow), attacks, {"labels"}).lines
    assert relevant(found, attacks[1:], {"labels"}).lines == {"popularity": line}


class AllButOne(RecordingStep):
    """Step that leaves one client out and counts the others."""

    name = "all-but-one"
    metrics = ("auc",)

    def unscored(self, view: RoundView) -> Tensor:
        return view.pseudonyms == view.pseudonyms.min()

    def rows(self, run: RecordingRun) -> Iterator[pd.DataFrame]:
        for view in run.recording.views():
            yield run.scores("counted", {"auc": torch.ones(view.victims)}, victims=view.pseudonyms, round=view.round)


@pytest.mark.integration
def test_declared_noise_bounds_every_attack_of_an_audit(tmp_path: Path) -> None:
    toys.train(tmp_path, rounds=1, defenses=(LocalDP(clip=0.05, epsilon=50.0, delta=1e-8),))
    found = audit(tmp_path / "deltas", ["matched-filter"], progress=False)
    means = found.results[found.results["metric"] == "auc"].set_index("attack")["mean"]
    assert 0.5 < means["matched-filter"] < means["bound"] < 1
    toys.train(tmp_path / "no_noise", rounds=1)
    without = audit(tmp_path / "no_noise" / "deltas", ["matched-filter"], progress=False)
    assert "bound" not in set(without.results["attack"])


@pytest.mark.integration
def test_step_from_outside_adds_rows_and_leaves_victims_out(tmp_path: Path) -> None:
    toys.train(tmp_path, rounds=1)
    plain = audit(tmp_path / "deltas", ["direction"], progress=False).scores
    plan = AuditPlan(
        recording=Recording(tmp_path / "deltas"), attacks=chosen_attacks(["direction"]), steps=[AllButOne()]
    )
    found = run_audit(plan, progress=False).scores
    own = found[(found["attack"] == "direction") & found["value"].notna()]
    assert (found["attack"] == "counted").sum() == plain["victim"].nunique()
    assert set(plain["victim"]) - set(own["victim"]) == {plain["victim"].min()}
    own = own[~own["metric"].isin(POSTERIOR)]  # calibrated on the other clients, of whom there is one fewer
    both = own.merge(plain, on=["victim", "metric"], suffixes=("", "_plain"))
    assert len(both) == len(own)
    assert both["value"].equals(both["value_plain"])


def test_victims_left_out_are_in_no_curve_and_among_no_candidates() -> None:
    candidates = Candidates("user", torch.rand(4), torch.tensor([1, 0, 0, 1]).bool(), torch.tensor([0, 0, 1, 1]))
    scores = Scores({"auc": torch.tensor([0.7, 0.9])}, roc=torch.ones(2, 3), candidates=candidates)
    kept = scores.without(torch.tensor([False, True]))
    assert kept.metrics["auc"].isnan().tolist() == [False, True]
    assert kept.roc is not None
    assert kept.roc.isnan().all(1).tolist() == [False, True]
    assert kept.candidates is not None
    assert kept.candidates.owners.tolist() == [0, 0]


@pytest.mark.integration
def test_a_recording_of_deltas_without_a_model_is_audited(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    own = {client: draws.standard_normal((40, 2), dtype=np.float32) for client in "abcdef"}
    release = {"clip": 1.0, "noise_scale": 0.1, "parameters": ["weight"]}
    with Recorder(tmp_path, parameters={"weight": (40, 2)}, holds="deltas", releases=[release]) as recorder:
        for number in range(3):
            noise = 0.1 * draws.standard_normal((6, 40, 2), dtype=np.float32)
            updates = {name: ({"weight": 0.1 * own[name] + noise[place]}, 5) for place, name in enumerate(own)}
            recorder.round(number, None, updates, truth={name: {"client": place} for place, name in enumerate(own)})
    found = audit(tmp_path, progress=False)
    assert not [reason for reason in found.missing.values() if reason.kind == "defect"]
    assert {"linkability", "plain-cosine", "release-check"} <= {*found.scores["attack"]}
