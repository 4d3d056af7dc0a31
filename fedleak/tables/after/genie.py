"""Step on the genie, which knows of a client everything but the labels that it guesses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.genie import genie_auc
from fedleak.evaluation.scores import concat
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun
from fedleak.training.federated import FederatedModule


@dataclass(frozen=True, kw_only=True)
class Genie(AfterStep):
    """AUC of a genie, label ``genie``; unlike ``bound`` it holds only for the features, model and algorithm of a cell.

    It needs the users' vectors before the round, which a training has for the first round alone.

    Attributes:
        pairs: pairs of items for each client.
        victims: largest number of clients, drawn at random; None for all.

    References:
        `fedleak.evaluation.genie`.
    """

    name = "genie"
    metrics = ("auc",)
    pairs: PositiveInt = 16
    victims: NonNegativeInt | None = None

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        module, _ = run.build()
        people = run.recording.pseudonyms()
        order = torch.randperm(len(people), generator=generator_for(run.seed, "genie's victims"))
        victims = torch.tensor(people)[order[: self.victims]]
        tables = []
        for view in run.recording.views(victims_per_view=256, learner=recorded_learner(run.recording)):
            is_victim = torch.isin(view.pseudonyms, victims)
            aucs = self._of_view(module, view, run.recording.truth(view), is_victim, run)
            measured = ~aucs.isnan()
            scores = run.scores(
                "genie",
                {"auc": aucs[measured]},
                victims=view.pseudonyms[measured],
                round=view.round,
                items=view.served_mask.sum(1)[measured],
            )
            tables.append(scores)
        yield run.of_people(concat(tables))

    def _of_view(
        self, module: FederatedModule, view: RoundView, truth: Mapping[str, Tensor], is_victim: Tensor, run: CellRun
    ) -> Tensor:
        """``(V,)`` AUC of the genie, NaN for clients that are not drawn."""
        user_vectors = module.private.get(USER_EMBEDDING)
        positions = is_victim.nonzero().squeeze(1)
        aucs = torch.full((view.victims,), torch.nan, dtype=torch.float64)
        # After the first round, the clients' own vectors have changed, and the module has those from before.
        if (user_vectors is not None and view.round > 0) or not len(positions):
            return aucs
        aucs[positions] = genie_auc(
            view.select(positions),
            truth["labels"][positions],
            users=None if user_vectors is None else user_vectors[truth["clients"][positions]],
            pairs=self.pairs,
            generator=generator_for(run.seed, "genie", view.round, int(view.pseudonyms[0]) % 2**31),
        )
        return aucs
