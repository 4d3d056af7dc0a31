"""Whole counts are decoded from shares in which the last, smaller mini-batch weighs more."""

import dataclasses
import itertools
import math

import pytest
import torch

from fedleak.attacks.composition.exact_counts import ExactCounts, most_likely_counts
from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.simulated_clients import draw_examples
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from tests.composition_toys import estimate, learner, views


def _slow(shares: list[float], examples: int, batch: int, error: float) -> list[int]:
    """Every composition of the whole and of the last mini-batch."""
    steps = -(-examples // batch)
    last, classes = examples - (steps - 1) * batch, len(shares)
    best, found = -math.inf, [0] * classes
    for whole in itertools.product(range(examples + 1), repeat=classes):
        if sum(whole) != examples:
            continue
        for late in itertools.product(*(range(min(n, last) + 1) for n in whole)):
            if sum(late) != last:
                continue
            value = sum(math.log(math.comb(n, m)) for n, m in zip(whole, late, strict=True))
            for share, n, m in zip(shares, whole, late, strict=True):
                value -= (share - ((n - m) / batch + m / last) / steps) ** 2 / (2 * error**2)
            if value > best:
                best, found = value, list(whole)
    return found


@pytest.mark.parametrize("error", [0.002, 0.02, 0.1])
def test_dynamic_programming_is_exhaustive_search(error: float) -> None:
    generator = generator_for(0, "counts")
    shares = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    shares = shares / shares.sum(1, keepdim=True)
    found = most_likely_counts(shares, 11, 4, error)
    for row, expected in zip(found.tolist(), (_slow(row, 11, 4, error) for row in shares.tolist()), strict=True):
        assert row == expected


def test_counts_are_exact_where_the_shares_are() -> None:
    generator = generator_for(0, "labels")
    labels = torch.randint(7, (30, 70), generator=generator)
    hot = torch.nn.functional.one_hot(labels, 7).double()
    shares = (hot[:, :64].sum(1) / 32 + hot[:, 64:].sum(1) / 6) / 3
    noisy = shares + 0.001 * torch.randn(shares.shape, generator=generator, dtype=torch.float64)
    right = (most_likely_counts(noisy, 70, 32, 0.001) == hot.sum(1)).all(1)
    assert float(right.double().mean()) > 0.8
    # Rounding the shares is wrong for almost everybody.
    assert float(((shares * 70).round() == hot.sum(1)).all(1).double().mean()) < 0.2
    # The counts of others are as wrong as those of strangers.
    assert not bool((most_likely_counts(noisy.roll(1, 0), 70, 32, 0.001) == hot.sum(1)).all(1).any())


def test_the_toy_has_no_smaller_batch_and_other_algorithms_are_refused() -> None:
    (view,), true = views(LocalTraining(optimizer="sgd", learning_rate=0.02, batch_size=32))  # 120 = 3 * 32 + 24
    counts = estimate(ExactCounts(), view).proportions * 120
    torch.testing.assert_close(counts, counts.round(), atol=1e-9, rtol=0)
    assert float((counts - true * 120).abs().mean()) < 1
    (view,), _ = views(LocalTraining(optimizer="sgd", learning_rate=0.02, momentum=0.5, batch_size=32))
    with pytest.raises(ViewError, match="SGD"):
        estimate(ExactCounts(), view)


def test_shares_that_no_counts_explain_give_the_nearest_counts() -> None:
    far = torch.tensor([[5.0, -4.0, 0.0]], dtype=torch.float64)
    assert most_likely_counts(far, 10, 4, 0.001).tolist() == [[50, -40, 0]]


def test_a_single_mini_batch_has_counts_of_the_right_sum() -> None:
    # 0.3 and 0.2 of 120 examples are 36 and 24, but the errors of the five shares round to one example too many.
    shares = torch.tensor([[0.3, 0.3, 0.2, 0.1, 0.1]], dtype=torch.float64)
    shares = shares + torch.tensor([0.6, -0.1, -0.2, -0.2, -0.1], dtype=torch.float64) / 120
    for batch in (120, 200):
        assert most_likely_counts(shares, 120, batch, 0.003).tolist() == [[36, 36, 24, 12, 12]]


def test_clients_with_less_than_a_mini_batch_are_simulated_with_all_of_their_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[list[int]] = []

    def recorded(known: Auxiliary, counts: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
        drawn.append(counts.sum(1).tolist())
        return draw_examples(known, counts, generator=generator)

    monkeypatch.setattr("fedleak.attacks.composition.exact_counts.draw_examples", recorded)
    for batch, simulated in ((200, 120), (50, 100)):
        algorithm = learner(LocalTraining(optimizer="sgd", learning_rate=0.02, batch_size=batch))
        view = dataclasses.replace(views()[0][0].select(torch.arange(1)), algorithm=algorithm)
        estimate(ExactCounts(simulated=2), view)
        assert drawn.pop() == [simulated] * 2
