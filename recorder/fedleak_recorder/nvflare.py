"""NVFlare component that records what the server receives, so that every attack of fedleak runs on an NVFlare job.

Add it to the server's components; it listens to the events of tasks and results, and changes nothing. It works with
every controller that sends a global model and gets models or differences back, e.g. ``FedAvg`` and
``ScatterAndGather``.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nvflare.apis.dxo import MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_event_type import AppEventType

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.frameworks.nvflare import (
    KINDS_OF_MODELS,
    arrays_in,
    has_failed,
    holds_of,
    metrics_in,
    origin_of,
    reported_in,
    round_of,
    sender_of,
)
from fedleak_recorder.recorder import Recorder
from fedleak_recorder.sent import Sent
from fedleak_recorder.tree_recorder import TreeRecorder


class RoundRecorder(FLComponent):
    """Server component that records the rounds of a job.

    Args:
        folder: folder of the recording on the server; it must not contain one.
        data: name of the data set.
        task: name of the tasks that are recorded.
        truth: names in a client's meta data or metrics that are ground truth for evaluations only, e.g.
            ``class_counts``; clients of a real deployment do not send them.
        examples_key: name in a client's meta data or metrics of its number of examples; where it is missing, the number
            is recorded as 0, which means unknown.
        learner: see `fedleak_recorder.Recorder`.
        releases: see `fedleak_recorder.Recorder`.
        trees: arguments of `fedleak_recorder.TreeRecorder` by name, for jobs of XGBoost whose clients send trees; None
            for arrays.
        after_filters: record the results after the server's filters instead of as they arrive, e.g. if a filter decodes
            them.

    A result that cannot be recorded ends the job with a message.
    """

    def __init__(
        self,
        folder: str,
        data: str = "unknown",
        task: str = "train",
        truth: Sequence[str] = (),
        examples_key: str = MetaKey.NUM_STEPS_CURRENT_ROUND,
        learner: Mapping[str, Any] | None = None,
        after_filters: bool = False,
        releases: Sequence[Mapping[str, Any]] = (),
        trees: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        # NVFlare reads the arguments from attributes.
        self.folder = folder
        self.data = data
        self.task = task
        self.truth = list(truth)
        self.examples_key = examples_key
        self.learner = learner
        self.after_filters = after_filters
        self.releases = list(releases)
        self.trees = trees
        self._recorder: Recorder | None = None
        self._number: int | None = None
        self._failed = False
        """Whether a round is missing, so that the recording must not be closed."""
        self._last = -1
        """Number of the last round that is recorded."""
        self._round = contextlib.ExitStack()
        """The round that is recorded while its results arrive."""
        self._add: Callable[[Sent], None] | None = None
        self._received: set[str] = set()
        """Clients whose results of the round are recorded."""
        self._one_event = threading.RLock()
        """Held while an event is handled; one that is fired meanwhile in the same thread goes on."""

    @property
    def key(self) -> bytes | None:
        """Secret key of the recording; None before the first round."""
        return None if self._recorder is None else self._recorder.key

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Records the results of a round while they arrive, and ends it when it is over."""
        # The server fires the events of several clients at once, each in a thread of its own.
        with self._one_event:
            self._handle(event_type, fl_ctx)

    def _handle(self, event_type: str, fl_ctx: FLContext) -> None:
        result_event = EventType.BEFORE_TASK_RESULT_FILTER
        if self.after_filters:
            result_event = EventType.AFTER_TASK_RESULT_FILTER
        try:
            if event_type == EventType.BEFORE_TASK_DATA_FILTER:
                self._begin(fl_ctx)
            elif event_type == result_event:
                self._receive(fl_ctx)
            elif event_type in (AppEventType.BEFORE_AGGREGATION, EventType.ABOUT_TO_END_RUN, EventType.END_RUN):
                self._write()
            if event_type == EventType.END_RUN and self._recorder is not None and not self._failed:
                self._recorder.close()
        except (InputError, OSError) as error:
            self._failed = True
            self._add = None
            with contextlib.suppress(InputError, OSError):
                self._round.__exit__(type(error), error, error.__traceback__)  # nothing of the round is recorded
            self.system_panic(f"the round could not be recorded: {error}", fl_ctx)

    def _begin(self, fl_ctx: FLContext) -> None:
        """Keeps the global model of a round that begins."""
        task = fl_ctx.get_prop(FLContextKey.TASK_DATA)
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != self.task or not isinstance(task, Shareable):
            return
        # Each client gets the task of a round; the first of them begins it.
        number = round_of(fl_ctx, task)
        if number == self._number or number <= self._last:
            return
        self._write()
        content = from_shareable(task)
        model = dict(content.data or {}) if self.trees is not None else arrays_in(content)
        self._number = number
        if self._recorder is None:
            self._recorder = self._made(model, fl_ctx)
        self._add = self._round.enter_context(self._recorder.streamed(number, model))

    def _made(self, model: Mapping[str, Any], fl_ctx: FLContext) -> Recorder:
        """The recorder, which is made for the first round's model."""
        origin, versions = origin_of(fl_ctx)
        if self.trees is not None:
            return TreeRecorder(
                self.folder,
                data=self.data,
                releases=self.releases,
                system=origin,
                versions=versions,
                **self.trees,
            )
        return Recorder(
            self.folder,
            parameters=model,
            data=self.data,
            learner=self.learner,
            releases=self.releases,
            system=origin,
            versions=versions,
        )

    def _receive(self, fl_ctx: FLContext) -> None:
        """Records the result of one client."""
        result = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != self.task or not isinstance(result, Shareable):
            return
        if has_failed(result):
            return
        client = sender_of(fl_ctx)
        number = round_of(fl_ctx, result)
        where = f"the result of {client}"
        if number != self._number or self._add is None or client in self._received:
            reason = "came too late to be recorded"
            if client in self._received:
                reason = "came twice"
            self.log_warning(fl_ctx, f"{where} for round {number} {reason}")
            return
        # NVFlare's results say themselves whether they are models or differences.
        dxo = from_shareable(result)
        holds = holds_of(dxo)
        way_out = "If a filter on the server decodes it, give after_filters=True."
        require(holds, f"a result of kind {' or '.join(KINDS_OF_MODELS)}", f"{dxo.data_kind} in {where}", way_out)
        reported = reported_in(dxo)
        missing = next((name for name in self.truth if name not in reported), None)
        way_out = "Return it in the meta data of the model, or leave it out of the argument truth."
        require(missing is None, f"{missing!r} from every client", f"{', '.join(reported)} in {where}", way_out)
        self._add(
            Sent(
                client=client,
                examples=reported.get(self.examples_key, 0),
                arrays=dxo.data,
                truth={name: reported[name] for name in self.truth},
                where=where,
                holds=holds,
                beside={"metrics": {name: value for name, value in metrics_in(dxo).items() if name not in self.truth}},
            )
        )
        self._received.add(client)

    def _write(self) -> None:
        """Ends the round."""
        self._add = None
        self._round.close()
        if self._received and self._number is not None:
            self._received = set()
            self._last = self._number
