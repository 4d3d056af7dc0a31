"""Trees of each client, read from a history and from a recording of a training."""

import dataclasses
from pathlib import Path

import pytest
import torch

from fedleak.attacks.trees import TreeCounts, TreeRows
from fedleak.attacks.trees.estimates import TreeCountsEstimate
from fedleak.attacks.trees.row_estimates import TreeRowsEstimate
from fedleak.attacks.trees.toy import ROUNDS, algorithm, rounds_toy
from fedleak.attacks.trees.tree_messages import trees_of_clients
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.trees import TREES
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.tables.sklearn_tables import SklearnTable
from fedleak.evaluation.message_selection import client_truth
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests.attacks.runs import run
from tests.sum_toys import history_of
from tests.toys import quiet_trainer


def test_others_are_those_that_came_in_between() -> None:
    view, _ = rounds_toy()
    clients = trees_of_clients(view, algorithm(), most_trees=4)
    assert [client.message for client in clients] == [0, 1, 2]
    assert [len(client.trees) for client in clients] == [min(4, ROUNDS)] * 3
    for client in clients:
        assert [len(tree.others) for tree in client.trees] == [0, 2, 2, 2]


def test_an_equal_tree_of_another_client_is_one_of_the_others() -> None:
    view, _ = rounds_toy()
    sender = torch.arange(view.victims)
    sender[1] = 0
    models = {number: dict(model) for number, model in view.round_models.items()}
    for model in list(models.values())[1:]:
        model[TREES] = model[TREES].clone()
        model[TREES][1] = model[TREES][0]
    equal = dataclasses.replace(view, round_models=models, deltas={n: v[sender] for n, v in view.deltas.items()})
    for client in trees_of_clients(equal, algorithm(), most_trees=2):
        assert [len(tree.others) for tree in client.trees] == [0, 2]
        assert [len(tree.before) for tree in client.trees] == [0, 3]


@pytest.mark.integration
def test_a_recording_of_a_training_is_read(tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    from fedleak.modules.learners.trees import FederatedTrees

    recorder = DeltaRecorder(keep_records=True)
    module = FederatedTrees(trees=1, depth=3, most_rounds=2)
    quiet_trainer(2, tmp_path, recorder).fit(module, datamodule=SklearnTable(split=ClientSplit(clients=3)))
    recording = Recording(tmp_path / "deltas")
    (first,) = recording.views(rounds=[0], learner=recorded_learner(recording))
    for arguments in ({}, {"use_hessians": False}):
        metrics = run(TreeCounts(**arguments), first, TreeCountsEstimate).score(first, recording.truth(first)).metrics
        assert metrics["exact-nodes"].tolist() == [1, 1, 1]
        assert metrics["certified-nodes"].tolist() == [1, 1, 1]
    history = history_of(recording)
    truth = client_truth(recording, history, ("record_hash", "records", "record_labels", "clients"))
    metrics = run(TreeRows(), history, TreeRowsEstimate).score(history, truth).metrics
    assert metrics["certified-rows"].tolist() == [1, 1, 1]
    assert torch.equal(metrics["false-certified-rows"], torch.zeros(3, dtype=torch.float64))
