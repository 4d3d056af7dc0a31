"""MSLR is standardised by its training documents."""

from pathlib import Path

import numpy as np

from fedleak.datamodules.ranking.mslr import MSLR, column_statistics, standardise_
from tests.datamodules.ranking_files import check_cohort, documents, text, write


def test_mslr_is_standardised_by_its_training_documents(tmp_path: Path) -> None:
    train, test = (documents([5, 9, 4], features=136, grades=5, seed=seed) for seed in (0, 1))
    for _, _, values in train:
        values[7] = 0.1
        values[8] = 1e6 + 3 * values[8]
    folder = tmp_path / "MSLR-WEB10K" / "Fold1"
    write(folder / "train.txt", text(train, comment=False, end="\r\n"))
    write(folder / "test.txt", text(test, comment=False))
    data = MSLR(root=str(tmp_path), queries_per_client=3)
    raw, raw_test = (
        np.array([values for *_, values in rows]).astype(np.float32).astype(float) for rows in (train, test)
    )
    mean, std = raw.mean(0), raw.std(0)
    std[7] = np.inf
    # read_test first: it must find the training statistics by itself.
    assert np.allclose(data.read_test().features, (raw_test - mean) / std, rtol=1e-5, atol=1e-6)
    assert np.allclose(data.read_train().features, (raw - mean) / std, rtol=1e-5, atol=1e-6)
    assert (data.read_train().features[:, 7] == 0).all()
    assert (data.read_test().features[:, 7] == 0).all()
    assert (data.num_features, data.num_grades, data.num_clients) == (136, 5, 1)
    check_cohort(data, [0])


def test_statistics_over_many_rows_equal_those_of_numpy() -> None:
    features = np.random.default_rng(0).normal(5.0, 2.0, size=(40_000, 3)).astype(np.float32)
    statistics = column_statistics(features)
    assert np.allclose(statistics.mean, features.astype(float).mean(0), rtol=1e-12)
    assert np.allclose(statistics.std, features.astype(float).std(0), rtol=1e-12)
    standardise_(features, statistics)
    assert np.allclose(features.mean(0, dtype=float), 0, atol=1e-6)
    assert np.allclose(features.std(0, dtype=float), 1, atol=1e-6)
