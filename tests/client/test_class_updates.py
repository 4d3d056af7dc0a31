"""Clients of single classes train on images that take turns."""

import torch

from fedleak.client.auxiliary_images import Auxiliary, auxiliary
from fedleak.client.class_updates import gradient_bases, round_robin_images
from fedleak.client.last_layer import flat_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.seeding import generator_for
from tests.composition_toys import views


def test_classes_and_their_images_take_turns() -> None:
    known = Auxiliary(torch.zeros(5, 1, 2, 2), torch.tensor([0, 0, 1, 2, 2]), torch.tensor([[0, 1], [2, -1], [3, 4]]))
    sets = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    found = round_robin_images(known, sets, torch.tensor([5, 4, 7]))
    assert found.tolist() == [[0, 1, 0, 1, 0, -1, -1], [0, 2, 1, 2, -1, -1, -1], [0, 2, 3, 1, 2, 4, 0]]


def test_equal_step_bases_are_clients_of_the_victims_sizes() -> None:
    (view,), _ = views()
    counts = torch.tensor([120, 60, 120, 60, 120, 120, 60, 60, 60, 120])
    known = auxiliary(view, 10)
    present = torch.zeros(10, 10, dtype=torch.bool)
    present[:, :2] = True
    bases, united = gradient_bases(view, known, present, sizes=counts, generator=generator_for(0, "bases"))
    assert not bool(bases[:, 2:].any())
    assert torch.equal(bases[0], bases[2])
    assert torch.equal(bases[1], bases[8])
    assert torch.equal(united[0], united[2])
    learner = view.algorithm
    assert isinstance(learner, ClassifierAlgorithm)
    classes = torch.cat([torch.eye(10, dtype=torch.bool)[[0, 1, 0, 1]], present[:2]])
    examples = round_robin_images(known, classes, torch.tensor([60, 60, 120, 120, 60, 120]))
    deltas = learner.simulate_examples(
        view.model, known.images, known.labels, examples, generator=generator_for(0, "bases")
    )
    by_hand = flat_change(view, None, deltas)
    torch.testing.assert_close(torch.cat([bases[1, :2], bases[0, :2], united[[1, 0]]]), by_hand)
