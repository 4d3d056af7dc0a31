"""Baselines without the update: random scores and item popularity."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.ranges import OpenUnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import POPULARITY, RoundView


@dataclass(frozen=True, kw_only=True)
class Chance(InteractionAttack):
    """Random guess: uniform random scores.

    Threat model: a server that does not use the update.

    Args:
        positive_share: share of the served items that is guessed to be positive (RAIFLE serves four negatives per
            positive).

    References:
        [Pham25], section VI.

    Example:
        >>> import torch
        >>> from fedleak.attacks.interactions import Chance
        >>> from fedleak.attacks.interactions.toy import toy
        >>> view, truth = toy()
        >>> estimate = Chance()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.44
    """

    name = "chance"
    family = "interactions"
    baseline = True
    threat_model = ThreatModel(sees="which items were served", knows="nothing else", needs=("served",))

    positive_share: OpenUnitInterval = 0.2

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        scores = torch.rand(view.served_mask.shape, generator=generator)
        is_positive = scores > 1 - self.positive_share
        return InteractionEstimate(scores=scores, decisions=is_positive & view.served_mask)


@dataclass(frozen=True, kw_only=True)
class Popularity(InteractionAttack):
    """Number of other users who interacted with an item; reports show it next to every attack.

    Threat model: a server that knows what other users interacted with and does not use the victim's update.

    Args:
        counts: text file with a number of interactions for each item of the catalogue, one a line, which replace those
            of the other users: a prior from other data, which may be wrong.
        shuffled: whether the numbers are exchanged at random among a client's items: a prior that says nothing.

    Variants:
        shuffled: a prior that says nothing.

    Raises:
        ViewError: the file cannot be read, does not have a number a line, at least 0, or has fewer of them than the
            catalogue has items.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.interactions import Popularity
        >>> from fedleak.attacks.interactions.toy import toy
        >>> view, truth = toy()
        >>> estimate = Popularity()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.5
    """

    name = "popularity"
    family = "interactions"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="which items were served",
        knows="what all other users interacted with",
        needs=("served", f"priors:{POPULARITY}"),
    )

    variants: ClassVar[Variants] = {"shuffled": {"shuffled": True, "listed": False, "control": True}}

    counts: Path | None = None
    shuffled: bool = False

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        counts = view.priors[POPULARITY].double()
        if self.counts is not None:
            items = view.served_items
            counts_of_catalogue = read_counts(self.counts, items=int(items.max()) + 1)
            counts = counts_of_catalogue[items.clamp(min=0)]
        if self.shuffled:
            # Real items in random order, then padding, go to the columns of real items in order, then of padding.
            keys = torch.rand(counts.shape, generator=generator).masked_fill(~view.served_mask, torch.inf)
            columns = view.served_mask.int().argsort(dim=1, descending=True, stable=True)
            shuffled = counts.gather(1, keys.argsort(1))
            counts = torch.zeros_like(counts).scatter(1, columns, shuffled)
        # Counts spread over orders of magnitude, so their logarithms are divided in two groups.
        return InteractionEstimate(scores=counts, decisions=two_means(counts.log1p(), view.served_mask))


def read_counts(path: Path, *, items: int) -> Tensor:
    """``(N,)`` float64 numbers of interactions of a text file, one a line, of at least so many items.

    Raises:
        ViewError: the file cannot be read, or holds something else.
    """
    try:
        counts = torch.from_numpy(np.loadtxt(path, ndmin=2))
    except (OSError, ValueError) as error:
        raise ViewError(f"expected a text file with a number a line, got {path}: {error}") from None
    if counts.shape[1] != 1:
        raise ViewError(f"expected a text file with a number a line, got {path} with {counts.shape[1]} in a line")
    counts = counts[:, 0]
    # A comparison with NaN is False.
    wrong = (~(counts.isfinite() & (counts >= 0))).nonzero().flatten()
    if len(wrong):
        line = int(wrong[0])
        raise ViewError(f"expected numbers of at least 0, got {path} with {float(counts[line])} for item {line}")
    if len(counts) < items:
        raise ViewError(f"expected a number for each of {items} items, got {len(counts)}")
    return counts


def two_means(values: Tensor, mask: Tensor) -> Tensor:
    """``(V, R)`` True for the upper of each row's two groups with the least squared spread (exact 1-D 2-means).

    Values outside ``mask (V, R)`` are ignored; all False for a row with fewer than two different values.

    References:
        [Otsu79].
    """
    ordered = values.double().masked_fill(~mask, torch.inf).sort(dim=1).values
    is_real = torch.isfinite(ordered)
    sums = ordered.masked_fill(~is_real, 0).cumsum(1)
    count = mask.sum(1, keepdim=True)
    # A split after each value: n_1 values below, n_2 above. The spread within is least where that between the two
    # means, n_1 n_2 (m_1 - m_2)^2, is largest.
    lower = torch.arange(1, values.shape[1] + 1, device=values.device).expand_as(ordered)
    upper = (count - lower).clamp(min=0)
    gap = sums / lower - (sums[:, -1:] - sums) / upper.clamp(min=1)
    between_groups = (lower * upper * gap**2).masked_fill(upper == 0, -1)
    threshold = ordered.gather(1, between_groups.argmax(1, keepdim=True))
    return (values.double() > threshold) & mask
