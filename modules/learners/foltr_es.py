"""FOLtR-ES: federated online learning to rank with evolution strategies (Kharitonov 2019; RAIFLE, section VII.E)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from defenses.base import Update
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.learners.online_ranker import ClickModel, OnlineRanker
from modules.nets.ranker import rank_scores
from modules.server import ServerOptimizer
from protocol.click_models import LONGEST
from protocol.errors import InputError
from protocol.list_metrics import UTILITY, check_metric, levels, respond, truthful_probability, units
from protocol.simulators import ListMetric
from ranges import NonNegativeInt, PositiveInt

_CLIENTS_AT_ONCE = 64
_ADAM = ServerOptimizer(name="fedadam", learning_rate=0.001, betas=(0.9, 0.999), eps=1e-8)


class FOLtRES(OnlineRanker):
    """A ranker that learns from how well its perturbations do; clients send a number or two, and no update.

    In a round each client perturbs the global model by Gaussian noise from a seed that it shares with the server, ranks
    its queries by the perturbed scores, and sends the mean of a metric of its clicks. Antithetic clients rank every
    query twice, by the noise added and by the noise subtracted, and send two numbers. (Published clients draw their
    queries at random, each for one of the two.)

    What is sent and recorded is `UTILITY`; the gradient is what the server makes of it and of the noise. So the
    recording holds what the server sees and cannot compute itself: a delta would hold only the difference of the
    two numbers, hidden in numbers that the server knows.

    Args:
        num_features: features of a document, None for those of the data.
        num_grades: grades of relevance, 3 or 5, None for those of the data.
        grade_law: how often each grade occurs in the training data, None for what they say; public, so that a server
            can guess at clicks.
        hidden: hidden units, 0 for a linear ranker.
        click_model: how clients click.
        shown: documents in a list, at most 10.
        metric: ``max-rr`` or ``dcg``; see `protocol.list_metrics.levels`.
        antithetic: whether every query is ranked by both signs of the noise.
        noise_scale: standard deviation of the noise on each number of the model.
        epsilon: budget of local DP for the metric of one list, by randomised response (Kharitonov 2019);
            a client spends it on every list.
        server: what the server does with the estimated gradient (published: Adam).
        seed: seed of every draw.

    Raises:
        InputError: an argument is out of its range.
    """

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
            num_features=num_features,
            num_grades=num_grades,
            grade_law=grade_law,
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
            if not value > 0:
                raise InputError(expected=f"{name} > 0", found=str(value), way_out="epsilon: inf means no privacy.")
        check_metric(metric)
        self.metric: ListMetric = metric
        self.noise_scale = noise_scale
        self.truthful = truthful_probability(float(epsilon))
        self.signs = (1, -1) if antithetic else (1,)

    def learner_description(self) -> dict[str, Any]:
        arguments = {
            "metric": self.metric,
            "numbers": len(self.signs),
            "truthful": self.truthful,
            "click_model": self.click_model,
            "grade_law": self.grade_law,
        }
        return {"name": "foltr-es", "arguments": arguments}

    def public_description(self) -> dict[str, Any]:
        """See `FederatedModule.public_description`; what is recorded of a client is what it sends."""
        sent = {UTILITY: {"shape": [len(self.signs)], "dtype": "float32"}}
        return super().public_description() | {"parameters": sent}

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """The clients perturb, rank and click.

        Returns:
            A cohort whose examples are lists, those of the added noise first: ``features (C, Q, L, F)``, ``click``,
            ``shown`` and ``document`` ``(C, Q, L)``.

        Raises:
            InputError: the data are of private retrieval.
        """
        if "holder" in cohort.examples:
            raise InputError(
                expected="data whose documents the server knows, because it ranks them by shared noise",
                found="private retrieval",
                way_out="Leave data.private_retrieval out, or train FPDGD.",
            )
        noise = self._perturbations(cohort, model)
        places = [self._rank(cohort, {n: model[n] + sign * noise[n] for n in model}) for sign in self.signs]
        place = torch.cat(places, dim=1)
        shown = place >= 0
        document, grade = (
            cohort.examples[name].repeat(1, len(self.signs), 1).gather(2, place.clamp(min=0))
            for name in ("document", "grade")
        )
        examples = {
            "features": cohort.shared["features"][document] * shown[..., None],
            "click": self._click(cohort, grade, shown, every=True),
            "shown": shown,
            "document": cohort.shared["row"][document].where(shown, -1),
        }
        return dataclasses.replace(cohort, examples=examples, mask=shown.any(2), shared={})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """The documents shown, list by list; see `modules.federated.RoundRecord`."""
        document = cohort.examples["document"]
        number = torch.arange(document.shape[1])[:, None].expand(document.shape[1:])
        return {
            "served": document.flatten(1),
            "lists": number.expand(document.shape).where(document >= 0, -1).flatten(1),
            "features": cohort.examples["features"].flatten(1, 2),
        }

    def client_updates(self, cohort: Cohort, model: Parameters) -> tuple[Update, Tensor]:
        """The numbers that clients send, ``(C, 2)`` or ``(C, 1)``, and less their mean as the loss."""
        level = levels(self.metric, cohort.examples["click"])
        if self.truthful < 1 and len(cohort):
            told = zip(level, self._generators("response", cohort, secret=True), strict=True)
            level = torch.stack([respond(own, self.truthful, g) for own, g in told])
        steps, one = units(self.metric)
        of_ranker = steps[level].double().reshape(len(cohort), len(self.signs), level.shape[1] // len(self.signs))
        utility = (of_ranker.mean(2) / one).float()
        return Update({UTILITY: utility}), -utility.mean() if len(cohort) else utility.new_zeros(())

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """The gradient as evolution strategies estimate it: the noise, times what the metric gained by it."""
        utility = update.deltas[UTILITY]
        gain = (utility[:, 0] - utility[:, 1]) / 2 if len(self.signs) == 2 else utility[:, 0]
        noise = self._perturbations(cohort, model)
        scaled = gain / self.noise_scale**2
        return Update({n: value * scaled.reshape(-1, *[1] * (value.dim() - 1)) for n, value in noise.items()})

    def _fresh(self, round_number: int) -> Parameters:
        """All zeros, as published: the noise alone ranks at first."""
        return {name: torch.zeros_like(value) for name, value in super()._fresh(round_number).items()}

    def _perturbations(self, cohort: Cohort, model: Parameters) -> Parameters:
        """``(C, *shape)`` each client's noise; client and server draw it from the seed that they share."""
        draws = [
            {name: torch.randn(value.shape, generator=g) for name, value in model.items()}
            for g in self._generators("perturbation", cohort)
        ]
        return {
            name: torch.stack([draw[name] for draw in draws]).to(value) * self.noise_scale
            if draws
            else value.new_zeros(0, *value.shape)
            for name, value in model.items()
        }

    def _rank(self, cohort: Cohort, rankers: Parameters) -> Tensor:
        """``(C, Q, L)`` places of the best documents among a query's own, padded with -1; nothing is drawn."""
        document, pool = cohort.examples["document"], cohort.shared["features"]
        scores = [
            rank_scores({name: value[chunk] for name, value in rankers.items()}, pool[document[chunk].clamp(min=0)])
            for chunk in torch.split(torch.arange(len(cohort)), _CLIENTS_AT_ONCE)
        ]
        keys = torch.cat(scores).masked_fill(document < 0, -torch.inf) if scores else document.float()
        best = keys.topk(min(self.shown, keys.shape[2]), dim=2)
        padding = self.shown - best.indices.shape[2]
        place = best.indices.where(torch.isfinite(best.values), -1)
        return torch.nn.functional.pad(place, (0, padding), value=-1)
