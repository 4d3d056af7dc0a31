"""FPDGD: federated pairwise differentiable gradient descent, online learning to rank from clicks.

References:
    [Wang21].
    [Oosterhuis18].
    [Pham25], section V.B.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedleak.client.click_models import LONGEST
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.fpdgd import FPDGDAlgorithm, Variant
from fedleak.client.ranking import ClickModel, ranker_parameters
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.core.rankers import rank_scores, stack_model
from fedleak.defenses.base import Defense, Update
from fedleak.modules.learners.online_ranker import OnlineRanker
from fedleak.server.feature_manipulation import FeatureManipulation
from fedleak.server.model_per_client import stack_models
from fedleak.training.federated import Federation, Unpack

PAPER_LOCAL = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=1)
_CLIENTS_AT_ONCE = 32
"""Clients with a ranker of their own that are scored together, which bounds the memory."""


class FPDGD(OnlineRanker):
    """Federated ranker trained by PDGD on clicks in lists of documents.

    In a round each client ranks the documents of its queries with the global model, clicks according to its click
    model, and takes one step per query. The displayed order is computed from the real features; the client trains on
    the features that the server sends, which a `manipulation` changes.

    Args:
        num_features: features of a document, None to take the number from the data.
        num_grades: grades of relevance, 3 or 5, None to take the number from the data.
        grade_law: share of each grade in the training data, None to take it from the data; public, so that a server
            can simulate clients.
        hidden: hidden units, 0 for a linear ranker.
        click_model: cascade click model of the clients.
        variant: ``corrected``: Plackett-Luce lists, and clicks, bias ratios and updates of the displayed order.
            ``as-published-code``: as in RAIFLE's code, lists are drawn in proportion to the scores (less the smallest,
            if any is negative), clicks may be stale (`cascade_log_law`), and the bias ratio takes the documents' order
            in the file for the displayed one.
        shown: documents in a list, at most 10.
        manipulation: how the server changes the features that it sends, None for an honest server.
        ranker_per_client: send every client of every round a ranker of its own, drawn anew, as in RAIFLE's experiments;
            the server then learns no global ranker.
        local: how clients train (the paper: one step of SGD with learning rate 0.1 per query).
        federation: arguments of `FederatedModule`.
    """

    algorithm: FPDGDAlgorithm
    manipulation: FeatureManipulation | None

    def __init__(
        self,
        *,
        num_features: int | None = None,
        num_grades: int | None = None,
        grade_law: Sequence[float] | None = None,
        hidden: NonNegativeInt = 0,
        click_model: ClickModel = "informational",
        variant: Variant = "corrected",
        shown: PositiveInt = LONGEST,
        manipulation: FeatureManipulation | None = None,
        ranker_per_client: bool = False,
        local: LocalTraining = PAPER_LOCAL,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(hidden=hidden, click_model=click_model, shown=shown, local=local, **federation)
        self.variant: Variant = variant
        self.manipulation = manipulation
        self.ranker_per_client = ranker_per_client
        single_pass = (self.local.optimizer, self.local.batch_size, self.local.epochs) == ("sgd", 1, 1)
        penalised = any(type(defense).penalty is not Defense.penalty for defense in self.defenses)
        require(
            not ranker_per_client or (single_pass and not penalised),
            "one step of SGD per query and no penalty with ranker_per_client",
            "another local training",
            "Leave model.local out but for its learning rate, or train one ranker.",
        )
        self.settings_of_rounds: dict[int, dict[str, Any]] = {}
        """Setting columns of each round, filled by callbacks that control the server."""
        self.build_with(num_features=num_features, num_grades=num_grades, grade_law=grade_law)

    def round_settings(self) -> dict[int, dict[str, Any]]:
        return self.settings_of_rounds

    def build(self, num_features: int, num_grades: int, grade_law: Sequence[float]) -> None:
        super().build(num_features, num_grades, grade_law)
        self.algorithm = FPDGDAlgorithm(
            learning_rate=self.local.learning_rate,
            click_model=self.click_model,
            grade_law=self.grade_law,
            variant=self.variant,
        )

    def client_models(self, cohort: Cohort) -> Parameters:
        """A separate ranker for each client, if `ranker_per_client` is set."""
        if not self.ranker_per_client:
            return {}
        generators = self._generators("ranker", cohort)
        drawn = [ranker_parameters(self.num_features, self.hidden_units, generator) for generator in generators]
        return stack_models(drawn, self.public_parameters())

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        if not self.ranker_per_client:
            return super().local_updates(cohort, model, willing)
        sent = self.client_models(cohort)
        lists = cohort.examples
        orders = []
        for generator in self._generators("lists", cohort):
            orders.append(torch.randperm(cohort.mask.shape[1], generator=generator))
        deltas = self.algorithm.simulate_lists(
            sent,
            features=lists["features"],
            mask=lists["shown"] & cohort.mask[..., None],
            clicks=lists["click"],
            order=torch.stack(orders).to(cohort.mask.device),
            document=lists["document"],
        )
        loss = self.algorithm.stacked_loss(sent, lists, cohort.mask).mean()
        return Update(deltas, clients=cohort.clients), loss

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Zeros with `ranker_per_client`, because the updates of different rankers cannot be averaged."""
        if not self.ranker_per_client:
            return update
        zeros = {name: torch.zeros_like(value) for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=zeros)

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Rankings of the clients, features from the server, and clicks.

        Returns:
            A cohort whose examples are lists: ``features (C, Q, L, F)``, ``click``, ``shown`` and ``document``
            ``(C, Q, L)``; lists with a gradient come first. With private retrieval also ``holder (C, Q)``.
        """
        pool = cohort.shared["features"]
        rankers = self.client_models(cohort)
        # The displayed order comes from the real features; only then the server changes what it sends.
        position = self._rank(cohort, self._scores(cohort, rankers or model))
        shown = position >= 0
        position_in_query = position.clamp(min=0)
        candidates = cohort.examples["document"].clamp(min=0).gather(2, position_in_query)
        grades = cohort.examples["grade"].gather(2, position_in_query)
        sent = pool[candidates] * shown[..., None]
        manipulation = self.manipulation
        holder = {name: value for name, value in cohort.examples.items() if name == "holder"}
        if holder:
            document = cohort.shared["planted"]
            sent = plant(sent, shown, document, holder["holder"][:, 0], self._generators("retrieval", cohort))
            if manipulation is not None:
                manipulation = manipulation.knowing(document)
        if manipulation is not None:
            generators = self._generators("manipulation", cohort)
            received = rankers or stack_model(model, len(cohort))
            if manipulation.knows == "candidates":
                listed = cohort.examples["document"]
                sent = manipulation.of_candidates(received, pool, listed, position_in_query, generators=generators)
                sent = sent * shown[..., None]
            else:
                sent = manipulation.of_cohort(received, sent, shown, generators=generators)
        clicks = self._click(cohort, grades, shown, stale=self.variant == "as-published-code")
        # Lists without a gradient go to the end, where the mask leaves them out.
        order = (~_has_gradient(clicks, shown)).long().argsort(dim=1, stable=True)
        lists = {
            "features": sent,
            "click": clicks,
            "shown": shown,
            "document": cohort.shared["row"][candidates].where(shown, -1),
            **holder,
        }
        rows = torch.arange(len(cohort))[:, None]
        examples = {name: value[rows, order] for name, value in lists.items()}
        mask = _has_gradient(examples["click"], examples["shown"])
        return dataclasses.replace(cohort, examples=examples, mask=mask, shared={})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        if "holder" in cohort.examples:
            return {}
        return super().served(cohort)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Clicks of each client; empty with private retrieval."""
        if "holder" in cohort.examples:
            return {}
        return super().truth(cohort)

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """With private retrieval ``member``: whether the client received the planted document."""
        holder = cohort.examples.get("holder")
        if holder is None:
            return {}
        return {"member": holder.any(1).long()}

    def _scores(self, cohort: Cohort, model: Parameters) -> Tensor:
        """``(C, Q, D)`` scores of the clients' documents, infinite where padded."""
        pool = cohort.shared["features"]
        document = cohort.examples["document"]
        if self.ranker_per_client and len(cohort):
            parts = []
            for part in torch.split(torch.arange(len(cohort)), _CLIENTS_AT_ONCE):
                rankers = {name: value[part] for name, value in model.items()}
                parts.append(rank_scores(rankers, pool[document[part].clamp(min=0)]))
            return torch.cat(parts).masked_fill(document < 0, torch.inf)
        stacked = {name: value[None] for name, value in model.items()}
        # One ranker for all: each document of the pool is scored once.
        scores = pool.new_zeros(1)
        if len(pool):
            scores = rank_scores(stacked, pool[None])[0]
        return scores[document.clamp(min=0)].masked_fill(document < 0, torch.inf)

    def _rank(self, cohort: Cohort, scores: Tensor) -> Tensor:
        """``(C, Q, L)`` positions of the displayed documents in their query, best first, padded with -1."""
        if self.variant == "as-published-code":
            least = scores.amin(2, keepdim=True)
            # The published code draws in proportion to the scores, which must be positive: the smallest is then 1e-10.
            scores = torch.where(least > 0, scores, scores - least + 1e-10).log()
        # The largest of score plus Gumbel noise are a Plackett-Luce ranking of the scores.
        draws = [_gumbel(scores.shape[1:], generator) for generator in self._generators("ranking", cohort)]
        keys = (scores + torch.stack(draws)).masked_fill(torch.isinf(scores), -torch.inf)
        return self._best(keys)


