"""FOLtR-ES: federated online learning to rank with evolution strategies.

References:
    [Kharitonov19].
    [Pham25], section VII.E.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.client.click_models import LONGEST
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.foltr_es import (
    UTILITY,
    FOLtRESAlgorithm,
    ListMetric,
    check_metric,
    levels,
    respond,
    truthful_probability,
    units,
)
from fedleak.client.ranking import ClickModel
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.core.rankers import rank_scores
from fedleak.defenses.base import Update
from fedleak.modules.learners.online_ranker import OnlineRanker
from fedleak.training.server_optimizer import ServerOptimizer

_CLIENTS_AT_ONCE = 64
"""Clients with a perturbed ranker of their own that are scored together, which bounds the memory."""
_ADAM = ServerOptimizer(name="fedadam", learning_rate=0.001, betas=(0.9, 0.999), eps=1e-8)


class FOLtRES(OnlineRanker):
    """Federated ranker trained by evolution strategies; clients send one or two metric values instead of a delta.

    In a round each client perturbs the global model with Gaussian noise from a seed that it shares with the server,
    ranks its queries by the perturbed scores, and sends the mean of a metric of its clicks. Antithetic clients rank
    every query twice, with the noise added and subtracted, and send two values. (Published clients draw their queries
    at random, each for one of the two signs.)

    Clients send `UTILITY`, and the recording holds it; the server computes the gradient from it and the noise. A delta
    would contain less: only the difference of the two values, multiplied by numbers that the server knows.

    Args:
        num_features: features of a document, None to take the number from the data.
        num_grades: grades of relevance, 3 or 5, None to take the number from the data.
        grade_law: share of each grade in the training data, None to take it from the data; public, so that a server
            has a prior on clicks.
        hidden: hidden units, 0 for a linear ranker.
        click_model: cascade click model of the clients.
        shown: documents in a list, at most 10.
        metric: ``max-rr`` or ``dcg``; see `fedleak.client.foltr_es.levels`.
        antithetic: whether every query is ranked with both signs of the noise.
        noise_scale: standard deviation of the noise on each entry of the model.
        epsilon: local DP budget for the metric of one list, by randomised response; a client spends it on every list.
        server: server optimizer for the estimated gradient (published: Adam).
        seed: seed of every draw.
    """

    algorithm: FOLtRESAlgorithm

    def __init__(
        self,
        *,
        num_features: int | None = None,
        num_grades: int | None = None,
        grade_law: Sequence[float] | None = None,
        hidden: NonNegativeInt = 0,
        click_model: ClickModel = "informational",
        shown: PositiveInt = LONGEST,
        metric: ListMetric = "max-rr",
        antithetic: bool = True,
        noise_scale: float = 0.01,
        epsilon: float | Literal["inf"] = "inf",
        server: ServerOptimizer = _ADAM,
        seed: int = 0,
    ) -> None:
        super().__init__(
            hidden=hidden,
            click_model=click_model,
            shown=shown,
            local=LocalTraining(),
            server=server,
            defenses=(),
            weighting="uniform",
            seed=seed,
        )
        for name, value in (("noise_scale", noise_scale), ("epsilon", float(epsilon))):
            require(value > 0, f"{name} > 0", value, "epsilon: inf means no privacy.")
        check_metric(metric)
        self.metric: ListMetric = metric
        self.noise_scale = noise_scale
        self.truthful = truthful_probability(float(epsilon))
        self.signs = (1, -1) if antithetic else (1,)
        self.build_with(num_features=num_features, num_grades=num_grades, grade_law=grade_law)

    def build(self, num_features: int, num_grades: int, grade_law: Sequence[float]) -> None:
        super().build(num_features, num_grades, grade_law)
        self.algorithm = FOLtRESAlgorithm(
            metric=self.metric,
            numbers=len(self.signs),
            truthful=self.truthful,
            click_model=self.click_model,
            grade_law=self.grade_law,
        )

    def public_description(self) -> dict[str, Any]:
        """Public knowledge of this training; the recorded parameters are the metric values that clients send."""
        sent = {UTILITY: {"shape": [len(self.signs)], "dtype": "float32"}}
        return super().public_description() | {"parameters": sent}

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Perturbed rankings of the clients, and their clicks.

        Returns:
            A cohort whose examples are lists, those with added noise first: ``features (C, Q, L, F)``, ``click``,
            ``shown`` and ``document`` ``(C, Q, L)``.
        """
        require(
            "holder" not in cohort.examples,
            "data without private retrieval: FOLtR-ES servers know the documents",
            "data.private_retrieval",
            "Leave data.private_retrieval out, or train FPDGD.",
        )
        noise = self._perturbations(cohort, model)
        # Each sign of the noise gives another ranking of every query: a client's lists are those of all signs.
        of_signs = []
        for sign in self.signs:
            perturbed = {name: model[name] + sign * noise[name] for name in model}
            of_signs.append(self._rank(cohort, perturbed))
        position = torch.cat(of_signs, dim=1)
        shown = position >= 0
        in_query = position.clamp(min=0)
        document = cohort.examples["document"].repeat(1, len(self.signs), 1).gather(2, in_query)
        grade = cohort.examples["grade"].repeat(1, len(self.signs), 1).gather(2, in_query)
        examples = {
            "features": cohort.shared["features"][document] * shown[..., None],
            "click": self._click(cohort, grade, shown, every=True),
            "shown": shown,
            "document": cohort.shared["row"][document].where(shown, -1),
        }
        return dataclasses.replace(cohort, examples=examples, mask=shown.any(2), shared={})

    def client_updates(self, cohort: Cohort, model: Parameters) -> tuple[Update, Tensor]:
        """Metric values that clients send, ``(C, 2)`` or ``(C, 1)``, and their negative mean as the loss."""
        level = levels(self.metric, cohort.examples["click"])
        if self.truthful < 1 and len(cohort):
            generators = self._generators("response", cohort, secret=True)
            reports = []
            for true_level, generator in zip(level, generators, strict=True):
                reports.append(respond(true_level, self.truthful, generator))
            level = torch.stack(reports)
        level_units, units_in_1 = units(self.metric)
        # The mean over the lists of each of the client's rankers; sums of units are exact.
        lists = level.shape[1] // len(self.signs)
        of_ranker = level_units[level].double().reshape(len(cohort), len(self.signs), lists)
        utility = (of_ranker.mean(2) / units_in_1).float()
        loss = -utility.mean() if len(cohort) else utility.new_zeros(())
        return Update({UTILITY: utility}), loss

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Gradient estimate of evolution strategies: the noise times the gain of the metric."""
        utility = update.deltas[UTILITY]
        # Gradient of the expected metric under N(model, s^2): E[metric * noise / s^2]. With both signs of a noise, half
        # the difference of their metrics has the same expectation, and a smaller variance.
        gain = utility[:, 0]
        if len(self.signs) == 2:
            gain = (utility[:, 0] - utility[:, 1]) / 2
        noise = self._perturbations(cohort, model)
        scaled = gain / self.noise_scale**2
        deltas = {}
        for name, value in noise.items():
            deltas[name] = value * scaled.reshape(-1, *[1] * (value.dim() - 1))
        return Update(deltas)

    def _fresh(self, round_number: int) -> Parameters:
        """Initial model of zeros, as published: at first only the noise ranks."""
        return {name: torch.zeros_like(value) for name, value in super()._fresh(round_number).items()}

    def _perturbations(self, cohort: Cohort, model: Parameters) -> Parameters:
        """``(C, *shape)`` noise of each client, which client and server draw from their shared seed."""
        draws = []
        for generator in self._generators("perturbation", cohort):
            draws.append({name: torch.randn(value.shape, generator=generator) for name, value in model.items()})
        noise = {}
        for name, value in model.items():
            if draws:
                noise[name] = torch.stack([draw[name] for draw in draws]).to(value) * self.noise_scale
            else:
                noise[name] = value.new_zeros(0, *value.shape)
        return noise

    def _rank(self, cohort: Cohort, rankers: Parameters) -> Tensor:
        """``(C, Q, L)`` positions of the best documents in their query, padded with -1; deterministic."""
        document = cohort.examples["document"]
        pool = cohort.shared["features"]
        scores = []
        for chunk in torch.split(torch.arange(len(cohort)), _CLIENTS_AT_ONCE):
            of_chunk = {name: value[chunk] for name, value in rankers.items()}
            scores.append(rank_scores(of_chunk, pool[document[chunk].clamp(min=0)]))
        if not scores:
            return self._best(document.float())
        return self._best(torch.cat(scores).masked_fill(document < 0, -torch.inf))
