"""What defences leave of the trees of a federated forest: predictions on the server's own rows."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.tree_layout import margins
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.view import RoundView
from fedleak.recordings.recording import Recording
from fedleak.recordings.what_if import DefendedRecording


def kept_predictions(
    recording: DefendedRecording, algorithm: TreesAlgorithm
) -> Iterator[tuple[int, Tensor, Tensor, float]]:
    """What each round's trees predict on the server's labelled rows, as recorded and with the defences.

    The forest grows from round to round by the trees with the defences. Each of them was grown on the recorded forest,
    which a training with the defences would not have; how clients would correct the noise of earlier trees is not seen.
    The server is taken to begin at the mean of the base scores that clients send.

    Args:
        recording: recording of trees; without labelled rows of the server, nothing is yielded.
        algorithm: what its clients compute.

    Yields:
        The round, ``(M,)`` sum of the round's trees on each row as recorded, the same with the defences, and the mean
        loss on the rows of the forest with the defences after the round.
    """
    auxiliary = recording.auxiliary()
    if not {IMAGES, LABELS} <= auxiliary.keys():
        return
    rows = auxiliary[IMAGES].flatten(1).float()
    labels = auxiliary[LABELS].float()
    as_recorded = Recording.views(recording, learner=algorithm)
    with_defences = recording.views(learner=algorithm)
    forest: Tensor | None = None
    number = -1
    sums: list[Tensor] = []
    for view, defended in zip(as_recorded, with_defences, strict=True):
        if view.round != number:
            if forest is not None:
                forest = forest + sums[1]
                yield number, sums[0], sums[1], _loss(algorithm, forest, labels)
            # The forest that the first recorded clients received.
            if forest is None:
                forest = margins(view.model[TREES], rows) + algorithm.start(_base_score(view, defended))
            number = view.round
            sums = [torch.zeros(len(rows)), torch.zeros(len(rows))]
        for index, sent in enumerate((view, defended)):
            sums[index] = sums[index] + margins(sent.deltas[TREES].flatten(0, 1), rows)
    if forest is not None:
        yield number, sums[0], sums[1], _loss(algorithm, forest + sums[1], labels)


def _base_score(view: RoundView, defended: RoundView) -> float:
    """Base score of the forest: before the first tree, the mean of what the clients send."""
    if bool((view.model[TREES][..., 0] >= -1).any()):
        return float(view.model[BASE_SCORE])
    return float(defended.deltas[BASE_SCORE].mean())


def _loss(algorithm: TreesAlgorithm, scores: Tensor, labels: Tensor) -> float:
    if algorithm.objective == "binary:logistic":
        return float(binary_cross_entropy_with_logits(scores, labels))
    return float(mse_loss(scores, labels))
