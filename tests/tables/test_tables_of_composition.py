"""Decaf's tables as an experiment: what it leaves, its null classes, and what it refuses."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.gaussian_budget import composed_epsilon
from fedleak.core.places import table_files
from fedleak.tables.after.model_quality import RECORDED
from fedleak.tables.after.model_quality import UNRECORDED as UNRECORDED_MODEL
from fedleak.tables.table import Choice, read_table
from tests.composition_toys import estimate, views
from tests.places import CONFIGS
from tests.tables import tables
from tests.tables.tables import paper_value, read

TABLE = f"""
train: {CONFIGS / "train" / "decaf_digits.yaml"}
metrics: [l1, linf, null_false_positive, coverage, accuracy]
set: {{model.local.batch_size: 24, data.auxiliary_per_class: 8, model.network: {{hidden: 16, channels: 4}}}}
axes:
  data: {{digits: {{data.split.examples_per_client: 72}}}}
  variant:
    adadelta: {{}}
    noisy:
      setting: {{epsilon: 500}}
      model.defenses: [{{class_path: LocalDP, init_args: {{clip: 1.0, epsilon: 500, delta: 1.0e-5}}}}]
      attacks: {{decaf: {{calibrator: false}}}}
attacks:
  decaf-match: {{shared: 20, local: 4, passes: 1}}
  decaf: {{}}
  uniform-present: {{}}
  random-guess: {{}}
