"""What a client can find out about manipulated features, and the server read from them (RAIFLE, section VII.D)."""

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from attacks.ranking.lists import ranked_lists
from datamodules.deltas import Recording
from defenses.local_dp import clip_factors
from defenses.manipulation_checks.base import Check, Received, threshold
from defenses.manipulation_checks.registry import CHECKS
from evaluation.runner import Evaluation
from evaluation.scores import concat
from evaluation.separability import Classifier, embeddings, told_apart
from experiments.ranking import RankingCell, RankingExperiment
from experiments.recorded_cell import of_people
from protocol.seeding import generator_for
from protocol.view import ServerView
from reports.maps import update_maps

_FOLDS = 4
"""Of a round's clients: one is judged, one is the reference, two calibrate the threshold; they take turns."""
_PERPLEXITIES = (10.0, 30.0)
_CLASSIFIERS: tuple[Classifier, ...] = ("knn", "logistic", "forest")


@dataclass(frozen=True, kw_only=True)
class ChecksExperiment(RankingExperiment):
    """A table of checks against manipulations, beside the attacks that read these.

    ``flagged`` is the share of the clients that a check flags: for the manipulation ``none`` its false positives, on
    clients that neither calibrated it nor are its reference. ``accuracy`` is that of a classifier that tells updates
    from manipulated features from honest ones.

    Attributes:
        false_positives: share of honest clients for which the thresholds are calibrated.
    """

    false_positives: float = 0.05

    @property
    def cell(self) -> "type[CheckedCell]":
        return CheckedCell


@dataclass(frozen=True)
class CheckedCell(RankingCell[ChecksExperiment]):
    """A cell of `ChecksExperiment`."""

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """The same clients are trained with real features as well, with the same clicks."""
        evaluation, seconds = super().evaluate(directory)
        # The curves of a table's cells are told apart by data and budget only, which are the same here.
        evaluation.roc = {}
        start = time.perf_counter()
        sent = Recording(directory / "deltas")
        manipulated = self.manipulation != "none"
        honest = Recording(self._record_honest(directory / "honest")) if manipulated else sent
        rows = [flags for number in sent.rounds for flags in self._flags(sent, honest, number)]
        if manipulated:
            rows += self._compare_updates(sent, honest, evaluation)
        evaluation.scores = concat([evaluation.scores, of_people(concat(rows), sent)])
        return evaluation, {**seconds, "attack": seconds["attack"] + time.perf_counter() - start}

    def _record_honest(self, directory: Path) -> Path:
        return dataclasses.replace(self, manipulation="none")._record(directory)

    def _flags(self, sent: Recording, honest: Recording, number: int) -> Iterator[pd.DataFrame]:
        view = _round(sent, number)
        judged, peers = _received(view), _received(_round(honest, number))
        fold = torch.randperm(view.victims, generator=generator_for(self.seed, "folds", number)) % _FOLDS
        share = self.table.false_positives
        start = time.perf_counter()
        flags = {name: flagged(kind(), judged, peers, fold, share) for name, kind in CHECKS.items()}
        flags["any-check"] = torch.stack(list(flags.values())).any(0)
        seconds = (time.perf_counter() - start) / view.victims
        for name, values in flags.items():
            yield self._scores(name, {"flagged": values.double()}, view, seconds)

    def _compare_updates(self, sent: Recording, honest: Recording, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        views = [_round(sent, number) for number in sent.rounds]
        manipulated = torch.cat([_updates(view, self.table.clip) for view in views])
        real = torch.cat([_updates(_round(honest, number), self.table.clip) for number in sent.rounds])
        maps = embeddings(real, manipulated, _PERPLEXITIES, seed=self.seed)
        caption = (
            f"{self.data}, {self.ranker}, {self.manipulation}: t-SNE of the clipped updates, as in RAIFLE's figure 7. "
            "The accuracy of classifiers is in the table (updates-knn, -logistic, -forest); guessing gives 0.5."
        )
        evaluation.figures.append((caption, update_maps(maps)))
        for name in _CLASSIFIERS:
            start = time.perf_counter()
            values = told_apart(real, manipulated, name, seed=self.seed)
            seconds = (time.perf_counter() - start) / len(values)
            for view, own in zip(views, torch.split(values, [view.victims for view in views]), strict=True):
                yield self._scores(f"updates-{name}", {"accuracy": own}, view, seconds)

    def _scores(self, name: str, metrics: dict[str, Tensor], view: ServerView, seconds: float) -> pd.DataFrame:
        options: dict[str, Any] = {"round": view.round, "items": view.served_mask.sum(1), "seconds": seconds}
        return self.scores(name, metrics, victims=view.pseudonyms, **options)


def flagged(check: Check, judged: Received, peers: Received, fold: Tensor, false_positives: float) -> Tensor:
    """Which clients a check flags, each judged by peers of other folds.

    Args:
        check: the check.
        judged: what the clients received.
        peers: what the same clients would have received of an honest server.
        fold: ``(C,)`` numbers from 0 to 3.
        false_positives: share of honest clients for which the threshold is calibrated.

    Returns:
        ``(C,)`` bool.
    """
    flags = torch.zeros(len(fold), dtype=torch.bool)
    for number in range(_FOLDS):
        own, reference = fold == number, fold == (number + 1) % _FOLDS
        public = peers.of(reference)
        limit = threshold(check(peers.of(~own & ~reference), public), false_positives)
        flags[own] = check(judged.of(own), public) > limit
    return flags


def _round(recording: Recording, number: int) -> ServerView:
    """All clients of a round, in an order that depends on what they were shown only."""
    views = list(recording.views(victims_per_view=len(recording.pseudonyms(number)), rounds=[number]))
    assert len(views) == 1
    return views[0]


def _received(view: ServerView) -> Received:
    lists = ranked_lists(view)
    assert lists.features is not None
    return Received(features=lists.features, mask=lists.mask, model=view.model)


def _updates(view: ServerView, clip: float) -> Tensor:
    """``(V, P)`` what the clients sent, clipped to the norm `clip`."""
    flat = torch.cat([delta.flatten(1) for delta in view.deltas.values()], dim=1)
    return flat * clip_factors(view.deltas, clip).to(flat)[:, None]
