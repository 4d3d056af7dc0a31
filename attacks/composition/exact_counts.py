"""Class counts as whole numbers, decoded from the larger weight of the last, smaller mini-batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.composition.base import certain
from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.client.auxiliary_images import Auxiliary, auxiliary
from fedleak.client.last_layer import layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import draw_examples, random_compositions, simulated_changes
from fedleak.core.errors import ViewError
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.ranges import AtLeastTwo
from fedleak.core.view import RoundView

_PAIRS = 40
"""Most likely pairs of a count and the one in the last mini-batch that are kept for each class."""
_AROUND = 3
"""Counts tried on both sides of the most likely one, for each count in the last mini-batch."""

_LEAST_ERROR = 1e-9
"""Smallest error of the closed form: that on clients of one example may be exactly 0."""


@dataclass(frozen=True, kw_only=True)
class ExactCounts(ClosedForm):
    """Most likely whole class counts behind the shares of `ClosedForm`.

    If the batch size B does not divide the N examples, each of the r examples of the last mini-batch weighs 1/r instead
    of 1/B in its step. With T steps, n_c examples of class c and m_c of them in the last mini-batch, the closed form
    finds the share ``s_c = ((n_c - m_c) / B + m_c / r) / T`` instead of ``n_c / N``. Given ``sum n = N`` and ``sum m =
    r``, dynamic programming over the classes maximises the normal likelihood of the shares times the hypergeometric
    probability of m.

    Threat model: passive server, one round; knows the clients' training algorithm, which is one pass of plain SGD, and
    their example counts, and has a few images of each class.

    The standard deviation of the shares is that of `simulated` clients with the full mini-batches only, or with all
    examples where they fill none.

    Args:
        simulated: number of simulated clients, shared by all victims.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import ExactCounts
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy(batch_size=10)
        >>> estimate = ExactCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.03
    """

    name = "exact-counts"
    cost = "milliseconds per victim, and `simulated` trainings"

    simulated: AtLeastTwo = 20
    weights: bool = False

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        batch = view.require(ClassifierAlgorithm).single_pass_batch
        if batch is None:
            raise ViewError("expected clients that make one pass of plain SGD in mini-batches, got another algorithm")
        image_pool = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        shares, _ = self.shares(view, image_pool, view.deltas, view.example_counts)
        # The error is that of clients with full mini-batches only: of n examples, the largest multiple of the batch.
        full = view.example_counts.clamp(1, batch)
        full_sizes = (view.example_counts // full * full).clamp(min=1)
        error = self._error(view, image_pool, full_sizes, generator)
        # Clients of one size have the same table of pairs, so they are decoded together.
        counts = torch.zeros(shares.shape, dtype=torch.float64)
        for size in set(view.example_counts.tolist()):
            of_size = view.example_counts == size
            counts[of_size] = most_likely_counts(shares[of_size], size, batch, error).double()
        return certain(counts, counts > 0)

    def _error(self, view: RoundView, image_pool: Auxiliary, sizes: Tensor, generator: torch.Generator) -> float:
        """R.m.s. error of the closed form on simulated clients with example counts among ``sizes (V,)``."""
        simulated_sizes = sizes[torch.arange(self.simulated) % len(sizes)]
        compositions = random_compositions(self.simulated, len(image_pool.by_class), generator=generator)
        counts = largest_remainders(compositions, simulated_sizes)
        examples = draw_examples(image_pool, counts, generator=generator)
        images = (image_pool.images, image_pool.labels)
        parts = list(simulated_changes(view, images, examples, generator=generator))
        deltas = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        shares, _ = self.shares(view, image_pool, deltas, simulated_sizes)
        true_shares = counts / simulated_sizes[:, None]
        return max(float((shares - true_shares).square().mean().sqrt()), _LEAST_ERROR)


def most_likely_counts(shares: Tensor, examples: int, batch: int, error: float) -> Tensor:
    """``(V, K)`` most likely counts of clients of equal size, see `ExactCounts`.

    In ``shares (V, K)``, with errors of standard deviation `error`, the last mini-batch weighs as much as the others.
    """
    steps = -(-examples // batch)
    last_size = examples - (steps - 1) * batch  # r
    score, counts, in_last = _likely_pairs(shares, steps, last_size, min(batch, examples), examples, error)
    # Dynamic programming: best[v, t, d] is the best score of the classes so far with t examples in all, d in the last.
    victims, classes = shares.shape
    best = shares.new_full((victims, examples + 1, last_size + 1), -torch.inf)
    best[:, 0, 0] = 0
    total, drawn = torch.meshgrid(torch.arange(examples + 1), torch.arange(last_size + 1), indexing="ij")
    victim = torch.arange(victims)[:, None, None, None]
    choices = []
    for label in range(classes):
        total_before = total - counts[:, label, :, None, None]
        drawn_before = drawn - in_last[:, label, :, None, None]
        is_reachable = (total_before >= 0) & (drawn_before >= 0)
        score_before = best[victim, total_before.clamp(min=0), drawn_before.clamp(min=0)].where(
            is_reachable, -torch.inf
        )
        best, choice = (score_before + score[:, label, :, None, None]).max(1)
        choices.append(choice)
    # Back from the end, sum n = N and sum m = r, to the choice of each class.
    clients = torch.arange(victims)
    total_left = torch.full((victims,), examples)
    drawn_left = torch.full((victims,), last_size)
    best_counts = torch.zeros(shares.shape, dtype=torch.int64)
    for label in reversed(range(classes)):
        choice = choices[label][clients, total_left.clamp(min=0), drawn_left.clamp(min=0)]
        best_counts[:, label] = counts[clients, label, choice]
        total_left = total_left - best_counts[:, label]
        drawn_left = drawn_left - in_last[clients, label, choice]
    rounded = (shares * examples).round().long()  # where no combination that was tried has the right sums
    has_solution = best[:, examples, last_size] > -torch.inf
    return torch.where(has_solution[:, None], best_counts, rounded)


def _likely_pairs(
    shares: Tensor, steps: int, last_size: int, full_size: int, examples: int, error: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihood, count n_c and count m_c in the last mini-batch of the likeliest pairs, each ``(V, K, pairs)``."""
    # Candidates (V, K, r + 1, 2 _AROUND + 1) of n_c, for each m_c from 0 to r: about the n_c that solves
    # s_c T = n_c / B + m_c (1 / r - 1 / B).
    in_last = torch.arange(last_size + 1)
    extra_weight = in_last / last_size - in_last / full_size
    nearest_count = ((shares[..., None] * steps - extra_weight) * full_size).round()
    tried = nearest_count[..., None] + torch.arange(-_AROUND, _AROUND + 1)
    # A class has at least m_c examples; impossible candidates are -1.
    counts = torch.where(tried >= in_last[:, None], tried, -1).clamp(max=examples).long()
    # Log of the normal likelihood of the share, and of the class's part of the hypergeometric law.
    gap = (counts / full_size + extra_weight[:, None]) / steps - shares[..., None, None]
    score = -gap.square() / (2 * error**2) + _log_choose(counts.clamp(min=0), in_last[:, None])
    # All examples of a single mini-batch are in the last one; other pairs would take the places of those.
    is_possible = counts >= 0
    if steps == 1:
        is_possible = counts == in_last[:, None]
    score = score.where(is_possible, -torch.inf).flatten(2)
    # The _PAIRS best pairs of each class.
    score, best_pairs = score.topk(min(_PAIRS, score.shape[2]), dim=2)
    counts = counts.clamp(min=0).flatten(2).gather(2, best_pairs)
    return score, counts, in_last.repeat_interleave(2 * _AROUND + 1)[best_pairs]


def _log_choose(total: Tensor, chosen: Tensor) -> Tensor:
    """Logarithm of the binomial coefficient: ``n! / (k! (n - k)!)``, with ``n! = gamma(n + 1)``."""
    rest = (total - chosen).clamp(min=0)
    log_total = torch.lgamma((total + 1.0).double())
    log_chosen = torch.lgamma((chosen + 1.0).double())
    log_rest = torch.lgamma((rest + 1.0).double())
    return log_total - log_chosen - log_rest