rounds: {{separate: true}}
after: [accuracy]
"""
TOGETHER = TABLE.replace("rounds: {separate: true}", "rounds: {which: [1], separate: true, history: true}").replace(
    "passes: 1", "passes: 1, rounds: all"
)
UNRECORDED = TABLE.replace("accuracy]\nset", "accuracy, round_seconds]\nset").replace(
    "after: [accuracy]", "after: [{accuracy: {unrecorded: true}}]"
)


@pytest.mark.integration
def test_a_table_leaves_distances_compositions_and_a_figure_of_every_client(tmp_path: Path) -> None:
    assert tables.reproduce(tmp_path, TABLE, "--persons", page=True) == 0
    results = read(tmp_path / "out")
    found = {(r.attack, r.metric, r.setting["variant"], r.setting["round"]): r for r in results}
    for number in (1, 2):
        guess = found["random-guess", "l1", "adadelta", number]
        assert found["decaf-match", "l1", "adadelta", number].mean < 0.5 * guess.mean
        assert guess.n == 10
        assert 0 <= found["global-model", "accuracy", "adadelta", number].mean <= 1
    assert found["random-guess", "null_false_positive", "adadelta", 1].mean == 1
    assert found["decaf-match", "coverage", "adadelta", 1].n == 10
    assert ("decaf", "coverage", "adadelta", 1) not in found
    lines = pd.read_csv(tmp_path / "out" / "compositions.csv")
    kept = lines[(lines["attack"] == "decaf-match") & (lines["round"] == 0)]
    sums = kept.groupby(["setting.variant", "victim"])[["true", "inferred"]].sum()
    assert len(sums) == 20
    assert ((sums - 1).abs() < 1e-6).all().all()
    assert ((kept["low"] <= kept["inferred"] + 1e-9) & (kept["inferred"] <= kept["high"] + 1e-9)).all()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "what share of its examples each class" in page
    assert "True (bars) and inferred class shares of every client" in page
    again = (tmp_path / "out" / "results.json").read_text()
    assert tables.reproduce(tmp_path, TABLE) == 0  # cells are read back
    assert json.loads((tmp_path / "out" / "results.json").read_text())["results"] == json.loads(again)["results"]


@pytest.mark.integration
def test_rounds_together_are_the_last_with_all_before(tmp_path: Path) -> None:
    assert tables.reproduce(tmp_path, TOGETHER) == 0
    rounds = {r.setting["round"] for r in read(tmp_path / "out")}
    assert rounds == {2}


@pytest.mark.integration
def test_recording_and_attacking_leave_the_global_model_as_it_would_be(tmp_path: Path) -> None:
    assert tables.reproduce(tmp_path, UNRECORDED) == 0
    results = read(tmp_path / "out")
    found = {(r.attack, r.metric, r.setting["variant"], r.setting["round"]): r for r in results}
    for variant in ("adadelta", "noisy"):
        for number in (1, 2):
            recorded, alone = (found[name, "accuracy", variant, number] for name in (RECORDED, UNRECORDED_MODEL))
            assert recorded.mean == alone.mean
        assert found[UNRECORDED_MODEL, "round_seconds", variant, 2].mean > 0
    assert found[RECORDED, "accuracy", "adadelta", 2].mean != found[RECORDED, "accuracy", "adadelta", 1].mean


@pytest.mark.integration
def test_more_images_than_there_are_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.reproduce(tmp_path, TABLE.replace("examples_per_client: 72", "examples_per_client: 1200")) == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("digits:", "CIFAR-100:", "CIFAR-100"),
        ("decaf: {calibrator", "nonsense: {calibrator", "nonsense"),
        ("rounds: {separate", "rounds: {asunder", "asunder"),
        ("setting: {epsilon: 500}", "where: {date: [MNIST]}", "date"),
        ("hidden: 16", "hidden: 0", "hidden"),
        ("examples_per_client: 72", "examples_per_client: 1", "examples_per_client"),
        ("after: [accuracy]", "after: [accuracies]", "Did you mean accuracy?"),
    ],
)
def test_a_wrong_table_is_refused(
    tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in TABLE
    assert tables.reproduce(tmp_path, TABLE.replace(old, new)) == 2
    assert message in capsys.readouterr().err


def test_the_papers_means_stand_beside_its_own_tables_only() -> None:
    setting = {"data": "MNIST", "variant": "adadelta", "round": 1}
    assert paper_value("decaf", "l1", setting) == (0.185, "Decaf Table III")
    kept = {**setting, "variant": "null-classes-kept"}
    assert paper_value("decaf", "l1", kept) == (0.463, "Decaf Table XIV")
    larger = {**setting, "data": "cifar10", "variant": "vgg16"}
    assert paper_value("decaf", "l1", larger) == (0.228, "Decaf Table XIII")
    assert paper_value("decaf", "l1", {**setting, "variant": "vgg16"}) is None
    assert paper_value("uniform-present", "l1", setting) is None
    assert paper_value("decaf", "l1", {**setting, "variant": "auxiliary-2"}) is None
    assert paper_value("decaf", "l1", {**setting, "data": "digits"}) is None


@pytest.mark.parametrize("name", ["decaf_tables3to7", "decaf_sgd", "decaf_full_batch"])
def test_users_have_the_papers_sizes_with_either_optimizer(name: str) -> None:
    cells = read_table(table_files()[name]).cells(Choice())
    assert [cell.data for cell in cells] == ["MNIST", "FashionMNIST", "cifar10", "fer2013", "ham10000"]
    trained = [cell.config["model"].get("init_args", {}) for cell in cells]
    assert {options.get("local", {}).get("optimizer") for options in trained} == (
        {"sgd"} if name == "decaf_sgd" else {None}
    )
    assert name == "decaf_full_batch" or trained[-1]["local.batch_size"] == 10


def test_the_budgets_of_figure_14_are_those_of_its_multipliers() -> None:
    cells = read_table(CONFIGS / "paper" / "decaf" / "decaf_figure14.yaml").cells(Choice())
    found = {}
    for cell in cells:
        local = cell.config["model"].get("init_args", {}).get("local", {})
        if "noise_multiplier" in local:
            rounds = cell.config["trainer"]["max_steps"]
            found[local["noise_multiplier"]] = cell.setting["epsilon"]
            exact = composed_epsilon((local["noise_multiplier"] / 2,), rounds, 1e-5)
            assert cell.setting["epsilon"] == pytest.approx(exact, rel=1e-3)
    assert sorted(found) == [0.1, 0.25, 1, 4, 16]


def test_the_closed_form_finds_the_classes_under_weight_decay() -> None:
    local = LocalTraining(learning_rate=0.1, momentum=0.5, weight_decay=0.01, batch_size=20)
    (view,), true = views(local)
    present = estimate(ClosedForm(), view).present
    assert float((present == (true > 0)).double().mean()) > 0.9
    assert not bool(torch.all(present))
