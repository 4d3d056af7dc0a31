"""Updates of one law cannot be told apart, of two laws they can."""

import pytest
import torch

from fedleak.evaluation.separability import Classifier, correctly_classified, embeddings
from fedleak.reports.figures.maps import update_maps


def updates(shift: float = 0.0, spread: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    honest, others = torch.randn(2, 120, 6, generator=generator)
    return honest, others * spread + shift


@pytest.mark.integration
@pytest.mark.parametrize("classifier", ["knn", "logistic", "forest"])
def test_chance_where_there_is_one_law_and_certainty_where_two_are_far_apart(classifier: Classifier) -> None:
    assert abs(float(correctly_classified(*updates(), classifier, seed=0).mean()) - 0.5) < 0.13
    assert float(correctly_classified(*updates(shift=4.0), classifier, seed=0).mean()) > 0.98


def test_where_only_the_spread_differs_the_forest_sees_what_no_line_can() -> None:
    """A half-space that holds the narrower half of the updates holds at least half of the wider: 3/4 at best."""
    assert float(correctly_classified(*updates(spread=0.1), "logistic", seed=0).mean()) < 0.75 + 0.05
    assert float(correctly_classified(*updates(spread=0.1), "forest", seed=0).mean()) > 0.9


def test_a_client_is_not_recognised_by_its_other_update() -> None:
    """Each update is its twin's, with the other label: who looked at the twin would be wrong every time."""
    honest, _ = updates()
    assert set(correctly_classified(honest, honest.clone(), "knn", seed=0).tolist()) == {0.5}


@pytest.mark.integration
def test_maps_are_of_both_and_drawn() -> None:
    maps = embeddings(*updates(shift=8.0), [10.0, 30.0], seed=0)
    assert list(maps) == ["perplexity 10", "perplexity 30"]
    for honest, manipulated in maps.values():
        assert honest.shape == manipulated.shape == (120, 2)
        within = (honest - honest.mean(0)).norm(dim=1).mean()
        assert float((honest.mean(0) - manipulated.mean(0)).norm()) > float(within)
    assert update_maps(maps, "c").svg.count("perplexity") >= 2
