"""Words of a client from the row space of the update of adapters of low rank."""

import math
from dataclasses import dataclass

import torch
from scipy.stats import chi2
from torch import Tensor

from fedleak.attacks.reconstruction.span import span_of
from fedleak.attacks.words.adapter_sums import SAFETY, adapter_sums
from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.joint_pursuit import MARGIN, VectorSums
from fedleak.core.attack import Attack
from fedleak.core.ranges import OpenUnitInterval, PositiveInt
from fedleak.core.view import RoundView

_NEARLY_ALL = 0.999
"""Part of a squared length that float32 cannot have rounded away."""
_AT_ONCE = 8192
"""Vectors that are compared together."""


@dataclass(frozen=True, kw_only=True)
class AdapterSpan(Attack):
    """Words whose vectors lie in the row space of the change of the first adapters.

    It finds the words as long as they are fewer than the rows: the rank times the number of adapted layers that read
    the same inputs. With more words the row space is a part of what their vectors span, and holds none of them.

    Threat model: passive server, one update; knows the base network, the adapter and the tokenizer, and no text.

    A vector counts as in the row space if the error of the rows, by rounding and declared noise, explains its distance.

    Args:
        missed: probability with which noise pushes a word's vector out.
        places: length of the longest text, for networks whose inputs depend on the place.

    References:
        [Petrov24], section 4.1 and, for adapters, section 5.4.
    """

    name = "adapter-span"
    with_prior = "rank"
    family = "words"
    exact = True
    references = ("Petrov24",)
    estimates = WordSetEstimate
    threat_model = AdapterWords.threat_model

    missed: OpenUnitInterval = 1e-3
    places: PositiveInt = 64

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordSetEstimate:
        systems = adapter_sums(view, self.places)
        scores = torch.zeros(view.victims, systems.vocabulary, dtype=torch.float64)
        decided = torch.zeros_like(scores)
        for victim, client_sums in enumerate(systems.sums):
            # The best of all systems counts, and of a word's vectors, of which there may be one for each place.
            largest_shares = torch.stack([sums.span_shares() for sums in client_sums]).amax(0)
            scores[victim].scatter_reduce_(0, systems.tokens, largest_shares, "amax")
            in_any_span = torch.stack([self._inside(sums) for sums in client_sums]).any(0)
            decided[victim].scatter_reduce_(0, systems.tokens, in_any_span.double(), "amax")
        # Word 0 is padding.
        scores[:, 0] = 0
        decided[:, 0] = 0
        no_prediction = torch.full((view.victims,), torch.nan, dtype=torch.float64)
        return WordSetEstimate(scores=scores, decisions=decided > 0, expected=no_prediction)

    def _inside(self, sums: VectorSums) -> Tensor:
        """``(K,)`` which vectors lie in the row space, of which less than everything is left."""
        # The span takes the standard deviation of one number; the error is a norm with a safety factor in it.
        deviation = sums.error / SAFETY / math.sqrt(sums.rows.numel())
        span = span_of(sums.rows, deviation)
        inside = torch.zeros(len(sums.vectors), dtype=torch.bool)
        if span.free < MARGIN or not span.rank:
            return inside
        # No vector is accepted of which less than this part of the squared length lies in the span: those of millions
        # that have more are few, and decided one by one.
        quantile = float(chi2.isf(self.missed, span.free))
        most_outside = max(span.noise**2 * quantile, span.edge**2) / float(span.values[-1]) ** 2
        taken = sums.vectors.squares_along([span.basis])[0]
        may_be_inside = taken * (1 + most_outside) >= _NEARLY_ALL * sums.vectors.squared_lengths
        # `excess` is of sums of two vectors, of which the second is zero here.
        nothing = torch.zeros(1, sums.rows.shape[1], dtype=torch.float64)
        for candidates in torch.split(may_be_inside.nonzero().flatten(), _AT_ONCE):
            vectors = sums.vectors[candidates].double()
            inside[candidates] = span.excess(vectors, nothing, missed=self.missed)[:, 0] <= 1
        return inside
