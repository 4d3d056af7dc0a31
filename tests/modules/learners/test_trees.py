"""Federated forests: what clients send, what the server appends, and what a recording says of both."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.tree_layout import HESSIAN, LEFT, PADDING, leaves_of, margins, tree_count
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.errors import InputError
from fedleak.core.view import View
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.tables.sklearn_tables import SklearnTable
from fedleak.defenses.compression import Clip
from fedleak.defenses.trees import MaskedHessians
from fedleak.modules.learners.trees import FederatedTrees
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests.toys import quiet_trainer

xgboost = pytest.importorskip("xgboost")


def table(clients_per_round: float = 1.0) -> SklearnTable:
    return SklearnTable(split=ClientSplit(clients=3), clients_per_round=clients_per_round)


def view_of(recording: Recording, number: int) -> View:
    (view,) = recording.views(rounds=[number])
    return view


def trained(folder: Path, module: FederatedTrees, data: SklearnTable, rounds: int) -> Recording:
    recorder = DeltaRecorder(keep_records=True)
    quiet_trainer(rounds, folder, recorder).fit(module, datamodule=data)
    return Recording(folder / "deltas")


@pytest.mark.integration
def test_a_client_grows_the_trees_that_xgboost_grows_on_the_whole_model() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 5)).astype(np.float32)
    labels = (rows[:, 0] + rng.standard_normal(200) > 0).astype(np.float32)
    rows[::11, 3] = np.nan
    module = FederatedTrees(image_shape=(1, 1, 5), num_classes=2, num_clients=1, trees=2, depth=4, eta=0.3)
    matrix = xgboost.DMatrix(rows, labels)
    options = {"objective": "binary:logistic", "eta": 0.3, "max_depth": 4, "nthread": 1, "tree_method": "hist"}
    whole = None
    for number in range(3):
        sent = module.algorithm.grow(
            module.public_parameters(), torch.from_numpy(rows), torch.from_numpy(labels), round_number=number
        )
        module._append({name: value[None] for name, value in sent.items()})
        whole = xgboost.train(options, matrix, 2, xgb_model=whole)
        ours = module(torch.from_numpy(rows)).numpy()
        assert np.abs(ours - whole.predict(matrix, output_margin=True)).max() < 1e-5
    assert tree_count(module.trees) == 6
    assert float(module.base_score.detach()) == pytest.approx(labels.mean(), abs=1e-6)


@pytest.mark.integration
def test_a_recording_of_bagging(tmp_path: Path) -> None:
    module = FederatedTrees(trees=2, depth=3, most_rounds=4)
    recording = trained(tmp_path, module, table(), 2)
    algorithm = recorded_learner(recording)
    assert isinstance(algorithm, TreesAlgorithm)
    assert algorithm == module.algorithm
    first, second = (view_of(recording, number) for number in (0, 1))
    assert first.deltas[TREES].shape == (3, 2, 15, 8)
    assert first.deltas[BASE_SCORE].shape == (3, 1)
    assert first.model[TREES].shape == (4 * 3 * 2, 15, 8)
    assert tree_count(first.model[TREES]) == 0
    # The forest of the second round holds what the clients sent in the first, in the order of the clients.
    assert tree_count(second.model[TREES]) == 6
    sent = {tree.numpy().tobytes() for tree in first.deltas[TREES].flatten(0, 1)}
    assert {tree.numpy().tobytes() for tree in second.model[TREES][:6]} == sent
    assert float(second.model[BASE_SCORE]) == pytest.approx(float(first.deltas[BASE_SCORE].mean()))
    assert torch.equal(second.deltas[BASE_SCORE], second.model[BASE_SCORE].expand(3, 1))


@pytest.mark.integration
def test_the_first_tree_counts_the_rows_of_its_nodes(tmp_path: Path) -> None:
    recording = trained(tmp_path, FederatedTrees(), table(), 1)
    view = view_of(recording, 0)
    truth = recording.truth(view)
    for victim in range(3):
        tree = view.deltas[TREES][victim, 0]
        base = float(view.deltas[BASE_SCORE][victim])
        is_row = truth["record_labels"][victim] >= 0
        rows = truth["records"][victim][is_row].flatten(1)
        leaves = leaves_of(tree, rows)
        counts = leaves.bincount(minlength=len(tree))
        is_leaf = tree[:, LEFT] == -1
        assert torch.allclose(tree[is_leaf, HESSIAN], counts[is_leaf] * base * (1 - base), rtol=1e-4)
        assert int(counts.sum()) == int(view.example_counts[victim])
        assert base == pytest.approx(float(truth["record_labels"][victim][is_row].float().mean()), abs=1e-6)


@pytest.mark.integration
def test_cyclic_clients_grow_one_after_the_other(tmp_path: Path) -> None:
    module = FederatedTrees(aggregation="cyclic", most_rounds=3)
    recording = trained(tmp_path, module, table(clients_per_round=1), 3)
    last = view_of(recording, 2)
    assert last.deltas[TREES].shape == (1, 1, 15, 8)
    assert last.model[TREES].shape == (3, 15, 8)
    assert tree_count(last.model[TREES]) == 2
    with pytest.raises(InputError, match="room"):
        trained(tmp_path / "long", FederatedTrees(most_rounds=1), table(), 2)
    with pytest.raises(InputError, match="one client"):
        trained(tmp_path / "all", FederatedTrees(aggregation="cyclic"), table(), 1)


@pytest.mark.integration
def test_masked_hessians_and_the_rounds_of_the_forest(tmp_path: Path) -> None:
    module = FederatedTrees(defenses=[MaskedHessians()], most_rounds=2, base_score_from="first")
    recording = trained(tmp_path, module, table(), -1)
    assert recording.rounds == [0, 1]
    view = view_of(recording, 0)
    nodes = view.deltas[TREES].flatten(0, 2)
    assert set(nodes[nodes[:, LEFT] != PADDING, HESSIAN].tolist()) == {1.0}
    assert set(nodes[nodes[:, LEFT] == PADDING, HESSIAN].tolist()) <= {0.0}
    assert float(module.base_score.detach()) in view.deltas[BASE_SCORE].flatten().tolist()


@pytest.mark.integration
def test_squared_errors_and_the_utility(tmp_path: Path) -> None:
    data = table()
    module = FederatedTrees(objective="reg:squarederror", eta=0.3)
    trained(tmp_path, module, data, 2)
    batch = next(iter(data.val_dataloader()))
    metric = module.update_metrics(batch)["val/mean_squared_error"]
    expected = (margins(module.trees.detach(), batch["image"].flatten(1)) + float(module.base_score.detach())).detach()
    assert float(metric.compute()) == pytest.approx(float((expected - batch["label"]).square().mean()), abs=1e-5)
    assert float(metric.compute()) < 0.2


def test_what_no_forest_is_grown_on_is_refused() -> None:
    with pytest.raises(InputError, match="Clip, which changes numbers that a server averages"):
        FederatedTrees(defenses=[Clip(norm=1.0)])
    with pytest.raises(InputError, match="two classes"):
        FederatedTrees(image_shape=(1, 1, 5), num_classes=3, num_clients=2)
    with pytest.raises(InputError, match="table"):
        FederatedTrees(image_shape=(1, 8, 8), num_classes=2, num_clients=2)
