"""Steps on attacks on private vectors: bounds of the theorems, costs to the clients, and detection by clients."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedleak.attacks.identifiability.pac import VectorEstimate
from fedleak.client.cohort import Cohort
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import InputError
from fedleak.core.gaussian_budget import composed_epsilon
from fedleak.core.ranges import OpenUnitInterval, PositiveInt, UnitInterval
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.defenses.refusal import ProbeCheck
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import SETTING
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.modules.learners.recommender import held_out_hits
from fedleak.server.probe_answers import Answering
from fedleak.server.probing import Probing
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun

_OWN = "own-vector"
"""Label of the score of the client's own vector, eta in Proposition 1."""


@dataclass
class ProbedTraining:
    """Finished training with a probing server, and the clients that it probed, `called`."""

    module: FederatedMF
    data: RecommenderDataModule
    probing: Probing
    called: Cohort

    @classmethod
    def of(cls, run: CellRun) -> "ProbedTraining":
        """The finished training of a cell.

        Raises:
            InputError: its server does not probe.
        """
        module, data = run.trained()
        if not isinstance(module, FederatedMF) or not isinstance(data, RecommenderDataModule) or not module.probing:
            raise InputError(
                expected="a table whose trainings have model.probing",
                found=f"a {type(module).__name__} with an honest server",
                way_out="Remove the step from `after`.",
            )
        return cls(module, data, module.probing, data.build_cohort(0, data.participants(module.probing.after)))

    @property
    def table(self) -> Tensor:
        """Item vectors ``(I, d)`` of the honest rounds, float64."""
        return self.module.item_embedding.weight.detach().double()

    @property
    def users(self) -> Tensor:
        """Private vectors ``(C, d)`` of all clients before the probes, float64."""
        return self.module.private[USER_EMBEDDING].double()


@dataclass(frozen=True)
class Theorem(AfterStep):
    """Number of interactions that the theorem requires for each client, and the largest of these."""

    name = "theorem"
    metrics = ("bound", "bound-of-all")

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        probed = ProbedTraining.of(run)
        called = probed.called
        probing = probed.probing
        users = probed.users[called.clients]
        labels = called.examples["label"]
        bound = probing.bounds(probed.module.answering(), probed.table, users, labels, called.counts)
        bounds = {"bound": bound, "bound-of-all": torch.full_like(bound, float(bound.max()))}
        yield run.scores(f"theorem-{probing.theorem}", bounds, victims=called.clients)


@dataclass(frozen=True)
class Sharpness(AfterStep):
    """Least share of the theorem's number of calls with which 1 - delta of the clients are identified, by attack.

    The share of identified clients, from the points `of_bound` of the campaigns, is interpolated linearly in the
    logarithm of the share of the bound; beyond the result it does not fall below 1 - delta. A client's influence, for
    the interval, is the derivative of the result with respect to the client's weight. An attack that has reached 1 -
    delta at the first point has that point as its result; one that does not reach it at the last point has none.
    """

    name = "sharpness"
    metrics = ("sharpness",)

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        probing = ProbedTraining.of(run).probing
        axis = f"{SETTING}of_bound"
        scores = evaluation.scores
        attacks = [name for name, attack_info in evaluation.lines.items() if attack_info.role in ATTACKS]
        is_point = (scores["metric"] == "success") & scores["attack"].isin(attacks) & scores[axis].notna()
        for attack, scores_of_attack in scores[is_point].groupby("attack", sort=False):
            # A curve for each client: the share of its repetitions in which it is identified, by point of a campaign.
            curves = (
                scores_of_attack.groupby(["person", scores_of_attack[axis].astype(float)])["value"].mean().unstack()
            )
            least, influence = least_share(curves.columns.to_numpy(), curves.to_numpy(), 1 - probing.delta)
            values = {self.name: np.full(len(curves), least)}
            label = f"theorem-{probing.theorem} by {attack}"
            yield run.scores(label, values, victims=curves.index, influences={self.name: influence})


