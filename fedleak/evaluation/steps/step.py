"""Base class of the comparisons that a recording and its ground truth suffice for."""

import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

from fedleak.core.metric import Metric
from fedleak.core.metric_table import metric_names
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
        # A pseudonym whose client is unknown stays.
        persons = [people.get(victim, victim) for victim in scores["victim"].tolist()]
        return scores.assign(person=persons)


class Step:
    """Comparison next to the scores of attacks; its constructor's arguments are its options.

    Attributes:
        name: name in the ``after`` of a table.
        metrics: what it measures in addition to attacks; names in `fedleak.core.metric_table.METRICS`, or new entries.

    Example:
        >>> from dataclasses import dataclass
        >>> from fedleak import Metric, Step
        >>> from fedleak.core.ranges import PositiveInt
        >>> @dataclass(frozen=True)
        ... class LargestCounts(Step):
        ...     '''The largest numbers of examples.'''
        ...
        ...     name = "largest-counts"
        ...     metrics = (Metric("largest-count", "The largest count is a number of examples.", leak=False),)
        ...     most: PositiveInt = 3
        >>> LargestCounts(most=0)
        Traceback (most recent call last):
        ValueError: expected most: a whole number above 0, got 0
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

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import AuditPlan, Metric, Recording, RecordingStep, run_audit
        >>> from fedleak_recorder import Recorder
        >>> folder = mkdtemp()
        >>> with Recorder(folder, holds="deltas") as recorder:
        ...     sent = {"a": ({"weight": [3.0, 4.0]}, 10), "b": ({"weight": [0.0, 1.0]}, 30)}
        ...     recorder.round(0, {"weight": [0.0, 0.0]}, sent)
        >>> class UpdateNorms(RecordingStep):
        ...     '''L2 norm of each client's update.'''
        ...
        ...     name = "weight-norms"
        ...     metrics = (Metric("weight-norm", "The weight norm is the L2 norm of an update.", leak=False),)
        ...
        ...     def rows(self, run):
        ...         for view in run.recording.views():
        ...             norms = view.deltas["weight"].norm(dim=1)
        ...             yield run.scores("updates", {"weight-norm": norms}, victims=view.pseudonyms, round=view.round)
        >>> plan = AuditPlan(recording=Recording(folder), attacks=[], steps=[UpdateNorms()])
        >>> result = run_audit(plan, progress=False)
        >>> float(result.results.set_index("metric").loc["weight-norm", "mean"])
        3.0
    """

    def unscored(self, view: RoundView) -> Tensor | None:
        """Mask ``(V,)`` of victims on which no attack is scored; None for all to be scored."""
        return None

    @abc.abstractmethod
    def rows(self, run: RecordingRun) -> Iterable[pd.DataFrame]:
        """Tables of scores to add."""
