"""One server's campaign against many clients at once: what it sends, what it keeps, how far it gets after T calls."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from attacks.base import ITEM_EMBEDDING, Attack, Release, ServerView, VectorEstimate, ViewError
from attacks.identifiability.messages import LEANING
from datamodules.keys import generator_for
from defenses.probe_check import ProbeCheck
from experiments.federated_mf import People
from modules.local_hyperparameters import LocalTraining
from modules.mf_learner import MFLearner
from modules.probing import Answering, Probed, answer, answer_zeros
from reports.evaluation import attack_view
from reports.judging import BASELINES
from reports.results import VictimRow
from reports.scoring import score

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

    def run(self, people: People, users: Tensor, bounds: Tensor) -> tuple[list[VictimRow], dict[str, str], Tensor]:
        """Attacks clients.

        Args:
            people: the clients.
            users: their private vectors ``(V, d)``.
            bounds: each client's T of the theorem ``(V,)``.

        Returns:
            Scores of every client; by attack that could not run, why; private vectors after the longest attack.
        """
        rows: list[VictimRow] = []
        missing: dict[str, str] = {}
        after = users.clone()
        for positions in torch.split(torch.arange(len(people.clients)), _CHUNK):
            part, own = people.select(positions), users[positions]
            kept: dict[tuple[str, str, Any], list[VictimRow]] = defaultdict(list)
            for campaign in range(self.campaigns):
                for axis, plan in self._plans(bounds[positions]):
                    generator = generator_for(self.seed, f"campaign-{axis}", campaign, int(part.clients[0]))
                    after[positions] = self._follow(part, own, axis, plan, generator, kept, missing)
            rows += [row for entries in kept.values() for row in _mean_rows(entries)]
        return rows, missing, after

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
        kept: dict[tuple[str, str, Any], list[VictimRow]],
        missing: dict[str, str],
    ) -> Tensor:
        """One campaign from its first call to its last; returns the private vectors at its end."""
        probed = Probed.start(users, part.items, part.labels)
        sent, done = self.sent(generator), torch.zeros(len(users), dtype=torch.float64)
        for point, calls in plan:
            self._call(probed, sent, calls - done, generator)
            done = calls
            view = self._view(part, probed)
            truth = {"labels": part.labels.float(), "user_vector": probed.users}
            setting = {**self.setting, axis: point}
            at_end = point == plan[-1][0]
            for row in self._scores(view, truth, setting, missing, baselines=at_end):
                kept[row.attack, row.metric, (axis, point)].append(row)
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
            auxiliary={LEANING: leaning},
        )

    def _scores(
        self,
        view: ServerView,
        truth: Mapping[str, Tensor],
        setting: Mapping[str, Any],
        missing: dict[str, str],
        *,
        baselines: bool,
    ) -> Iterator[VictimRow]:
        """Scores of one view; baselines read no message, so one place on the axis says all of them."""
        for attack in self.attacks:
            if attack.name in BASELINES and not baselines:
                continue
            try:
                rows, _ = attack_view(attack, view, truth, seed=self.seed, setting=setting)
            except ViewError as error:
                missing[attack.name] = str(error)
                continue
            yield from (row for row in rows if row.metric in self.metrics)
            for row in rows:
                if row.metric == "error":
                    success = float(row.value <= self.tolerance)
                    yield VictimRow(**{**vars(row), "metric": "success", "value": success})
        if baselines and "label-error" in self.metrics:
            own = score(VectorEstimate(vectors=truth["user_vector"]), view, truth).metrics["label-error"]
            for victim, value in zip(view.pseudonyms.tolist(), own.tolist(), strict=True):
                yield VictimRow(OWN, dict(setting), self.seed, 0, victim, 0, 0, "label-error", value, 0.0)


def check_rows(campaign: Campaign, honest: list[Tensor]) -> list[VictimRow]:
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
    return [
        VictimRow("probe-check", dict(campaign.setting), campaign.seed, 0, number, 0, 0, metric, float(found), 0.0)
        for metric, outcomes in (("detected", probes), ("false-alarm", alarms))
        for number, found in enumerate(outcomes)
    ]


def _mean_rows(rows: list[VictimRow]) -> list[VictimRow]:
    """One row per victim, averaged over the campaigns."""
    by_victim: dict[int, list[VictimRow]] = defaultdict(list)
    for row in rows:
        by_victim[row.victim].append(row)
    return [
        VictimRow(**{**vars(some[0]), "value": math.fsum(row.value for row in some) / len(some)})
        for some in by_victim.values()
    ]
