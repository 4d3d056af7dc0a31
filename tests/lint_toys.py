"""Messages rebuilt from what clients of Flower's and NVFlare's examples send, each with a leak and an honest twin.

The examples' client code was read (adap/flower at fdef7af, NVIDIA/NVFlare at f3b7c1b); nothing of it is copied. Values
are drawn here.
"""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedleak_recorder.arrays import Array

Parts = Mapping[str, Any]
PICKLED = b"\x80\x04\x95\x10\0\0\0\0\0\0\0}"
"""How what the module pickle of Python writes begins, by protocol 4."""


@dataclass(frozen=True)
class Fixture:
    """A message of an example.

    Attributes:
        name: folder of the example, or what the message is.
        leaking: makes a message with the leak from a seed.
        honest: makes a message that serves the same end without it.
        kinds: kinds of findings that name the leak.
    """

    name: str
    leaking: Callable[[int], Parts]
    honest: Callable[[int], Parts]
    kinds: frozenset[str]


FIXTURES: list[Fixture] = []


def draws_of(seed: int) -> np.random.Generator:
    return np.random.default_rng([73, seed])


def table(draws: np.random.Generator, rows: int) -> Array:
    """``(rows, 6)`` age, sex, glucose, body mass index, hypertension and temperature of people."""
    columns = [
        draws.integers(18, 91, rows),
        draws.integers(0, 2, rows),
        np.round(draws.normal(105, 30, rows).clip(50, 270), 2),
        np.round(draws.normal(28, 6, rows).clip(14, 60), 1),
        draws.random(rows) < 0.1,
        np.round(draws.normal(36.8, 0.5, rows), 1),
    ]
    return np.stack([np.asarray(column, float) for column in columns], axis=1)


def network(draws: np.random.Generator) -> dict[str, Array]:
    """Change of a small network."""
    shapes = {"0.weight": (32, 20), "0.bias": (32,), "2.weight": (10, 32), "2.bias": (10,)}
    return {name: (0.01 * draws.normal(size=shape)).astype("f") for name, shape in shapes.items()}


def fixture(name: str, leaking: Callable[[int], Parts], honest: Callable[[int], Parts], *kinds: str) -> None:
    FIXTURES.append(Fixture(name, leaking, honest, frozenset(kinds)))


def _survival(seed: int) -> Parts:
    draws = draws_of(seed)
    count = int(draws.integers(20, 200))
    times = np.ceil(draws.exponential(30, count))
    events = draws.integers(0, 2, count)
    return {"survival-data": {"T": times, "E": events}, "metrics": {"num-examples": count}}


def _hazard(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"metrics": {"hazard": draws.random(), "restricted_mean": 24 * draws.random(), "num-examples": 131}}


fixture("flower federated-kaplan-meier-fitter", _survival, _hazard, "per-record", "raw-rows")


def _sums_of_few(seed: int) -> Parts:
    ages = draws_of(seed).integers(18, 90, 3)
    sums = {"age_mean_sum": int(ages.sum()), "age_mean_count": 3, "age_std_sum_sqd": int((ages**2).sum())}
    return {"query_results": sums}


def _sums_of_many(seed: int) -> Parts:
    ages = draws_of(seed).integers(18, 90, 300)
    sums = {"age_mean_sum": int(ages.sum()), "age_mean_count": 300, "age_std_sum_sqd": int((ages**2).sum())}
    return {"query_results": sums}


fixture("flower federated-analytics", _sums_of_few, _sums_of_many, "few-people")


def _histogram(seed: int) -> Parts:
    lengths = draws_of(seed).normal(5.8, 0.8, 50).clip(2, 9.9)
    lengths[0] = 9.5
    counts, _ = np.histogram(lengths, np.linspace(2, 10, 10))
    average = float(lengths.sum())
    return {
        "query_results": {"SepalLengthCm": counts.tolist(), "SepalLengthCm_avg": average, "SepalLengthCm_count": 50}
    }


def _noised_histogram(seed: int) -> Parts:
    noised = draws_of(seed).normal(size=9) * 4 + 10
    return {"query_results": {"SepalLengthCm": noised.tolist(), "SepalLengthCm_avg": 290.1, "SepalLengthCm_count": 50}}


fixture("flower quickstart-pandas", _histogram, _noised_histogram, "few-people", "class-counts")


