"""Checks of features: each statistic against a slow reference, what each finds, and what it cannot."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from fedleak.core.errors import InputError
from fedleak.core.rankers import LINEAR
from fedleak.defenses.manipulation_checks import (
    Check,
    Distribution,
    Entropy,
    Received,
    check_named,
    checks,
    column_entropy,
    constant_share,
    kolmogorov_smirnov,
)
from fedleak.defenses.within_list_checks import list_correlations, score_spread
from fedleak.server.codebook import Codebook
from fedleak.server.feature_manipulation import FeatureManipulation
from fedleak.server.fingerprint import Fingerprint
from fedleak.server.marked_document import MarkedDocument
from fedleak.server.noise_injection import NoiseInjection
from fedleak.server.permutation import Permutation
from fedleak.server.targeted import Targeted
from fedleak_recorder.conformal import conformal_thresholds

KINDS = checks()

FEATURES = 30


def clients(count: int, seed: int) -> Received:
    """Ragged lists of documents whose features depend on one another, with exact zeros, in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    ranker = torch.rand(FEATURES, generator=torch.Generator().manual_seed(9)) * 2 - 1
    quality = torch.rand(count, 3, 8, 1, generator=generator)
    own = torch.rand(count, 3, 8, FEATURES, generator=generator)
    features = (quality + own - 0.5).clamp(0, 1)
    mask = torch.arange(8) < torch.randint(4, 9, (count, 3, 1), generator=generator)
    return Received(features=features * mask[..., None], mask=mask, model={LINEAR: ranker.expand(count, -1)})


def manipulated(honest: Received, manipulation: FeatureManipulation) -> Received:
    generator = torch.Generator().manual_seed(5)
    model = {name: value[0] for name, value in honest.model.items()}
    sent = manipulation.features(model, honest.features, honest.mask, generator=generator)
    return dataclasses.replace(honest, features=sent)


def flagged(name: str, judged: Received) -> float:
    check, reference = KINDS[name](), clients(40, seed=1)
    limit = float(conformal_thresholds(check(clients(200, seed=2), reference), 0.05).values[0])
    return float((check(judged, reference) > limit).double().mean())


@pytest.mark.parametrize("name", KINDS)
def test_honest_clients_are_rarely_flagged(name: str) -> None:
    assert flagged(name, clients(400, seed=3)) < 0.1


@pytest.mark.parametrize(
    ("name", "manipulation"),
    [
        ("constant-columns", Fingerprint()),
        ("entropy", NoiseInjection()),
        ("distribution", NoiseInjection(share_of_real=0.5)),
        ("range", NoiseInjection(share_of_features=0.3)),
        ("equal-scores", Codebook()),
        ("correlation", Permutation()),
    ],
)
def test_a_check_finds_what_it_is_for(name: str, manipulation: FeatureManipulation) -> None:
    assert flagged(name, manipulated(clients(100, seed=4), manipulation)) > 0.95


@pytest.mark.parametrize(
    "manipulation",
    [
        *(Codebook(), Fingerprint(), NoiseInjection(), Permutation()),
        MarkedDocument(document=torch.zeros(FEATURES)),
        Targeted(NoiseInjection(), participants=2, share=0.4),
    ],
    ids=lambda manipulation: type(manipulation).__name__,
)
def test_checks_that_a_deviation_names_find_it(manipulation: FeatureManipulation) -> None:
    judged = manipulated(clients(100, seed=4), manipulation)
    named = [check for notice in manipulation.noticed for check in notice.checks if issubclass(check, Check)]
    assert named
    assert [check.name for check in named if flagged(check.name, judged) < 0.95] == []


@pytest.mark.parametrize("name", ["constant-columns", "entropy", "distribution", "range"])
def test_no_check_of_single_columns_sees_a_permutation(name: str) -> None:
    honest, reference = clients(20, seed=4), clients(10, seed=1)
    check = KINDS[name]()
    torch.testing.assert_close(check(manipulated(honest, Permutation()), reference), check(honest, reference))


def test_kolmogorov_smirnov_is_scipys() -> None:
    received, reference = clients(6, seed=6), clients(5, seed=7).documents()
    found = kolmogorov_smirnov(received, reference)
    for client in range(6):
        own = received.of(torch.tensor([client])).documents()
        for column in range(FEATURES):
            expected = stats.ks_2samp(own[:, column].numpy(), reference[:, column].numpy()).statistic
            assert float(found[client, column]) == pytest.approx(expected, abs=1e-12)