def plant(
    features: Tensor, shown: Tensor, document: Tensor, holders: Tensor, generators: Sequence[torch.Generator]
) -> Tensor:
    """Features in which a document replaces one displayed document, drawn at random, of some clients.

    The planted document gets the click of the document that it replaces.

    Args:
        features: ``(C, Q, L, F)``.
        shown: ``(C, Q, L)`` True for documents.
        document: ``(F,)``.
        holders: ``(C,)`` True for the clients that receive it.
        generators: one per client.
    """
    replaced = []
    for displayed, generator in zip(shown.flatten(1).float(), generators, strict=True):
        replaced.append(int(torch.multinomial(displayed, 1, generator=generator)))
    flat = features.flatten(1, 2).clone()
    position = torch.tensor(replaced, dtype=torch.int64)
    flat[holders, position[holders]] = document
    return flat.reshape(features.shape)


def _gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    # -log of an exponential draw; the clamp keeps the noise finite.
    return -torch.empty(shape).exponential_(generator=generator).clamp(min=1e-30).log()


def _has_gradient(clicks: Tensor, shown: Tensor) -> Tensor:
    """``(C, Q)`` lists with both clicked and unclicked documents; other lists have no gradient."""
    clicked = ((clicks > 0) & shown).any(2)
    not_clicked = ((clicks == 0) & shown).any(2)
    return clicked & not_clicked
