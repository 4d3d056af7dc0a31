"""Annealed block Gibbs sampling of click patterns under a linear Gaussian model, all victims and chains at once."""

import torch
from torch import Tensor

from protocol.click_models import patterns


def sample_lists(
    maps: Tensor,
    target: Tensor,
    log_prior: Tensor,
    *,
    chains: int,
    sweeps: int,
    annealed: int,
    generator: torch.Generator,
) -> Tensor:
    """Samples all lists' patterns given ``target = sum_q maps_q^T p_q + noise`` with unit noise.

    One list at a time is drawn from its exact law over all ``2^L`` patterns given the others. The likelihood counts
    little at first and fully after `annealed` sweeps; only the sweeps after that count. Chains are weighted by the
    energy of the best state each has seen, because a chain that is stuck above another has not found the posterior.

    Args:
        maps: ``(V, Q, L, P)`` whitened.
        target: ``(V, P)`` whitened.
        log_prior: ``(V, Q, 2^L)``.
        chains: independent chains of each victim.
        sweeps: passes over the lists.
        annealed: passes of them before the likelihood counts fully.
        generator: source of randomness.

    Returns:
        ``(V, Q, L)`` click probabilities, averaged over the conditional laws that were drawn from.
    """
    codes = patterns(maps.shape[2]).to(maps)
    gram = maps @ maps.transpose(2, 3)
    energy = ((codes @ gram) * codes).sum(-1) / 2
    chances = log_prior.exp().flatten(0, 1)
    # A list that can send nothing sends the empty pattern.
    chances[:, 0] += chances.sum(1) == 0
    state = torch.multinomial(chances, chains, replacement=True, generator=generator)
    chosen = codes[state].reshape(*maps.shape[:2], chains, -1).transpose(1, 2).contiguous()
    residual = target[:, None] - torch.einsum("vkql,vqlp->vkp", chosen, maps)
    marginals = torch.zeros_like(chosen)
    best = torch.full(chosen.shape[:2], torch.inf, dtype=maps.dtype)
    empty = torch.zeros(codes.shape[0], dtype=torch.bool).index_fill_(0, torch.tensor([0]), True)
    for sweep in range(sweeps):
        heat = min(1.0, 1e-3 ** (1 - sweep / max(annealed, 1)))
        for number in torch.randperm(maps.shape[1], generator=generator).tolist():
            own = maps[:, number]
            residual += chosen[:, :, number] @ own
            fit = (residual @ own.transpose(1, 2)) @ codes.T - energy[:, None, number]
            law = log_prior[:, None, number] + heat * fit
            law = torch.where(torch.isfinite(law).any(-1, keepdim=True), law, torch.where(empty, 0.0, -torch.inf))
            law = law.softmax(-1)
            chosen[:, :, number] = codes[_draw(law, generator)]
            residual -= chosen[:, :, number] @ own
            if sweep >= annealed:
                marginals[:, :, number] += law @ codes
        if sweep >= annealed:
            best = torch.minimum(best, residual.square().sum(-1) / 2)
    weights = (-best).softmax(1)
    averaged: Tensor = (marginals * weights[..., None, None]).sum(1) / max(sweeps - annealed, 1)
    return averaged


def _draw(law: Tensor, generator: torch.Generator) -> Tensor:
    """One index from each law ``(..., S)``, by its distribution function."""
    reached = law.cumsum(-1)
    level = torch.rand(law.shape[:-1], generator=generator, dtype=law.dtype) * reached[..., -1]
    # Rounding may put the level on the last step, beyond which there is nothing.
    return torch.searchsorted(reached, level[..., None], right=True).squeeze(-1).clamp(max=law.shape[-1] - 1)