def least_share(
    points: np.ndarray[Any, Any], curves: np.ndarray[Any, Any], goal: float
) -> tuple[float, np.ndarray[Any, Any]]:
    """Point from which on the mean of ``curves (V, K)`` at ascending ``points (K,)`` stays at the goal, and influences.

    Returns:
        The point, NaN if the last mean is below the goal; and the curves' influences on it ``(V,)``.
    """
    # The share that is reached at a point and at all later ones, from the last point backwards.
    mean = np.minimum.accumulate(curves.mean(0)[::-1])[::-1]
    if mean[-1] < goal:
        return math.nan, np.full(len(curves), math.nan)
    after = int((mean >= goal).argmax())
    if after == 0:
        return float(points[0]), np.zeros(len(curves))
    # Between two points the mean is linear in the logarithm of the point.
    rise = mean[after] - mean[after - 1]
    width = math.log(points[after] / points[after - 1])
    share = (goal - mean[after - 1]) / rise
    least = points[after] * math.exp((share - 1) * width)
    # d least / d mean = -least * width / rise; a client's part of the mean at `least` is its interpolated curve.
    values = curves[:, after - 1] * (1 - share) + curves[:, after] * share
    return float(least), -(values - values.mean()) * least * width / rise


@dataclass(frozen=True)
class AnswerPrivacy(AfterStep):
    """Adds the column ``epsilon`` to all scores: privacy of a client's answers to all calls so far.

    A call sends the changes of at most B items, each of an L2 norm of at most ``alpha C`` for gradients clipped to C,
    so two clients with the same items differ by at most ``2 alpha C sqrt(B)``: a Gaussian mechanism, and T calls
    compose exactly (`fedleak.core.gaussian_budget.composed_epsilon`), which is no looser than by Renyi divergences. It
    covers labels and vector of the client, and not *which* items it labelled, which the noise of Equation 3 shows. The
    column ``epsilon_label`` is for the label of one item, which changes one row by at most ``2 alpha C`` in a call.
    Without clipping or noise both are infinite.

    Attributes:
        delta: probability with which the guarantee may fail.
    """

    name = "privacy"

    delta: OpenUnitInterval = 1e-5

    def columns(self, run: CellRun, scores: pd.DataFrame) -> dict[str, list[Any]]:
        probed = ProbedTraining.of(run)
        how = probed.module.answering()
        items = how.batch if how.protocol == "batches" else int(probed.called.counts.max())
        calls = scores[f"{SETTING}interactions"].astype(float)
        columns: dict[str, list[Any]] = {}
        for name, changed_items in (("epsilon", items), ("epsilon_label", 1)):
            columns[name] = []
            for call_count in calls:
                epsilon = None
                if not math.isnan(call_count):
                    epsilon = _total_epsilon(how, int(call_count), changed_items, self.delta)
                columns[name].append(epsilon)
        return columns


def _total_epsilon(how: Answering, calls: int, items: int, delta: float) -> float | str:
    """Epsilon of a number of calls, to three digits; ``inf`` as a word, as in other tables."""
    if not how.noise or how.clip is None:
        return "inf"
    # Two clients differ by up to 2 alpha C in each of the rows that a call changes.
    sensitivity = 2 * how.learning_rate * how.clip * math.sqrt(items)
    rounded = float(f"{composed_epsilon((how.noise / sensitivity,), calls, delta):.3g}")
    return int(rounded) if rounded.is_integer() else rounded


