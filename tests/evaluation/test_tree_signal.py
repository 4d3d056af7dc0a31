"""What defences leave of trees: the predictions of a recorded forest, and the rounds in which it stands."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.tree_layout import margins
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.errors import InputError
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.tables.sklearn_tables import SklearnTable
from fedleak.defenses.compression import Clip
from fedleak.defenses.trees import MaskedHessians, NoisyLeaves, RoundedTrees
from fedleak.evaluation.tree_signal import kept_predictions
from fedleak.modules.learners.trees import FederatedTrees
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.recordings.what_if import DefendedRecording
from tests.toys import quiet_trainer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("xgboost")
    place = tmp_path_factory.mktemp("trees")
    recorder = DeltaRecorder(directory=str(place / "deltas"))
    data = SklearnTable(split=ClientSplit(clients=3), clients_per_round=1.0)
    quiet_trainer(3, place, recorder).fit(FederatedTrees(most_rounds=3, eta=0.3), datamodule=data)
    return place / "deltas"


def algorithm_of(recording: Recording) -> TreesAlgorithm:
    algorithm = recorded_learner(recording)
    assert isinstance(algorithm, TreesAlgorithm)
    return algorithm


def test_without_a_defence_the_loss_is_that_of_the_trained_forest(folder: Path) -> None:
    recording = DefendedRecording(folder, [])
    rounds = list(kept_predictions(recording, algorithm_of(recording)))
    assert [number for number, *_ in rounds] == [0, 1, 2]
    # The server received the forest of the first two rounds before the third.
    (last,) = recording.views(rounds=[2])
    auxiliary = recording.auxiliary()
    rows = auxiliary["images"].flatten(1).float()
    start = algorithm_of(recording).start(float(last.model[BASE_SCORE]))
    scores = margins(last.model[TREES], rows) + start
    loss = float(binary_cross_entropy_with_logits(scores, auxiliary["labels"].float()))
    assert rounds[1][3] == pytest.approx(loss, abs=1e-6)
    for _, before, after, _ in rounds:
        assert torch.equal(before, after)


def test_masks_change_no_prediction_and_noise_does(folder: Path) -> None:
    masked = DefendedRecording(folder, [MaskedHessians()])
    for _, before, after, _ in kept_predictions(masked, algorithm_of(masked)):
        assert torch.equal(before, after)
    losses = []
    for scale in (0.0, 3.0):
        noisy = DefendedRecording(folder, [NoisyLeaves(clip=1.0, scale=scale)])
        losses.append([loss for *_, loss in kept_predictions(noisy, algorithm_of(noisy))])
    assert losses[1][2] > 2 * losses[0][2]


def test_rounds_stand_where_they_are_and_averages_are_refused(folder: Path) -> None:
    defended = DefendedRecording(folder, [RoundedTrees(digits=1)])
    assert defended.stands_at == {0: 0, 1: 1, 2: 2}
    with pytest.raises(InputError, match="Clip"):
        DefendedRecording(folder, [Clip(norm=1.0)])
