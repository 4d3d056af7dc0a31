"""One server's campaign against many clients at once: what it sends, what it keeps, how far it gets after T calls."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import VectorEstimate
from defenses.probe_check import ProbeCheck
from evaluation.runner import Evaluation, attack_view, joined
from evaluation.scores import concat, score_table, setting_columns
from experiments.federated_mf import People
from modules.local_hyperparameters import LocalTraining
from modules.mf_learner import MFLearner
from modules.probing import Answering, Probed, answer, answer_zeros
from protocol.seeding import generator_for
from protocol.view import ITEM_EMBEDDING, LEANING, Release, ServerView, ViewError

PROBES = ("zeros", "low-rank", "small", "shuffled")
"""All zero (Protocol 2); every item one and the same vector; small and random; the honest items under wrong names."""
SMALL = 0.01
"""Standard deviation of small random items; training makes items of a norm of about 3."""
OWN = "own-vector"
"""What the client's own vector scores: Proposition 1's eta, as an attack's name."""
_DRAWS = 20
"""Draws of a probe that the clients' check is tried on."""
_CHUNK = 100
"""Clients attacked at once: their summed messages are all that is kept."""


class Broadcasts(Callback):
    """Keeps the item tables that the server sent honestly, every n-th round: what a client has seen.

    Args:
        every: a client takes part about once in so many rounds.
    """

    def __init__(self, *, every: int) -> None:
        self.every = every
        self.tables: list[Tensor] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keeps the table that began the round."""
        record: Any = pl_module.round_record
        if record.round % self.every == 0:
            self.tables.append(record.model[ITEM_EMBEDDING])


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What the server does, and where it stops to look.

    Attributes:
        how: how the clients answer.
        probe: what it sends; see `PROBES`.
        table: the honest item vectors ``(I, d)``.
        before: those of the client's last honest round.
        attacks: what it makes of the messages.
        points: numbers of interactions T.
        multiples: numbers of interactions as multiples of each client's own bound.
        leaning_known: whether it knows which way each client leans; else it takes them to dislike most.
        tolerance: error that counts as success.
        seed: seed of every draw.
        setting: the keys of the results.
        metrics: which scores to keep.
        campaigns: repetitions, whose scores are averaged.
    """

    how: Answering
    probe: str
    table: Tensor
    before: Tensor
    attacks: tuple[Attack, ...]
    points: tuple[int, ...]
    multiples: tuple[float, ...]
    leaning_known: bool
    tolerance: float
    seed: int
    setting: Mapping[str, Any]
    metrics: frozenset[str]
    campaigns: int

    def run(self, people: People, users: Tensor, bounds: Tensor) -> tuple[Evaluation, Tensor]:
        """Attacks clients.

        Args:
            people: the clients.
            users: their private vectors ``(V, d)``.
            bounds: each client's T of the theorem ``(V,)``.

        Returns:
            Scores of every client, the mean over campaigns; private vectors after the longest attack.
        """
        after = users.clone()
        parts: list[Evaluation] = []
        for positions in torch.split(torch.arange(len(people.clients)), _CHUNK):
            part, own = people.select(positions), users[positions]
            found: list[Evaluation] = []
            for campaign in range(self.campaigns):
                for axis, plan in self._plans(bounds[positions]):
                    generator = generator_for(self.seed, f"campaign-{axis}", campaign, int(part.clients[0]))
                    after[positions] = self._follow(part, own, axis, plan, generator, found)
            whole = joined(found)
            whole.scores = _mean_over_campaigns(whole.scores)
            parts.append(whole)
        return joined(parts), after

    def sent(self, generator: torch.Generator) -> Tensor:
        """``(I, d)`` what the server sends instead of the item vectors."""
        if self.probe == "zeros":
            return torch.zeros_like(self.table)
        if self.probe == "shuffled":
            return self.table[torch.randperm(len(self.table), generator=generator)]
        rows = 1 if self.probe == "low-rank" else len(self.table)
        draw = torch.randn(rows, self.table.shape[1], generator=generator, dtype=self.table.dtype)
        return (SMALL * draw).expand_as(self.table)

    def _plans(self, bounds: Tensor) -> Iterator[tuple[str, list[tuple[float, Tensor]]]]:
        """By axis, its points and the calls of each client until then ``(V,)``."""
        if self.points:
            yield "interactions", [(t, torch.full_like(bounds, t)) for t in self.points]
        if self.multiples:
            yield "of_bound", [(m, (m * bounds).ceil().clamp(min=1)) for m in self.multiples]

    def _follow(
        self,
        part: People,
        users: Tensor,
        axis: str,
        plan: list[tuple[float, Tensor]],
        generator: torch.Generator,
        found: list[Evaluation],
    ) -> Tensor:
        """One campaign from its first call to its last; returns the private vectors at its end."""
        probed = Probed.start(users, part.items, part.labels)
        sent, done = self.sent(generator), torch.zeros(len(users), dtype=torch.float64)
        for point, calls in plan:
            self._call(probed, sent, calls - done, generator)
            done = calls
            view = self._view(part, probed)
            truth = {"labels": part.labels.float(), "user_vector": probed.users}
            at_end = point == plan[-1][0]
            found += self._attacked(view, truth, {**self.setting, axis: point}, baselines=at_end)
        return probed.users

    def _call(self, probed: Probed, sent: Tensor, calls: Tensor, generator: torch.Generator) -> None:
        if self.probe == "zeros":
            answer_zeros(probed, self.how, interactions=calls, generator=generator)
        else:
            answer(probed, sent, self.how, interactions=int(calls[0]), generator=generator)

    def _view(self, part: People, probed: Probed) -> ServerView:
        """What the server has: it knows of no item about which it was sent nothing."""
        leaning = torch.where(part.rates > 0.5, 1.0, -1.0) if self.leaning_known else -torch.ones(len(part.clients))
        how = self.how
        local = LocalTraining(learning_rate=how.learning_rate, batch_size=how.batch)
        release = Release(noise_scale=how.noise, parameters=(ITEM_EMBEDDING,))
        return ServerView(
            round=0,
            pseudonyms=part.clients,
            example_counts=part.counts,
            deltas={ITEM_EMBEDDING: probed.sums},
            model={ITEM_EMBEDDING: self.table},
            row_parameters=frozenset([ITEM_EMBEDDING]),
            served=torch.where(probed.updates > 0, part.items, -1),
            updates=probed.updates,
            releases=(release,) if how.noise else (),
            learner=MFLearner(dim=self.table.shape[1], loss=how.loss, local=local, clip=how.clip),
            priors={LEANING: leaning},
            manipulation="probe",
        )

    def _attacked(
        self, view: ServerView, truth: Mapping[str, Tensor], setting: Mapping[str, Any], *, baselines: bool
    ) -> Iterator[Evaluation]:
        """Scores of one view; baselines do not depend on the messages, so one point of the axis is enough for them."""
        for attack in self.attacks:
            if attack.baseline and not baselines:
                continue
            try:
                found = attack_view(attack, view, truth, seed=self.seed, setting=setting)
            except ViewError as error:
                yield Evaluation(missing={attack.name: str(error)})
                continue
            errors = found.scores[found.scores["metric"] == "error"]
            success = errors.assign(metric="success", value=(errors["value"] <= self.tolerance).astype(float))
            found.scores = concat([found.scores[found.scores["metric"].isin(self.metrics)], success])
            yield found
        if baselines and "label-error" in self.metrics:
            own = VectorEstimate(vectors=truth["user_vector"]).score(view, truth).metrics
            values = {"label-error": own["label-error"]}
            yield Evaluation(score_table(OWN, values, setting=setting, seed=self.seed, victims=view.pseudonyms))


