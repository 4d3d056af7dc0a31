"""The generated set has the shape of the real ones and something to learn."""

import numpy as np
import pytest

from fedleak.core.errors import InputError
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking


@pytest.mark.parametrize(("shape", "features", "grades"), [("mslr", 136, 5), ("letor", 46, 3)])
def test_the_generated_set_has_the_shape_and_a_linear_relation(shape: str, features: int, grades: int) -> None:
    data = SyntheticRanking(shape=shape)  # type: ignore[arg-type]
    train, test = data.read_train(), data.read_test()
    assert (data.num_features, data.num_grades, data.num_clients) == (features, grades, 75)
    assert train.features.shape == (train.offsets[-1], features)
    assert train.lengths.min() >= 8
    assert 190 <= train.lengths.max() <= 200
    assert np.unique(train.grades).tolist() == list(range(grades))
    # A linear fit on the training queries ranks the test queries' documents.
    weights = np.linalg.lstsq(train.features - train.features.mean(0), train.grades - train.grades.mean())[0]
    assert np.corrcoef(test.features @ weights, test.grades)[0, 1] > 0.5
    assert data.fingerprint == SyntheticRanking(shape=shape).fingerprint  # type: ignore[arg-type]
    assert data.fingerprint != SyntheticRanking(shape=shape, seed=1).fingerprint  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"fewest_documents": 9, "most_documents": 8}, {"queries": 0}])
def test_an_impossible_generated_set_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        SyntheticRanking(**arguments)  # type: ignore[arg-type]