def _documents(seed: int) -> Parts:
    draws = draws_of(seed)
    words = ("patient", "seen", "with", "fever", "and", "cough", "treated", "at", "home", "for", "days")
    documents = [" ".join(draws.choice(words, 30)) for _ in range(4)]
    return {"docs_n_scores": {"documents": documents, "scores": draws.random(4).tolist()}}


def _scores(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"docs_n_scores": {"scores": draws.random(4).tolist(), "mode": "dense", "mean": draws.normal(size=16)}}


fixture("flower fedrag", _documents, _scores, "text")


def xgboost_json(draws: np.random.Generator, examples: int) -> bytes:
    """A tree as XGBoost writes it, cut to the parts that a lint looks at."""
    positives = int(draws.integers(1, examples // 2))
    parameters = {"base_score": f"[{positives / examples:.8E}]", "num_feature": "6"}
    tree = {"base_weights": draws.normal(size=7).tolist(), "sum_hessian": (draws.random(7) * 30).tolist()}
    learner = {"gradient_booster": {"model": {"trees": [tree]}, "name": "gbtree"}, "learner_model_param": parameters}
    return json.dumps({"learner": learner, "version": [3, 2, 0]}).encode()


def _trees(seed: int) -> Parts:
    draws = draws_of(seed)
    model = np.frombuffer(xgboost_json(draws, 301), np.uint8)
    return {"arrays": {"0": model}, "metrics": {"num-examples": 301}}


def _masked(seed: int) -> Parts:
    """What a secure sum of histograms sends."""
    masked = draws_of(seed).integers(0, 256, 4096, dtype=np.uint8)
    return {"arrays": {"0": masked}, "metrics": {"num-examples": 301}}


fixture("flower quickstart-xgboost", _trees, _masked, "trees", "class-counts")


def _binary_trees(seed: int) -> Parts:
    values = draws_of(seed).normal(size=50).astype(">f4").tobytes()
    model = b"{L\0\0\0\0\0\0\0\x07learner{L\0\0\0\0\0\0\0\x10gradient_booster{" + values
    return {"arrays": {"0": np.frombuffer(model, np.uint8)}, "metrics": {"num-examples": 301}}


fixture("flower xgboost-comprehensive, nvflare xgboost", _binary_trees, _masked, "trees")


def _oblivious(seed: int) -> Parts:
    draws = draws_of(seed)
    trees = [{"leaf_values": draws.normal(size=8).tolist(), "leaf_weights": draws.integers(1, 40, 8).tolist()}]
    content = json.dumps({"oblivious_trees": trees, "features_info": {}}).encode()
    return {"metric_and_model": {"AUC": 0.91, "model_dict": content}}


fixture("flower quickstart-catboost", _oblivious, _masked, "trees")


def _activations(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"arrays": {"embedding": draws.normal(size=(297, 4)).astype("f")}, "num-examples": 297}


def _split(seed: int) -> Parts:
    """What a label-side call of split learning gets: the numbers of the batch's records, and their activations."""
    draws = draws_of(seed)
    activations = draws.normal(size=(64, 8, 6, 6)).astype("f")
    return {"batch_indices": draws.permutation(5000)[:64], "activations": activations, "num-examples": 64}


def _network(seed: int) -> Parts:
    return {"arrays": network(draws_of(seed)), "metrics": {"num-examples": 297, "train_loss": 0.31}}


fixture("flower vertical-fl, with the number of examples", _activations, _network, "raw-rows")
fixture("nvflare vertical_federated_learning, with the number of examples", _split, _network, "raw-rows")


def _support(seed: int) -> Parts:
    draws = draws_of(seed)
    count = int(draws.integers(20, 80))
    return {"params": {"support_x": table(draws, count), "support_y": draws.integers(0, 2, count)}}


def _linear(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"params": {"coef": draws.normal(size=(1, 30)), "intercept": draws.normal(size=1)}}


fixture("nvflare sklearn-svm", _support, _linear, "support-vectors", "raw-rows")


def _renamed_support(seed: int) -> Parts:
    draws = draws_of(seed)
    count = int(draws.integers(20, 80))
    standardised = draws.normal(size=(count, 30))
    return {"params": {"a": standardised, "b": draws.choice([-1.0, 1.0], count)}}


fixture("support vectors under other names, standardised", _renamed_support, _linear, "raw-rows")


def _newton(seed: int) -> Parts:
    draws = draws_of(seed)
    rows = draws.normal(size=(120, 14))
    weights = draws.random((120, 1)) / 4
    return {"gradient": draws.normal(size=(14, 1)), "hessian": rows.T @ (weights * rows), "steps": 120}


def _first_order(seed: int) -> Parts:
    return {"gradient": draws_of(seed).normal(size=(14, 1)), "steps": 120}


fixture("nvflare hello-lr", _newton, _first_order, "second-order")


def _clusters(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"params": {"center": draws.normal(size=(3, 4)), "count": np.array([1.0, 30.0, 19.0])}}


def _large_clusters(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"params": {"center": draws.normal(size=(3, 4)), "count": draws.integers(20, 60, 3).astype(float)}}


fixture("nvflare sklearn-kmeans", _clusters, _large_clusters, "centroids")


def _first_centres(seed: int) -> Parts:
    """The centres of kmeans++ are rows of the data."""
    return {"params": {"center": np.round(draws_of(seed).normal(5, 1, (8, 4)), 1), "count": None}}


fixture("nvflare sklearn-kmeans, first round", _first_centres, _large_clusters, "raw-rows", "centroids")


def _survival_histogram(seed: int) -> Parts:
    draws = draws_of(seed)
    observed = dict(enumerate(draws.poisson(1.5, 40).tolist()))
    censored = dict(enumerate(draws.poisson(0.5, 40).tolist()))
    return {"params": {"hist_obs": observed, "hist_cen": censored}}


def _encrypted(seed: int) -> Parts:
    return {"params": {"hist_obs": draws_of(seed).bytes(3000), "hist_cen": draws_of(seed + 100).bytes(3000)}}


fixture("nvflare kaplan-meier-he, without encryption", _survival_histogram, _encrypted, "few-people")


def _statistics(seed: int) -> Parts:
    draws = draws_of(seed)
    counts = draws.poisson(20, 10)
    counts[-1] = 1
    edges = np.linspace(17, 90, 11)
    bins = [[float(edges[bin]), float(edges[bin + 1]), int(counts[bin])] for bin in range(10)]
    histogram = {"train": {"Age": {"bins": bins}}}
    return {"count": {"train": {"Age": int(counts.sum())}}, "histogram": histogram, "max": {"train": {"Age": 90}}}


def _moments(seed: int) -> Parts:
    draws = draws_of(seed)
    bins = [[10.0 * bin, 10.0 * bin + 10, int(draws.integers(60, 90))] for bin in range(10)]
    histogram = {"train": {"Age": {"bins": bins}}}
    mean = {"train": {"Age": 38.4 + draws.random()}}
    return {"count": {"train": {"Age": 812}}, "mean": mean, "histogram": histogram}


fixture("nvflare federated-statistics", _statistics, _moments, "few-people")


def _addresses(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"items": [f"user{int(number)}@example.org" for number in draws.integers(0, 10**6, 30)]}


def _blinded(seed: int) -> Parts:
    return {"items": [draws_of(seed + row).bytes(32) for row in range(30)]}


fixture("nvflare psi, without its protocol", _addresses, _blinded, "identifiers", "text")


def _losses(seed: int) -> Parts:
    draws = draws_of(seed)
    count = int(draws.integers(10, 300))
    metrics = {"losses": draws.exponential(0.4, count).tolist(), "num-examples": count}
    return {"arrays": network(draws), "metrics": metrics}


fixture("losses of all records in the metrics", _losses, _network, "per-record")


def _predictions(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"arrays": {**network(draws), "predictions": draws.random(211)}, "metrics": {"num-examples": 211}}


fixture("predictions beside the update", _predictions, _network, "per-record")


def _class_counts(seed: int) -> Parts:
    draws = draws_of(seed)
    counts = draws.integers(10, 90, 10)
    return {"arrays": network(draws), "metrics": {"class_counts": counts.tolist(), "num-examples": int(counts.sum())}}


def _noised_counts(seed: int) -> Parts:
    draws = draws_of(seed)
    counts = draws.integers(10, 90, 10) + draws.laplace(scale=5, size=10)
    return {"arrays": network(draws), "metrics": {"class_counts": counts.tolist(), "num-examples": 517}}


fixture("class counts in the metrics", _class_counts, _noised_counts, "class-counts")


def _prevalence(seed: int) -> Parts:
    positives = int(draws_of(seed).integers(1, 140))
    return {"metrics": {"num-examples": 283, "prevalence": positives / 283, "auc": 0.8123}}


def _accuracy(seed: int) -> Parts:
    correct = int(draws_of(seed).integers(1, 283))
    return {"metrics": {"num-examples": 283, "accuracy": correct / 283, "auc": 0.8123}}


fixture("share of positives in the metrics", _prevalence, _accuracy, "class-counts")


def _tokens(seed: int) -> Parts:
    tokens = draws_of(seed).integers(1, 30_000, (12, 48))
    return {"arrays": {**network(draws_of(seed)), "input": tokens}, "metrics": {"num-examples": 12}}


fixture("token numbers of the texts", _tokens, _network, "raw-rows")


def _images(seed: int) -> Parts:
    """Smooth images of 8 bits, with dark corners as photographs of lesions have."""
    draws = draws_of(seed)
    ramp = np.add.outer(np.arange(24), np.arange(24)) * 4.0
    images = (ramp + 10 * draws.normal(size=(16, 24, 24)) - 20).clip(0, 255).astype(np.uint8)
    return {"arrays": {"batch": images}, "metrics": {"num-examples": 16}}


def _quantised(seed: int) -> Parts:
    quantised = (128 + 30 * draws_of(seed).normal(size=(16, 24, 24))).clip(0, 255).astype(np.uint8)
    return {"arrays": {"conv.weight": quantised}, "metrics": {"num-examples": 640}}


fixture("images of 8 bits", _images, _quantised, "raw-rows")


def _pixels(seed: int) -> Parts:
    images = _images(seed)["arrays"]["batch"].astype("f") / 255
    return {"arrays": {"batch": images}, "metrics": {"num-examples": 16}}


fixture("images with values from 0 to 1", _pixels, _network, "raw-rows")


def _covariance(seed: int) -> Parts:
    rows = draws_of(seed).normal(size=(60, 12))
    return {"params": {"matrix": rows.T @ rows, "mean": rows.mean(0)}}


def _projection(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"params": {"matrix": draws.normal(size=(12, 12)), "mean": draws.normal(size=12)}}


fixture("scatter matrix of a principal component analysis", _covariance, _projection, "second-order")


def _keys(seed: int) -> Parts:
    number = int(draws_of(seed).integers(10**6, 10**7))
    return {
        "arrays": network(draws_of(seed)),
        "config": {"patient_id": number, "contact": f"dr.{number}@clinic.example"},
    }


def _settings(seed: int) -> Parts:
    settings = {"optimizer": "adam", "sha256": f"{seed:064x}", "lr": 0.001, "epochs": 3, "device": "cuda:0"}
    return {"arrays": network(draws_of(seed)), "config": settings}


fixture("keys of patients in the configuration", _keys, _settings, "identifiers")


def _pickled(seed: int) -> Parts:
    return {"parameters": [PICKLED + draws_of(seed).bytes(40).replace(b".", b"") + b"."]}


def _npy(seed: int) -> Parts:
    buffer = io.BytesIO()
    np.save(buffer, draws_of(seed).normal(size=(20, 3)))
    return {"parameters": [buffer.getvalue()]}


fixture("a pickle", _pickled, _npy, "not-opened")


def _rows(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"arrays": {"weights": table(draws, 40)}, "metrics": {"num-examples": 500}}


fixture("rows of a table under the name of weights", _rows, _network, "raw-rows")


def _digest(seed: int) -> Parts:
    draws = draws_of(seed)
    means = np.sort(draws.gamma(9, 5, 30))
    return {"digest": {"centroids": means, "weights": np.ones(30)}}


def _coarse_digest(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"digest": {"centroids": np.sort(draws.gamma(9, 5, 10)), "weights": draws.integers(12, 40, 10)}}


fixture("digest of quantiles with one person in each centroid", _digest, _coarse_digest, "centroids", "raw-rows")


def _sorted_values(seed: int) -> Parts:
    draws = draws_of(seed)
    return {"metrics": {"ecdf": np.sort(draws.gamma(9, 5, 60)).tolist(), "mean": 44.1}}


def _edges(seed: int) -> Parts:
    return {"metrics": {"edges": np.linspace(0, 90 + seed, 61).tolist(), "mean": 44.1}}


fixture("sorted laboratory values", _sorted_values, _edges, "raw-rows")
