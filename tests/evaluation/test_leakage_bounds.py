"""Bounds of every attack against exact Bayes attacks, capacities and entropies against hand calculations."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from fedleak.client.click_models import cascade_log_law, patterns, steps_for_law, uniform_log_law
from fedleak.core.scoring import auc_per_victim
from fedleak.evaluation.leakage_bounds import (
    accuracy_bound,
    auc_bound,
    capacity_bits,
    choice_bits,
    pair_bound,
    pattern_bits,
    pattern_bits_given_count,
)


def words(items: int, positives: int) -> Tensor:
    """``(W, n)`` all choices of `positives` among `items`."""
    chosen = torch.tensor(list(itertools.combinations(range(items), positives)))
    return torch.zeros(len(chosen), items, dtype=torch.float64).scatter_(1, chosen, 1.0)


def bayes(codes: Tensor, law: Tensor, labels: Tensor, noise: float, draws: int = 4000) -> tuple[Tensor, Tensor]:
    """AUC and accuracy ``(draws,)`` of the best attack on codes ``(W, d)`` of labels ``(W, n)`` with `law` ``(W,)``.

    With a known number of positives, the ranking by posterior probabilities has the largest mean AUC.
    """
    generator = torch.Generator().manual_seed(0)
    sent = torch.multinomial(law, draws, replacement=True, generator=generator)
    received = codes[sent] + noise * torch.randn(draws, codes.shape[1], generator=generator, dtype=codes.dtype)
    posterior = (law.log() - torch.cdist(received, codes).square() / (2 * noise**2)).softmax(1) @ labels
    auc = auc_per_victim(posterior, labels[sent].float(), torch.ones(draws, labels.shape[1], dtype=torch.bool))
    return auc.double(), ((posterior > 0.5) == labels[sent].bool()).double().mean(1)


def bounds(
    items: int, positives: int, noise: float, dimensions: int, entropy: float | None = None
) -> tuple[float, ...]:
    """Bounds of the AUC and the accuracy for updates of norm 1."""
    n, k = torch.tensor([items]), torch.tensor([positives])
    bits = capacity_bits(clip=1.0, noise_scale=noise, dimensions=torch.tensor([dimensions]))
    h = choice_bits(n, k) if entropy is None else torch.tensor([entropy])
    auc = float(auc_bound(items=n, positives=k, entropy=h, bits=bits))
    return auc, float(accuracy_bound(items=n, entropy=h, bits=bits))


@pytest.mark.parametrize("noise", [3.0, 1.0, 0.5, 0.2])
@pytest.mark.parametrize("kind", ["orthogonal", "random", "one number"])
def test_no_bayes_attack_exceeds_the_bounds(kind: str, noise: float) -> None:
    labels = words(7, 3)
    generator = torch.Generator().manual_seed(1)
    codes = {
        "orthogonal": labels - labels.mean(1, keepdim=True),
        "random": torch.randn(len(labels), 4, generator=generator, dtype=torch.float64),
        "one number": torch.linspace(-1, 1, len(labels), dtype=torch.float64)[:, None],
    }[kind]
    codes = codes / codes.norm(dim=1).amax()
    auc, accuracy = bayes(codes, torch.full((len(labels),), 1 / len(labels), dtype=torch.float64), labels, noise)
    highest, rightest = bounds(7, 3, noise, codes.shape[1])
    margin = 3 / len(auc) ** 0.5
    assert float(auc.mean()) <= min(highest, pair_bound(clip=1.0, noise_scale=noise)) + margin * float(auc.std())
    assert float(accuracy.mean()) <= rightest + margin * float(accuracy.std())


@pytest.mark.parametrize(("items", "positives"), [(40, 14), (40, 30), (500, 100)])
@pytest.mark.parametrize("budget", [0.0067, 0.1, 2.1])
def test_an_orthogonal_code_reaches_the_bound_of_a_weak_signal(items: int, positives: int, budget: float) -> None:
    """Code ``s e_i`` per item, centred: the exact Bayes AUC is ``Phi(s / (sqrt 2 sigma))``, budget is (c / sigma)^2."""
    share = positives / items
    amplitude = (budget / (items * share * (1 - share))) ** 0.5
    exact = 0.5 * (1 + math.erf(amplitude / 2))
    bound, _ = bounds(items, positives, budget**-0.5, items)
    assert 0.95 < (exact - 0.5) / (bound - 0.5) < (3 / math.pi) ** 0.5


def test_the_bound_starts_at_guessing_and_ends_at_certainty() -> None:
    n, k = torch.tensor([20, 20, 20, 1]), torch.tensor([5, 5, 5, 1])
    entropy = choice_bits(n, k)
    assert entropy[0] == pytest.approx(math.log2(math.comb(20, 5)))
    found = auc_bound(items=n, positives=k, entropy=entropy, bits=torch.tensor([0.0, 5.0, 14.0, 1.0]))
    assert found[0] == pytest.approx(0.5, abs=1e-6)
    assert 0.8 < float(found[1]) < 1
    assert found[2] == 1
    assert found[3].isnan()
    right = accuracy_bound(items=n[:3], entropy=entropy[:3], bits=torch.tensor([0.0, 5.0, 14.0]))
    assert 0.75 < float(right[0]) < float(right[1]) < float(right[2]) == 1


def test_what_an_attack_knows_of_the_clicks_is_part_of_its_bound() -> None:
    """Clicks of a cascade: the law given their number by enumeration; the best attack without and with an update."""
    mask = torch.ones(1, 2, 4, dtype=torch.bool)
    law = cascade_log_law(steps_for_law("informational", (0.6, 0.3, 0.1), 4), mask)
    codes = patterns(4).double()
    labels = torch.cat([codes.repeat_interleave(16, 0), codes.repeat(16, 1)], dim=1)
    joint = (law[0, 0].double().exp()[:, None] * law[0, 1].double().exp()).flatten()
    kept = (labels.sum(1) == 3) & (joint > 0)
    given = joint[kept] / joint[kept].sum()
    bits = float(-(given * given.log2()).sum())
    assert float(pattern_bits_given_count(law, torch.tensor([3]))) == pytest.approx(bits)
    sent = torch.randn(int(kept.sum()), 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for noise in (100.0, 1.0, 0.3):
        auc, _ = bayes(sent / sent.norm(dim=1, keepdim=True), given, labels[kept], noise)
        assert float(auc.mean()) <= bounds(8, 3, noise, 8, bits)[0] + 3 * float(auc.std()) / len(auc) ** 0.5


def test_equally_likely_patterns_have_the_entropy_of_a_choice() -> None:
    mask = torch.ones(3, 2, 5, dtype=torch.bool)
    mask[1, 1] = False  # a list without documents
    law = uniform_log_law(mask, every=True)
    items, clicks = mask.flatten(1).sum(1), torch.tensor([4, 2, 0])
    torch.testing.assert_close(pattern_bits_given_count(law, clicks), choice_bits(items, clicks))


def test_one_dimension_of_signal_three_times_the_noise_carries_one_bit() -> None:
    assert float(capacity_bits(clip=3**0.5, noise_scale=1.0, dimensions=torch.tensor(1))) == pytest.approx(1.0)


def test_many_dimensions_carry_no_more_than_their_energy() -> None:
    """As d grows the capacity tends to E / (2 ln 2)."""
    found = capacity_bits(clip=0.25, noise_scale=0.01884, dimensions=torch.tensor(10**7))
    assert float(found) == pytest.approx(127.0, abs=0.1)


def test_the_capacity_bounds_what_a_channel_tells() -> None:
    """One bit sent as +-1 through Gaussian noise: its mutual information lies below the capacity, and near it."""
    generator = torch.Generator().manual_seed(0)
    noise = 1.0
    sent = torch.randint(0, 2, (200_000,), generator=generator) * 2.0 - 1
    received = sent + noise * torch.randn(sent.shape, generator=generator)
    # I = 1 - E[log2(1 + exp(-2 x y / sigma^2))]
    information = 1 - float(torch.nn.functional.softplus(-2 * sent * received).mean()) / math.log(2)
    capacity = float(capacity_bits(clip=1.0, noise_scale=noise, dimensions=torch.tensor(1)))
    assert 0.9 * capacity < information < capacity


def test_uniform_clicks_have_the_logarithm_of_their_number_of_patterns() -> None:
    mask = torch.ones(2, 3, 5, dtype=torch.bool)
    mask[1, 2, 3:] = False
    mask[1, 1] = False  # a list that sends nothing
    expected = [3 * math.log2(30), math.log2(30) + math.log2(6)]
    assert pattern_bits(uniform_log_law(mask)).tolist() == pytest.approx(expected)
