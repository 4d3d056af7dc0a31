"""Class shares from the last bias: exact for one step from uniform predictions; the layer is the manifest's last."""

import dataclasses

import pytest
import torch
from torch.nn import functional

from fedleak.attacks.composition.baselines import RandomGuess
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.last_layer import LastLayerCounts, above_smallest
from fedleak.attacks.composition.uniform_present import UniformPresent
from fedleak.client.last_layer import last_layer, output_layer
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_others, plain_view, run
from tests.composition_toys import estimate, l1, views


def seen(deltas: dict[str, torch.Tensor], rows: frozenset[str] = frozenset()) -> RoundView:
    victims = len(next(iter(deltas.values())))
    model = {name: value[0] for name, value in deltas.items()}
    counts = torch.full((victims,), 20)
    return plain_view(victims, example_counts=counts, deltas=deltas, model=model, row_parameters=rows)


def test_one_step_on_all_examples_from_uniform_predictions_gives_the_counts() -> None:
    counts = torch.tensor([[5, 0, 12, 3], [0, 20, 0, 0], [1, 1, 18, 0]])
    weight, changes = torch.zeros(4, 6), []
    for own in counts:
        labels = torch.arange(4).repeat_interleave(own)
        features = torch.randn(len(labels), 6, generator=generator_for(0, "x"))
        bias = torch.zeros(4, requires_grad=True)
        functional.cross_entropy(features @ weight.T + bias, labels).backward()  # type: ignore[no-untyped-call]
        assert bias.grad is not None
        changes.append(-0.3 * bias.grad)
    view = seen({"last.weight": torch.zeros(3, 4, 6), "last.bias": torch.stack(changes)})
    found = estimate(LastLayerCounts(), view)
    torch.testing.assert_close(found.proportions * 20, counts.double(), atol=1e-4, rtol=0)
    assert torch.equal(found.present, counts > 0)
    assert above_smallest(torch.zeros(1, 4, dtype=torch.float64)).tolist() == [[0.25] * 4]


def test_unknown_clients_are_inferred_far_better_than_by_a_guess_and_not_from_others_updates() -> None:
    (view,), shares = views()
    unknown = dataclasses.replace(view, algorithm=None)
    found, guess = (l1(estimate(attack, unknown).proportions, shares) for attack in (LastLayerCounts(), RandomGuess()))
    assert found < 0.5 * guess
    assert l1(estimate(UniformPresent(), unknown).proportions, shares) < guess
    assert l1(estimate(LastLayerCounts(), of_others(unknown)).proportions, shares) > 0.8 * guess


def test_the_layer_is_the_last_of_the_manifest() -> None:
    deltas = {
        "embedding.weight": torch.zeros(2, 9, 4),
        "hidden.weight": torch.zeros(2, 8, 4),
        "hidden.bias": torch.zeros(2, 8),
        "norm.weight": torch.zeros(2, 8),
        "norm.bias": torch.zeros(2, 8),
        "norm.running_mean": torch.zeros(2, 8),
        "out.weight": torch.zeros(2, 3, 8),
        "out.bias": torch.zeros(2, 3),
        "out_norm.weight": torch.zeros(2, 3),
    }
    assert last_layer(seen(deltas)) == "out"
    assert last_layer(seen(deltas, rows=frozenset({"out.weight"}))) == "hidden"
    value = {"value.weight": torch.zeros(2, 1, 8), "value.bias": torch.zeros(2, 1)}
    for last, reason in ((value, "one output"), ({"scale.weight": torch.zeros(2, 5, 8)}, "scale.weight 5 x 8")):
        with pytest.raises(ViewError, match=reason):  # no hidden layer instead
            last_layer(seen({**deltas, **last}))
    with pytest.raises(ViewError, match="none"):
        last_layer(seen({"norm.bias": torch.zeros(2, 8)}))
    (view,), _ = views()
    assert output_layer(view) == output_layer(dataclasses.replace(view, algorithm=None))


def test_counts_of_other_classes_than_the_layer_has_are_refused() -> None:
    view = seen({"last.weight": torch.zeros(2, 4, 6), "last.bias": torch.zeros(2, 4)})
    found = run(LastLayerCounts(), view, CompositionEstimate)
    with pytest.raises(ViewError, match="classes"):
        found.score(view, {"class_counts": torch.ones(2, 3)})
