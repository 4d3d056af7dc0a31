"""Step on what any attack on interactions can infer from clipped and noisy updates: bits, and bounds of the AUC."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from attacks.ranking.lists import ranked_lists
from attacks.ranking.priors import ListPrior, log_prior
from client.ranking import RankingAlgorithm
from client.recommendation import USER_EMBEDDING
from evaluation.genie import Channel, genie_auc
from evaluation.leakage_bounds import (
    accuracy_bound,
    auc_bound,
    capacity_bits,
    choice_bits,
    pair_bound,
    pattern_bits,
    pattern_bits_given_count,
)
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from experiments.cell_training import CellRun
from modules.federated import FederatedModule
from protocol.ranges import NonNegativeInt, check_fields
from protocol.seeding import generator_for
from protocol.view import RoundView
from recordings.recorded_learner import recorded_learner


@dataclass(frozen=True, kw_only=True)
class Bounds(AfterStep):
    """Bits that a clipped and noisy update can carry, upper bounds of every attack's AUC, and the AUC of a genie.

    Of the metric ``bits``: ``click-entropy`` of the clicks under the cascade model, if items are ranked, and
    ``capacity-bound``. Of ``auc`` and ``accuracy``: ``bound`` for attacks to which all choices of the positive items
    are equally likely, and ``bound-PRIOR`` for attacks that know more of the clicks; see `evaluation.leakage_bounds`.
    Without noise they are 1. Of ``auc``: ``genie``, see `evaluation.genie`; unlike ``bound`` it holds only for the
    features, the model and the algorithm of the cell.

    Attributes:
        priors: what the attacks know of the clicks besides their number: ``uniform``, nothing; the others as of
            `attacks.ranking.priors.log_prior`, for learners that rank. Empty for bits only.
        genie: pairs of items for each client; 0 for no genie. A recommender's needs the first round, whose user
            vectors are those of the learner before the training.
        victims: largest number of clients of the genie, drawn at random; None for all.
    """

    name = "bounds"
    metrics = ("bits", "auc", "accuracy")
    priors: Sequence[ListPrior] = field(default=())
    genie: NonNegativeInt = 0
    victims: NonNegativeInt | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        check_fields(self)

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        module, _ = run.build() if self.genie else (None, None)
        drawn = generator_for(run.cell.seed, "genie's victims")
        people = run.recording.pseudonyms()
        chosen = torch.tensor(people)[torch.randperm(len(people), generator=drawn)[: self.victims]]
        tables = []
        for view in run.recording.views(victims_per_view=256, learner=recorded_learner(run.recording)):
            truth = run.recording.truth(view)
            labels = truth["labels"][:, : view.served_mask.shape[1]]
            found = _bits(view) | (self._bounds(view, labels) if self.priors else {})
            if module is not None:
                found["auc", "genie"] = self._genie(module, view, truth, torch.isin(view.pseudonyms, chosen), run)
            for (metric, name), values in found.items():
                kept = ~values.isnan()
                items = view.served_mask.sum(1)[kept]
                rows = run.scores(
                    name, {metric: values[kept]}, victims=view.pseudonyms[kept], round=view.round, items=items
                )
                tables.append(rows)
        yield run.of_people(concat(tables))

    def _bounds(self, view: RoundView, labels: Tensor) -> dict[tuple[str, str], Tensor]:
        """``(V,)`` bounds by metric and label."""
        mask, channel = view.served_mask, Channel.of(view)
        items, positives = mask.sum(1), ((labels > 0.5) & mask).sum(1)
        bits, found = _capacity(view), dict[tuple[str, str], Tensor]()
        for prior in self.priors:
            name = "bound" if prior == "uniform" else f"bound-{prior}"
            if prior == "uniform":
                entropy = choice_bits(items, positives)
            else:
                law = log_prior(prior, ranked_lists(view).mask, view.require(RankingAlgorithm))
                entropy = pattern_bits_given_count(law, positives)
            auc = auc_bound(items=items, positives=positives, entropy=entropy, bits=bits)
            if prior == "uniform" and channel.clip is not None and channel.noise_scale:
                auc = auc.clamp(max=pair_bound(clip=channel.clip, noise_scale=channel.noise_scale))
            right = accuracy_bound(items=items, entropy=entropy, bits=bits)
            found |= {("auc", name): auc, ("accuracy", name): right}
        return found

    def _genie(
        self, module: FederatedModule, view: RoundView, truth: Mapping[str, Tensor], chosen: Tensor, run: CellRun
    ) -> Tensor:
        """``(V,)`` AUC of the genie, NaN for clients that are not drawn."""
        users, places = module.private.get(USER_EMBEDDING), chosen.nonzero().squeeze(1)
        found = torch.full((view.victims,), torch.nan, dtype=torch.float64)
        if (users is not None and view.round > 0) or not len(places):
            return found  # the clients' own vectors have changed since
        own = None if users is None else users[truth["clients"][places]]
        found[places] = genie_auc(
            view.select(places),
            truth["labels"][places],
            users=own,
            pairs=self.genie,
            generator=generator_for(run.cell.seed, "genie", view.round, int(view.pseudonyms[0]) % 2**31),
        )
        return found


def _bits(view: RoundView) -> dict[tuple[str, str], Tensor]:
    """``(V,)`` bits by metric and label; without noise, no capacity."""
    found, capacity = dict[tuple[str, str], Tensor](), _capacity(view)
    if view.lists is not None:
        law = log_prior("cascade", ranked_lists(view).mask, view.require(RankingAlgorithm))
        found["bits", "click-entropy"] = pattern_bits(law)
    return found if capacity.isinf().any() else found | {("bits", "capacity-bound"): capacity}


def _capacity(view: RoundView) -> Tensor:
    """``(V,)`` bits that the clients' updates can carry; infinite unless all of an update is clipped and noised."""
    channel, mask = Channel.of(view), view.served_mask
    if channel.clip is None or not channel.noise_scale:
        return torch.full((view.victims,), torch.inf, dtype=torch.float64)
    numbers = torch.zeros(view.victims)
    for name, value in view.deltas.items():
        numbers += mask.sum(1) * value[0, 0].numel() if name in view.row_parameters else value[0].numel()
    return capacity_bits(clip=channel.clip, noise_scale=channel.noise_scale, dimensions=numbers)