@dataclass(frozen=True)
class Clients(AfterStep):
    """Assumptions of the theorem for all clients, scores of their own vectors, and the effect of the probes on them.

    The hit rate is measured before the first probe and after the last, if clients keep the probed vectors.
    """

    name = "clients"
    metrics = ("preference-rate", "assumption-1", "hr@10", "cosine-after", "label-error")

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        probed = ProbedTraining.of(run)
        everybody = probed.data.build_cohort(0, torch.arange(probed.data.num_clients))
        rates = everybody.examples["label"].double().sum(1) / everybody.counts
        # Assumption 1 of the theorem: a client dislikes more items than it likes.
        assumed = {"preference-rate": rates, "assumption-1": rates < 0.5}
        yield run.scores("client", assumed, victims=everybody.clients)
        yield from _own_vectors(run)
        yield from self._cost(run, probed)

    def _cost(self, run: CellRun, probed: ProbedTraining) -> Iterator[pd.DataFrame]:
        users = probed.users
        clients = probed.called.clients
        # Vectors after the attack: those of the last probing round, or the honest ones of clients that were not probed.
        after = users.clone()
        last = run.recording.rounds[-1]
        probing_rounds = [last] if last in run.recording.round_settings else []
        for view in run.recording.views(rounds=probing_rounds):
            truth = run.recording.truth(view)
            after[truth["clients"]] = truth["user_vector"].double()
        for when, vectors in (("before the attack", users), ("after restoring", after)):
            hits = held_out_hits(probed.data.val_dataloader(), probed.table, vectors)[clients]
            yield run.scores("client", {"hr@10": hits}, victims=clients, setting={"when": when})
        moved = torch.nn.functional.cosine_similarity(users[clients], after[clients], dim=1)
        yield run.scores("client", {"cosine-after": moved}, victims=clients)


@dataclass(frozen=True)
class ProbeCheckStep(AfterStep):
    """Rate at which clients that check the item table raise an alarm, in draws of the probe and in honest rounds.

    The checking client takes part in every recorded honest round, so `every_n_rounds` of the recording should be the
    number of rounds in which a client takes part about once.

    Attributes:
        draws: number of draws of the probe.
    """

    name = "probe-check"
    metrics = ("detected", "false-alarm")

    draws: PositiveInt = 20

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        probed = ProbedTraining.of(run)
        recording = run.recording
        check = ProbeCheck()
        rounds = [number for number in recording.rounds if number < probed.probing.after]
        honest = [recording.model(number)[ITEM_EMBEDDING] for number in rounds]
        # Pairs of the table that a client gets and the one that it got before: probes after the last honest table, and
        # honest tables one after another, the first without one before.
        probes = []
        for draw in range(self.draws):
            generator = generator_for(run.seed, "probe-draw", draw)
            probes.append((probed.probing.sent(probed.table, generator), honest[-1].double()))
        successive = zip(honest, [None, *honest], strict=False)
        for metric, pairs in (("detected", probes), ("false-alarm", successive)):
            alarms = [bool(check.reasons(table, before)) for table, before in pairs]
            yield run.scores(self.name, {metric: alarms}, victims=range(len(alarms)))


@dataclass(frozen=True)
class Reached(AfterStep):
    """Removes scores after numbers of messages that few clients have sent.

    Attributes:
        share: share of the recorded clients that must have sent as many messages.
    """

    name = "reached"

    share: UnitInterval = 0.5

    def kept(self, scores: pd.DataFrame) -> "pd.Series[bool] | None":
        column = f"{SETTING}rounds"
        if column not in scores:
            return None
        return scores.groupby(column)["victim"].transform("nunique") >= self.share * scores["victim"].nunique()


def _own_vectors(run: CellRun) -> Iterator[pd.DataFrame]:
    """Errors of the clients' own vectors on the labels that were sent by the end of each campaign."""
    settings = run.recording.round_settings
    ends: dict[str, float] = {}
    for setting_of_round in settings.values():
        for axis, value in setting_of_round.items():
            if axis != "tolerance":
                ends[axis] = max(value, ends.get(axis, 0))
    for view in run.recording.views(rounds=list(settings)):
        # The last round of a campaign is where one of its settings has its largest value.
        setting = {axis: value for axis, value in settings[view.round].items() if value == ends.get(axis)}
        if setting:
            truth = run.recording.truth(view)
            error = VectorEstimate(vectors=truth["user_vector"]).score(view, truth).metrics["label-error"]
            yield run.scores(_OWN, {"label-error": error}, victims=truth["clients"], setting=setting)
