"""Published label sets: hand cases, and recovery of the classes of a small batch."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from fedleak.attacks.composition.counts import CountEstimate
from fedleak.attacks.composition.label_sets import RLG, GradInversionLabels, IDLGLabels, LabelSet, separable
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.seeding import generator_for
from tests.attacks.runs import run
from tests.composition_toys import views


def test_signs_by_hand() -> None:
    gradient = torch.tensor([[[1.0, -2.0], [3.0, -1.0], [0.5, 0.5]]])
    assert IDLGLabels().present(gradient, torch.tensor([2])).tolist() == [[True, False, False]]
    assert GradInversionLabels().present(gradient, torch.tensor([2])).tolist() == [[True, True, False]]


def test_a_positive_entry_alone_is_separable() -> None:
    assert separable(np.array([[1.0], [-1.0], [-2.0]]), 0)
    assert not separable(np.array([[1.0], [1.0], [-2.0]]), 0)
    assert separable(np.array([[1.0], [1.0], [-2.0]]), 2)  # the vector may be reversed
    assert not separable(np.zeros((3, 0)), 0)


def test_rlg_finds_the_labels_of_a_batch_smaller_than_the_number_of_classes() -> None:
    draw = generator_for(0, "rlg")
    labels = torch.tensor([1, 4, 4, 7])
    soft = (0.1 * torch.randn(4, 12, generator=draw)).softmax(1)
    features = torch.rand(4, 30, generator=draw)
    gradient = ((soft - one_hot(labels, 12)).T @ features / 4)[None].double()
    assert RLG().present(gradient, torch.tensor([4])).nonzero()[:, 1].tolist() == [1, 4, 7]


@pytest.mark.parametrize("attack", [IDLGLabels(), GradInversionLabels(), RLG()], ids=lambda attack: attack.name)
def test_sets_of_a_client_are_not_those_of_another(attack: LabelSet) -> None:
    (view,), shares = views(LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None))
    found = run(attack, view, CountEstimate)
    own = float((found.present == (shares > 0)).double().mean())
    others = float((found.present == (shares.roll(3, 0) > 0)).double().mean())
    assert own > others - 0.05
    assert int(found.counts.sum(1).max()) <= int(view.example_counts.max())
