"""Base class of the comparisons that a recording and its ground truth suffice for."""

import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

from fedleak.core.metric_table import Metric, metric_names
from fedleak.core.ranges import check_fields
from fedleak.core.view import RoundView
from fedleak.evaluation.scores import score_table
from fedleak.recordings.recording import Recording


@dataclass(frozen=True)
class RecordingRun:
    """Recording that is evaluated, as steps see it.

    Attributes:
        recording: what the server saw, with the ground truth.
        setting: cell that the scores belong to.
        seed: seed of the training and of the draws.
    """

    recording: Recording
    setting: Mapping[str, Any]
    seed: int

    def scores(
        self, label: str, metrics: Mapping[str, ArrayLike], *, victims: ArrayLike, **options: Any
    ) -> pd.DataFrame:
        """Rows of this seed and setting: ``(V,)`` values by metric, of client numbers or pseudonyms.

        `options` are other arguments of `score_table`; ``setting`` is added to that of the run.
        """
        setting = {**self.setting, **options.pop("setting", {})}
        return score_table(label, metrics, setting=setting, seed=self.seed, victims=victims, **options)

    def of_people(self, scores: pd.DataFrame) -> pd.DataFrame:
        """Scores with the client numbers of their pseudonyms, from the ground truth."""
        people: dict[int, int] = {}
        for view in self.recording.views(victims_per_view=256):
            truth = self.recording.truth(view)
            if "clients" in truth:
                people |= dict(zip(view.pseudonyms.tolist(), truth["clients"].tolist(), strict=True))
        return scores.assign(person=[people.get(victim, victim) for victim in scores["victim"].tolist()])


class Step:
    """Comparison next to the scores of attacks; its constructor's arguments are its options.

    Attributes:
        name: name in the ``after`` of a table.
        metrics: what it measures in addition to attacks; names in `fedleak.core.metric_table.METRICS`, or new entries.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str | Metric, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        metric_names(cls.metrics)  # adds new ones to the table

    def __post_init__(self) -> None:
        """Checks the fields of a step that is a dataclass."""
        check_fields(self)


class RecordingStep(Step, abc.ABC):
    """Comparison that a recording and its ground truth suffice for.

    It adds rows and changes none: victims that it leaves out are undefined when attacks are scored.
    """

    def unscored(self, view: RoundView) -> Tensor | None:
        """Mask ``(V,)`` of victims on which no attack is scored; None for all to be scored."""
        return None

    @abc.abstractmethod
    def rows(self, run: RecordingRun) -> Iterable[pd.DataFrame]:
        """Tables of scores to add."""
