"""Detection of manipulated features by clients (RAIFLE, section VII.D)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from fedleak.client.ranked_lists import ranked_lists
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.local_dp import clip_factors
from fedleak.defenses.manipulation_checks import Check, Received, check_named, checks
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.scores import concat
from fedleak.evaluation.separability import CLASSIFIERS, correctly_classified, embeddings
from fedleak.recordings.recording import Recording
from fedleak.reports.figures.maps import update_maps
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun
from fedleak_recorder.conformal import conformal_thresholds

_FOLDS = 4
"""Folds of a round's clients: one is judged, one is the reference, two calibrate the threshold, in rotation."""
_PERPLEXITIES = (10.0, 30.0)
"""Perplexity of each t-SNE map."""
_IN_CAPTION = ("data", "ranker", "manipulation")
"""Settings that the caption of the maps names."""


@dataclass(frozen=True, kw_only=True)
class ManipulationChecks(AfterStep):
    """Clients' checks against a manipulation of the features, next to the attacks that use the manipulation.

    ``flagged`` is the share of clients that a check flags; without a manipulation, these are its false positives on
    clients that neither calibrate it nor are its reference. ``accuracy`` is that of a classifier that distinguishes
    updates on manipulated features from those of the same training without the manipulation.

    Attributes:
        false_positives: share of honest clients for which the thresholds are calibrated.
        clip: L2 norm to which the updates are clipped before the comparison.
        checks: names or class paths of the checks; all of this project if empty.
    """

    name = "manipulation-checks"
    metrics = ("flagged", "accuracy")
    false_positives: float = 0.05
    clip: float = 0.25
    checks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.checks:
            check_named(name)

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        # The same training with and without the manipulation, round by round with the same clients.
        sent = run.recording
        honest = run.recording_of({"model.manipulation": None})
        pairs = [(_round(sent, number), _like(sent, honest, number)) for number in sent.rounds]
        rows: list[pd.DataFrame] = []
        for sent_round, honest_round in pairs:
            rows += self._flags(run, sent_round, honest_round)
        if sent.manifest.config["manipulation"] is not None:
            rows += self._compared(run, pairs, evaluation)
        yield run.of_people(concat(rows))

    def _flags(self, run: CellRun, sent: RoundView, honest: RoundView) -> Iterator[pd.DataFrame]:
        """Clients of a round that each check flags, and that any of them does."""
        judged = _received(sent)
        peers = _received(honest)
        # Folds of nearly equal sizes, drawn at random.
        fold = torch.randperm(sent.victims, generator=generator_for(run.seed, "folds", sent.round)) % _FOLDS
        start = time.perf_counter()
        check_classes = [check_named(name) for name in self.checks] or checks().values()
        flags = {}
        for check in check_classes:
            flags[check.name] = _flagged(check(), judged, peers, fold, self.false_positives)
        flags["any-check"] = torch.stack(list(flags.values())).any(0)
        seconds = (time.perf_counter() - start) / sent.victims
        for name, values in flags.items():
            yield _scores(run, name, {"flagged": values.double()}, sent, seconds)

    def _compared(
        self, run: CellRun, pairs: list[tuple[RoundView, RoundView]], evaluation: Evaluation
    ) -> Iterator[pd.DataFrame]:
        """Maps of the updates with and without the manipulation, and how well classifiers tell them apart."""
        views = [sent for sent, _ in pairs]
        manipulated = torch.cat([_updates(view, self.clip) for view in views])
        real = torch.cat([_updates(view, self.clip) for _, view in pairs])
        maps = embeddings(real, manipulated, _PERPLEXITIES, seed=run.seed)
        setting = ", ".join(str(value) for name, value in run.setting.items() if name in _IN_CAPTION)
        caption = (
            f"{setting}: t-SNE of the clipped updates, as in RAIFLE's figure 7. The table has the accuracy of three "
            "classifiers (updates-knn, updates-logistic, updates-forest); guessing gives 0.5."
        )
        evaluation.figures.append(update_maps(maps, caption))
        clients_by_round = [view.victims for view in views]
        for name in CLASSIFIERS:
            start = time.perf_counter()
            correct = correctly_classified(real, manipulated, name, seed=run.seed)
            seconds = (time.perf_counter() - start) / len(correct)
            # All rounds are classified together; rows are of each round's clients.
            for view, correct_in_round in zip(views, torch.split(correct, clients_by_round), strict=True):
                yield _scores(run, f"updates-{name}", {"accuracy": correct_in_round}, view, seconds)


def _flagged(check: Check, judged: Received, peers: Received, fold: Tensor, false_positives: float) -> Tensor:
    """``(C,)`` bool: clients that a check flags, each judged by honestly served peers of other folds."""
    flags = torch.zeros(len(fold), dtype=torch.bool)
    for number in range(_FOLDS):
        is_judged = fold == number
        is_reference = fold == (number + 1) % _FOLDS
        reference = peers.of(is_reference)
        # A conformal threshold from the two folds left: at most `false_positives` of honest clients exceed it.
        honest_values = check(peers.of(~is_judged & ~is_reference), reference)
        limit = conformal_thresholds(honest_values, false_positives, unit="clients").values[0]
        flags[is_judged] = check(judged.of(is_judged), reference) > float(limit)
    return flags


def _round(recording: Recording, number: int) -> RoundView:
    """All clients of a round."""
    (view,) = recording.views(victims_per_view=len(recording.pseudonyms(number)), rounds=[number])
    return view


def _like(sent: Recording, honest: Recording, number: int) -> RoundView:
    """Round of the honest training with its clients in the order of the other training's; pseudonyms differ."""
    view = _round(honest, number)
    clients = sent.truth(_round(sent, number))["clients"]
    is_same_client = clients[:, None] == honest.truth(view)["clients"]
    return view.select(is_same_client.long().argmax(1))


def _scores(run: CellRun, name: str, metrics: dict[str, Tensor], view: RoundView, seconds: float) -> pd.DataFrame:
    return run.scores(
        name,
        metrics,
        victims=view.pseudonyms,
        round=view.round,
        items=view.served_mask.sum(1),
        seconds=seconds,
    )


def _received(view: RoundView) -> Received:
    lists = ranked_lists(view)
    assert lists.features is not None
    return Received(features=lists.features, mask=lists.mask, model=view.sent_models())


def _updates(view: RoundView, clip: float) -> Tensor:
    """``(V, P)`` updates, clipped to the norm `clip`."""
    flat = torch.cat([delta.flatten(1) for delta in view.deltas.values()], dim=1)
    return flat * clip_factors(view.deltas, clip).to(flat)[:, None]
