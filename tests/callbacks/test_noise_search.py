"""The search for a noise scale as part of a training."""

from pathlib import Path

import pytest

from fedleak.callbacks.noise_search import NoiseSearch
from fedleak.core.errors import InputError
from fedleak.server.noise_injection import NoiseInjection
from tests import toys
from tests.ranking_toys import ranker, record, source


@pytest.mark.integration
def test_the_search_is_part_of_a_training_and_is_not_repeated(tmp_path: Path) -> None:
    data = source(users=15)
    module = ranker(data)
    search = NoiseSearch(attack={"ranking/raifle": {"max_iter": 2}}, clients=3, generations=1, population=3)
    record(tmp_path, data, module, more=[search])
    assert search.scale is not None
    assert 0.001 <= search.scale <= 1
    assert module.manipulation == NoiseInjection(scale=search.scale)
    assert module.round_settings() == {0: {"scale": search.scale}}
    again = NoiseSearch()
    again.load_state_dict(search.state_dict())
    again.attack = None  # type: ignore[assignment]
    record(tmp_path / "resumed", data, ranker(data), more=[again])
    assert again.scale == search.scale


@pytest.mark.integration
def test_a_learner_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="NoiseSearch"):
        toys.train(tmp_path, rounds=1, more=[NoiseSearch()])
