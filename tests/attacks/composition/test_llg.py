"""LLG assigns all labels at once as if one after the other."""

import torch

from fedleak.attacks.composition.baselines import RandomGuess
from fedleak.attacks.composition.llg import LLG, LLGAlone, LLGDummies, greedy_counts
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.seeding import generator_for
from tests.attacks.runs import of_others
from tests.composition_toys import estimate, l1, views


def test_all_labels_at_once_are_those_of_one_after_the_other() -> None:
    draw = generator_for(0, "gradient")
    gradient = torch.randn(6, 5, generator=draw, dtype=torch.float64)
    offset = torch.rand(5, generator=draw, dtype=torch.float64) / 5
    impact, sizes = torch.tensor(-4.0, dtype=torch.float64), torch.tensor([7, 31, 2, 100, 64, 5])
    found = greedy_counts(gradient, offset, impact, sizes)
    for row, size, counts in zip(gradient, sizes.tolist(), found, strict=True):
        left = row - offset
        slow = [c for c in range(5) if row[c] < 0][:size]
        for c in slow:
            left[c] -= impact / size
        while len(slow) < size:
            slow.append(int(left.argmin()))
            left[slow[-1]] -= impact / size
        assert counts.tolist() == torch.tensor(slow).bincount(minlength=5).tolist()


def test_an_impact_of_each_client_is_used_for_that_client() -> None:
    draw = generator_for(0, "impacts")
    gradient = torch.randn(4, 5, generator=draw, dtype=torch.float64)
    offset, sizes = torch.zeros(5, dtype=torch.float64), torch.tensor([7, 9, 20, 3])
    impact = -torch.rand(4, 1, generator=draw, dtype=torch.float64) - 1
    found = greedy_counts(gradient, offset, impact, sizes)
    alone = [greedy_counts(g[None], offset, i, s[None])[0] for g, i, s in zip(gradient, impact, sizes, strict=True)]
    assert torch.equal(found, torch.stack(alone))


def test_dummies_come_near_images_and_the_gradient_alone_beats_a_guess() -> None:
    (view,), shares = views(LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None))
    images, dummies, alone, guess = (
        l1(estimate(attack, view).proportions, shares) for attack in (LLG(), LLGDummies(), LLGAlone(), RandomGuess())
    )
    assert images < 0.05
    assert dummies < 0.05
    assert alone < 0.8 * guess
    assert l1(estimate(LLGAlone(), of_others(view)).proportions, shares) > 1.2 * alone
    for kind in ("zeros", "ones"):
        assert l1(estimate(LLGDummies(dummies=kind), view).proportions, shares) < 0.5 * guess
