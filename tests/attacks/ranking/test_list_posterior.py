"""The discrete posterior reads honest updates of a ranker; the sampler finds exact posteriors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.list_matching import ListMatching
from fedleak.attacks.ranking.list_posterior import ListPosterior, sample_lists
from fedleak.attacks.ranking.priors import PriorOnly
from fedleak.client.click_models import patterns, uniform_log_law
from fedleak.core.attack import Attack
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import RoundView
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.defenses.local_dp import LocalDP
from fedleak.server.noise_injection import NoiseInjection
from tests.attacks.runs import of_others, run, with_deltas
from tests.ranking_toys import first_view, ranker, record, source


def scores(attack: Attack, view: RoundView) -> torch.Tensor:
    return run(attack, view, InteractionEstimate).scores


@pytest.mark.parametrize("clip", [None, 1.5])
def test_sampler_agrees_with_the_exact_posterior(clip: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(1, 6, 4, generator=generator, dtype=torch.float64)
    whitened = maps * torch.tensor([1.0, 0.5, 2.0, 1.0])
    target = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    prior = uniform_log_law(torch.ones(1, 2, 3, dtype=torch.bool)).double()
    codes = patterns(3).double()
    both = torch.cat([codes.repeat_interleave(8, 0), codes.repeat(8, 1)], dim=1)
    norms = (both @ maps[0]).norm(dim=1, keepdim=True)
    shrunk = torch.ones_like(norms) if clip is None else (clip / norms.clamp(min=1e-30)).clamp(max=1)
    gap = target - shrunk * (both @ whitened[0])
    law = (prior[0, 0].repeat_interleave(8) + prior[0, 1].repeat(8) - gap.square().sum(1) / 2).softmax(0)
    exact = torch.einsum("s,sl->l", law, both).reshape(2, 3)
    found = sample_lists(
        maps, whitened, target, prior, clip=clip, chains=8, sweeps=750, annealed=50, generator=generator
    )
    torch.testing.assert_close(found[0], exact, atol=0.03, rtol=0)


@pytest.mark.integration
@pytest.mark.parametrize("attack", [ListPosterior(sweeps=40, simulated=16), ListMatching(max_iter=30)])
def test_reads_an_update_and_is_at_chance_on_another_clients(
    tmp_path: Path, attack: ListPosterior | ListMatching
) -> None:
    data = source()
    manipulation = NoiseInjection() if isinstance(attack, ListMatching) else None
    recording = record(tmp_path, data, ranker(data, manipulation=manipulation))
    view = first_view(recording)
    labels = recording.truth(view)["labels"]

    def auc(received: RoundView) -> float:
        return float(auc_per_victim(scores(attack, received), labels, view.served_mask).nanmean())

    assert auc(view) > 0.85
    assert abs(auc(of_others(view)) - 0.5) < 0.12


@pytest.mark.integration
def test_the_prior_alone_reads_no_update_and_ranks_no_list_over_another(tmp_path: Path) -> None:
    data = source()
    view = first_view(record(tmp_path, data, ranker(data)))
    assert torch.equal(scores(PriorOnly(), view), scores(PriorOnly(), with_deltas(view, torch.zeros_like)))
    assert set(scores(PriorOnly(prior="uniform"), view)[view.served_mask].tolist()) == {0.5}


@pytest.mark.integration
def test_strong_noise_leaves_guessing_and_no_trend_along_the_list(tmp_path: Path) -> None:
    """Pair weights taken at a noisy end of the path follow the noise: marginals rise down the list, clicks fall."""
    data = SyntheticRanking(
        shape="letor", queries=400, test_queries=4, fewest_documents=10, most_documents=30, queries_per_client=2
    )
    recording = record(tmp_path, data, ranker(data, defenses=[LocalDP(clip=0.25, epsilon=1, delta=1e-8)]))
    view = first_view(recording)
    attack = ListPosterior(prior="uniform", chains=1, sweeps=20, simulated=12)
    posterior = scores(attack, view)
    found = auc_per_victim(posterior, recording.truth(view)["labels"], view.served_mask)
    found = found[~found.isnan()]
    assert float(found.mean()) > 0.5 - 3 * float(found.std()) / len(found) ** 0.5
    marginals = posterior.double().reshape(-1, 10).mean(0)
    slope = np.polyfit(np.arange(10), marginals.numpy(), 1)[0]
    assert slope < 2e-4