def test_largest_distribution_statistic_is_that_of_the_smallest_asymptotic_p_value() -> None:
    received, reference = clients(4, seed=6), clients(5, seed=7)
    found = Distribution(combined="largest")(received, reference)
    documents = reference.documents()
    for client in range(4):
        own = received.of(torch.tensor([client])).documents()
        distances = [stats.ks_2samp(own[:, f].numpy(), documents[:, f].numpy()).statistic for f in range(FEATURES)]
        scale = np.sqrt(len(own) * len(documents) / (len(own) + len(documents)))
        least = min(stats.kstwobign.sf(scale * d) for d in distances)
        assert stats.kstwobign.sf(float(found[client])) == pytest.approx(least)


def test_entropy_is_scipys_of_a_histogram() -> None:
    received = manipulated(clients(4, seed=6), NoiseInjection(scale=2.0))
    low, high = torch.linspace(-0.5, 0, FEATURES), torch.linspace(0.5, 2, FEATURES)
    found = column_entropy(received, low, high, 7)
    for client in range(4):
        own = received.of(torch.tensor([client])).documents().numpy()
        for column in range(FEATURES):
            inside = np.linspace(float(low[column]), float(high[column]), 8)
            counts = np.histogram(own[:, column], np.concatenate([[-np.inf], inside, [np.inf]]))[0]
            assert float(found[client, column]) == pytest.approx(stats.entropy(counts), abs=1e-6)


def test_correlations_are_numpys() -> None:
    received = clients(2, seed=6)
    received.features[1, :, :, 0] = 0.3
    found = list_correlations(received.features, received.mask * 1 > 0)
    for client in range(2):
        lists = [received.features[client, q][received.mask[client, q]].double().numpy() for q in range(3)]
        centred = np.concatenate([rows - rows.mean(0) for rows in lists])
        norms = np.linalg.norm(centred, axis=0)
        norms[norms < 1e-6] = np.inf
        expected = (centred / norms).T @ (centred / norms)
        np.fill_diagonal(expected, 0)
        np.testing.assert_allclose(found[client].numpy(), expected, atol=1e-9)


def test_constant_columns_and_spread_by_hand() -> None:
    features = torch.tensor([[[[1.0, 2.0], [1.0, 3.0], [0.0, 0.0]], [[4.0, 4.0], [5.0, 5.0], [6.0, 9.0]]]])
    mask = torch.tensor([[[True, True, False], [True, True, True]]])
    assert constant_share(features, mask).tolist() == [[0.5, 0.0]]
    received = Received(features=features, mask=mask, model={LINEAR: torch.tensor([[1.0, 0.0]])})
    torch.testing.assert_close(score_spread(received), torch.tensor([[0.0, (2 / 3) ** 0.5]], dtype=torch.float64))


def test_a_client_without_documents_is_never_flagged() -> None:
    received = clients(2, seed=3)
    empty = Received(features=received.features * 0, mask=torch.zeros_like(received.mask), model=received.model)
    for kind in KINDS.values():
        assert kind()(empty, clients(5, seed=1)).tolist() == [torch.finfo(torch.float64).min] * 2


def test_what_makes_no_sense_is_refused() -> None:
    received = clients(2, seed=3)
    with pytest.raises(InputError, match="reference"):
        Entropy()(received, Received(features=received.features[..., :3], mask=received.mask, model={}))
    with pytest.raises(InputError, match="features"):
        Received(features=received.features[0], mask=received.mask, model={})
    with pytest.raises(ValueError, match="bins"):
        Entropy(bins=0)
    with pytest.raises(ValueError, match="combined"):
        Distribution(combined="median")  # type: ignore[arg-type]


def test_a_check_is_found_by_its_name_or_class_path() -> None:
    assert check_named("entropy") is check_named("fedleak.defenses.manipulation_checks.Entropy") is Entropy
    with pytest.raises(InputError, match="check"):
        check_named("entropie")
    with pytest.raises(InputError, match="Check"):
        check_named("fedleak.core.view.View")
