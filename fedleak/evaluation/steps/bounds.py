"""Step on what any attack on interactions can infer from clipped and noisy updates: bits, and bounds of the AUC."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pandas as pd
from torch import Tensor

from fedleak.client.list_priors import ListPrior, log_prior
from fedleak.client.ranked_lists import ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.view import RoundView
from fedleak.evaluation.channel import Channel, update_bits
from fedleak.evaluation.leakage_bounds import (
    accuracy_bound,
    auc_bound,
    choice_bits,
    pair_bound,
    pattern_bits,
    pattern_bits_given_count,
)
from fedleak.evaluation.result_names import BOUNDS
from fedleak.evaluation.scores import concat
from fedleak.evaluation.steps.step import RecordingRun, RecordingStep
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording


@dataclass(frozen=True, kw_only=True)
class Bounds(RecordingStep):
    """Bits that a clipped and noisy update can carry, and upper bounds of every attack's AUC.

    Of the metric ``bits``: ``click-entropy`` of the clicks under the cascade model, if items are ranked, and
    ``capacity-bound``. Of ``auc`` and ``accuracy``: ``bound`` for attacks to which all choices of the positive items
    are equally likely, and ``bound-PRIOR`` for attacks that know more of the clicks; see
    `fedleak.evaluation.leakage_bounds`. Without noise they are 1.

    Attributes:
        priors: what the attacks know of the clicks besides their number: ``uniform``, nothing; the others as of
            `fedleak.client.list_priors.log_prior`, for learners that rank. Empty for bits only.
    """

    name = "bounds"
    metrics = ("bits", "auc", "accuracy")
    priors: Sequence[ListPrior] = field(default=())

    def rows(self, run: RecordingRun) -> Iterator[pd.DataFrame]:
        tables = []
        for view in run.recording.views(victims_per_view=256, learner=recorded_learner(run.recording)):
            bounds = _bits(view)
            labels = run.recording.truth(view)["labels"][:, : view.served_mask.shape[1]]
            if self.priors:
                bounds |= self._bounds(view, labels)
            for (metric, name), values in bounds.items():
                defined = ~values.isnan()
                tables.append(
                    run.scores(
                        name,
                        {metric: values[defined]},
                        victims=view.pseudonyms[defined],
                        round=view.round,
                        items=view.served_mask.sum(1)[defined],
                    )
                )
        yield run.of_people(concat(tables))

    def _bounds(self, view: RoundView, labels: Tensor) -> dict[tuple[str, str], Tensor]:
        """``(V,)`` bounds by metric and label."""
        mask = view.served_mask
        channel = Channel.of(view)
        items = mask.sum(1)
        positives = ((labels > 0.5) & mask).sum(1)
        bits = update_bits(view)
        bounds: dict[tuple[str, str], Tensor] = {}
        for prior in self.priors:
            name = BOUNDS[prior]
            # Entropy of the labels given their number, as far as the attack knows their law.
            if prior == "uniform":
                entropy = choice_bits(items, positives)
            else:
                law = log_prior(prior, ranked_lists(view).mask, view.require(RankingAlgorithm))
                entropy = pattern_bits_given_count(law, positives)
            auc = auc_bound(items=items, positives=positives, entropy=entropy, bits=bits)
            # The bound of pairs holds for equally likely choices alone; the smaller one counts.
            if prior == "uniform" and channel.clip is not None and channel.noise_scale:
                auc = auc.clamp(max=pair_bound(clip=channel.clip, noise_scale=channel.noise_scale))
            bounds["auc", name] = auc
            bounds["accuracy", name] = accuracy_bound(items=items, entropy=entropy, bits=bits)
        return bounds


def bounds_of(recording: Recording) -> list[RecordingStep]:
    """`Bounds` for a recording of interactions under clipping and noise, where they are below 1; else nothing."""
    view = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1]), None)
    if view is None or view.served is None or "labels" not in recording.truth(view):
        return []
    if update_bits(view).isinf().any():
        return []
    # A count of messages alone allows all clicks.
    has_epsilon = any(release.epsilon is not None for release in view.releases)
    if not Channel.of(view).noise_scale and not has_epsilon:
        return []
    return [Bounds(priors=["uniform"])]


def _bits(view: RoundView) -> dict[tuple[str, str], Tensor]:
    """``(V,)`` bits by metric and label; without noise, no capacity."""
    bits: dict[tuple[str, str], Tensor] = {}
    capacity = update_bits(view)
    if view.lists is not None and isinstance(view.algorithm, RankingAlgorithm):
        law = log_prior("cascade", ranked_lists(view).mask, view.algorithm)
        bits["bits", "click-entropy"] = pattern_bits(law)
    if not capacity.isinf().any():
        bits["bits", "capacity-bound"] = capacity
    return bits
