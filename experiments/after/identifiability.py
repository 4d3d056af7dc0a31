"""What attacks on private vectors are read next to: bounds of theorems, costs to clients, what clients notice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pandas as pd
import torch
from torch import Tensor

from attacks.estimates import VectorEstimate
from datamodules.cohort import Cohort
from datamodules.recommendation.base import RecommenderDataModule
from defenses.probe_check import ProbeCheck
from evaluation.runner import Evaluation
from evaluation.scores import SETTING, concat
from experiments.after.step import AfterStep
from modules.learners.fncf_task import USER_EMBEDDING
from modules.learners.matrix_factorization import FederatedMF
from modules.learners.recommender import held_out_hits
from modules.probing.campaign import Probing
from protocol.errors import InputError
from protocol.seeding import generator_for
from protocol.view import ITEM_EMBEDDING
from ranges import PositiveInt, UnitInterval, check_fields

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

OWN = "own-vector"
"""What the client's own vector scores: Proposition 1's eta, as an attack's name."""


@dataclass
class Probed:
    """A finished training whose server probes.

    Attributes:
        module: as the training left it.
        data: its clients.
        probing: what the server did.
        called: the clients that it called.
    """

    module: FederatedMF
    data: RecommenderDataModule
    probing: Probing
    called: Cohort

    @classmethod
    def of(cls, run: "CellRun") -> "Probed":
        """Of a cell.

        Raises:
            InputError: its server does not probe.
        """
        module, data = run.trained()
        probing = getattr(module, "probing", None)
        if not isinstance(module, FederatedMF) or not isinstance(data, RecommenderDataModule) or probing is None:
            raise InputError(
                expected="a table whose trainings have model.probing",
                found=f"a {type(module).__name__} with an honest server",
                way_out="Remove the step from `after`.",
            )
        return cls(module, data, probing, data.build_cohort(0, data.participants(probing.after)))

    @property
    def table(self) -> Tensor:
        """Honest item vectors ``(I, d)``, float64."""
        return self.module.item_embedding.weight.detach().double()

    @property
    def users(self) -> Tensor:
        """Private vectors of all clients before the campaigns ``(C, d)``, float64."""
        return self.module.private[USER_EMBEDDING].double()


@dataclass(frozen=True)
class Theorem(AfterStep):
    """Numbers of interactions that the theorem demands: each client's own, and the largest of them."""

    name: ClassVar[str] = "theorem"
    metrics: ClassVar[tuple[str, ...]] = ("bound", "bound-of-all")

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        probed = Probed.of(run)
        called, probing = probed.called, probed.probing
        users, labels = probed.users[called.clients], called.examples["label"]
        bound = probing.bounds(probed.module.answering(), probed.table, users, labels, called.counts)
        bounds = {"bound": bound, "bound-of-all": torch.full_like(bound, float(bound.max()))}
        return _with(evaluation, run.scores(f"theorem-{probing.theorem}", bounds, victims=called.clients))


@dataclass(frozen=True)
class Clients(AfterStep):
    """What the theorem assumes of all clients, what their own vectors are worth, and what the campaigns do to them.

    Clients are compared before the first campaign and after the last, if they went on with the vectors of its end.
    """

    name: ClassVar[str] = "clients"
    metrics: ClassVar[tuple[str, ...]] = ("preference-rate", "assumption-1", "hr@10", "cosine-after", "label-error")

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        probed = Probed.of(run)
        everybody = probed.data.build_cohort(0, torch.arange(probed.data.num_clients))
        rates = everybody.examples["label"].double().sum(1) / everybody.counts
        assumed = {"preference-rate": rates, "assumption-1": rates < 0.5}
        rows = [run.scores("client", assumed, victims=everybody.clients)]
        return _with(evaluation, *rows, *_own_vectors(run), *self._cost(run, probed))

    def _cost(self, run: "CellRun", probed: Probed) -> Iterator[pd.DataFrame]:
        users, clients = probed.users, probed.called.clients
        after, last = users.clone(), run.recording.rounds[-1]
        for view in run.recording.views(rounds=[last] if last in run.recording.round_settings else []):
            truth = run.recording.truth(view)
            after[truth["clients"]] = truth["user_vector"].double()
        for when, vectors in (("before the attack", users), ("after restoring", after)):
            hits = held_out_hits(probed.data.val_dataloader(), probed.table, vectors)[clients]
            yield run.scores("client", {"hr@10": hits}, victims=clients, setting={"when": when})
        moved = torch.nn.functional.cosine_similarity(users[clients], after[clients], dim=1)
        yield run.scores("client", {"cosine-after": moved}, victims=clients)


@dataclass(frozen=True)
class ProbeCheckStep(AfterStep):
    """How often clients that check the item table find a reason: in draws of the probe, and in honest rounds.

    A client is one that took part in every recorded honest round, so `every_n_rounds` of the recording should be the
    number of rounds in which a client takes part about once.

    Attributes:
        draws: of the probe.
    """

    name: ClassVar[str] = "probe-check"
    metrics: ClassVar[tuple[str, ...]] = ("detected", "false-alarm")

    draws: PositiveInt = 20

    def __post_init__(self) -> None:
        """Refuses impossible numbers."""
        check_fields(self)

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        probed, recording, check = Probed.of(run), run.recording, ProbeCheck()
        rounds = [number for number in recording.rounds if number < probed.probing.after]
        honest = [recording.model(number)[ITEM_EMBEDDING] for number in rounds]
        generators = [generator_for(run.cell.seed, "probe-draw", draw) for draw in range(self.draws)]
        sent = [probed.probing.sent(probed.table, generator) for generator in generators]
        outcomes = {
            "detected": [bool(check.reasons(table, honest[-1].double())) for table in sent],
            "false-alarm": [
                bool(check.reasons(table, before)) for table, before in zip(honest, [None, *honest], strict=False)
            ],
        }
        rows = [
            run.scores(self.name, {metric: own}, victims=range(len(own)))
            for metric, own in outcomes.items()
        ]  # fmt: skip
        return _with(evaluation, *rows)


@dataclass(frozen=True)
class Reached(AfterStep):
    """Leaves out numbers of messages that few clients have sent: what is measured there would be about those few.

    Attributes:
        share: of the recorded clients, that must have sent so many.
    """

    name: ClassVar[str] = "reached"

    share: UnitInterval = 0.5

    def __post_init__(self) -> None:
        """Refuses impossible numbers."""
        check_fields(self)

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        column, scores = f"{SETTING}rounds", evaluation.scores
        if column in scores:
            reached = scores.groupby(column)["victim"].transform("nunique") >= self.share * scores["victim"].nunique()
            evaluation.scores = scores[reached]
        return evaluation


def _own_vectors(run: "CellRun") -> Iterator[pd.DataFrame]:
    """Errors of the clients' own vectors on the labels about which something was sent by the end of each campaign."""
    settings = run.recording.round_settings
    last: dict[str, float] = {}
    for own in settings.values():
        last |= {axis: max(value, last.get(axis, 0)) for axis, value in own.items() if axis != "tolerance"}
    for view in run.recording.views(rounds=list(settings)):
        setting = {axis: value for axis, value in settings[view.round].items() if value == last.get(axis)}
        if setting:
            truth = run.recording.truth(view)
            error = VectorEstimate(vectors=truth["user_vector"]).score(view, truth).metrics["label-error"]
            yield run.scores(OWN, {"label-error": error}, victims=truth["clients"], setting=setting)


def _with(evaluation: Evaluation, *rows: pd.DataFrame) -> Evaluation:
    evaluation.scores = concat([evaluation.scores, *rows])
    return evaluation