def check_scores(campaign: Campaign, honest: list[Tensor]) -> pd.DataFrame:
    """How often `ProbeCheck` finds a reason: in draws of the probe, and in rounds of honest training.

    Args:
        campaign: says what is sent.
        honest: tables as an honest server sent them to one client, round after round.
    """
    check = ProbeCheck()
    probes = [
        bool(check.reasons(campaign.sent(generator_for(campaign.seed, "probe-draw", draw)), campaign.before))
        for draw in range(_DRAWS)
    ]
    alarms = [
        bool(check.reasons(table, None if number == 0 else honest[number - 1])) for number, table in enumerate(honest)
    ]
    common: dict[str, Any] = {"setting": campaign.setting, "seed": campaign.seed}
    return concat(
        [
            score_table("probe-check", {metric: outcomes}, victims=range(len(outcomes)), **common)
            for metric, outcomes in (("detected", probes), ("false-alarm", alarms))
        ]
    )


def _mean_over_campaigns(scores: pd.DataFrame) -> pd.DataFrame:
    keys = ["attack", "metric", *setting_columns(scores), "victim"]
    number = scores.groupby(keys, sort=False, dropna=False).ngroup()
    means = scores["value"].groupby(number).agg(lambda own: math.fsum(own) / len(own))
    first = ~number.duplicated()
    return scores[first].assign(value=means.loc[number[first]].to_numpy())
