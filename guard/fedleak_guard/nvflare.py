"""Guard of an NVFlare site: a filter that the site names in its privacy.json, and a component that watches the filter.

NVFlare applies a site's filters to every job that runs in the site's scope, and a job cannot remove them. It applies
the job's own filters after them, so `EgressWatch` compares what finally leaves with what `EgressCheck` released. Each
of the two refuses everything without the other.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ProcessType, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeJobError
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fedleak_guard.chained_log import NAME
from fedleak_guard.evidence import write_evidence
from fedleak_guard.guard import Guard
from fedleak_guard.message import Holds, Message, tensors_hash
from fedleak_guard.policy import read_policy
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import InputError

_HOLDS: dict[str, Holds] = {DataKind.WEIGHTS: "models", DataKind.WEIGHT_DIFF: "deltas"}
_COUNTS = MetaKey.NUM_STEPS_CURRENT_ROUND, MetaKey.START_ROUND, MetaKey.CURRENT_ROUND, MetaKey.TOTAL_ROUNDS
"""Meta data that may leave as whole numbers."""
_ROUNDS = AppConstants.START_ROUND, AppConstants.CURRENT_ROUND, AppConstants.NUM_ROUNDS
"""Headers that may leave as whole numbers, apart from the return code and the type of the content."""
_CODES = frozenset(value for name, value in vars(ReturnCode).items() if name.isupper())
_logger = logging.getLogger("fedleak_guard")


@dataclass
class _Task:
    """What the site knows of the task that a job works on."""

    watched: bool = False
    round: int = 0
    received: dict[str, Array] = field(default_factory=dict)
    released: tuple[Any, str] | None = None
    """Plain part and hash of the tensors of what was released and has not left yet."""


_tasks: dict[tuple[str, str], _Task] = {}
_lock = threading.Lock()


class EgressCheck(Filter):
    """Filter of results, for ``task_result_filters`` of each scope of the site's privacy.json.

    What leaves is made anew from the checked numbers, and other headers of the result are dropped. A refusal raises
    `UnsafeJobError`: NVFlare then replies with the code ``UNSAFE_JOB`` alone, upon which its server ends the job.

    Args:
        policy: path of the site's policy.
        examples_key: meta data with the number of training examples.
    """

    def __init__(self, policy: str, examples_key: str = "num_examples") -> None:
        super().__init__()
        self.policy, self.examples_key = policy, examples_key  # NVFlare reads the arguments from attributes
        self._guard = Guard(policy)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """What leaves of a result.

        Raises:
            UnsafeJobError: nothing does.
        """
        try:
            return self._process(shareable, _task_of(fl_ctx), str(fl_ctx.get_job_id()))
        except RefusedError as refused:
            _logger.error(refused.public)
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
        raise UnsafeJobError(RefusedError.TO_THE_SERVER)

    def _process(self, shareable: Shareable, task: _Task, job: str) -> Shareable:
        if not task.watched:
            raise InputError(
                expected="the component fedleak_guard.nvflare.EgressWatch, which saw the task",
                found="none",
                way_out="Add it to the components of the site's privacy.json.",
            )
        code = shareable.get_return_code(ReturnCode.OK)
        if code != ReturnCode.OK:
            leaving = make_reply(code if code in _CODES else ReturnCode.EXECUTION_EXCEPTION)
        else:
            leaving = self._released(shareable, from_shareable(shareable), task, job)
        task.released = _sealed(leaving)
        return leaving

    def _released(self, shareable: Shareable, dxo: DXO, task: _Task, job: str) -> Shareable:
        meta = dict(dxo.meta or {})
        metrics, holds = dict(meta.pop(MetaKey.INITIAL_METRICS, None) or {}), _HOLDS.get(dxo.data_kind)
        kept = {key: meta.pop(key) for key in (*_COUNTS, self.examples_key) if key in meta}
        unknown = [f"the entry {key!r}" for key in shareable if key not in (ReservedHeaderKey.HEADERS, "DXO")]
        unknown += [f"the value {value!r:.20} of {key}" for key, value in kept.items() if not _is_count(value)]
        if dxo.data_kind == DataKind.METRICS:
            metrics |= dxo.data
        elif holds is None:
            unknown.append(f"data of the kind {dxo.data_kind!r:.40}")
        metrics |= {key: value for key, value in meta.items() if value not in (None, "", [], {})}
        released = self._guard.release(
            Message(
                job=job,
                round=task.round,
                sent=None if holds is None else dxo.data,
                holds=holds or "deltas",
                received=task.received or None,
                metrics=metrics,
                examples=kept.get(self.examples_key),
                unknown=tuple(unknown),
            )
        )
        data = released.metrics
        if released.tensors is not None:
            data = {name: _as_before(value, dxo.data[name]) for name, value in released.tensors.items()}
            kept |= {MetaKey.INITIAL_METRICS: released.metrics} if released.metrics else {}
        leaving = DXO(dxo.data_kind, data, kept).to_shareable()
        for key in _ROUNDS:
            if _is_count(shareable.get_header(key)):
                leaving.set_header(key, int(shareable.get_header(key)))
        return leaving


class EgressWatch(FLComponent):
    """Component for ``components`` of the site's privacy.json: keeps the received model, and watches what leaves.

    A result that is not what `EgressCheck` released is emptied, and leaves as the return code ``UNSAFE_JOB`` alone.
    When the job ends, the summaries of the log are written.

    Args:
        policy: path of the site's policy, for the summaries; none are written without it.
    """

    def __init__(self, policy: str = "") -> None:
        super().__init__()
        self.policy = policy

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keeps the model before a task, and compares its result after the last filter."""
        if fl_ctx.get_prop(FLContextKey.PROCESS_TYPE) == ProcessType.SERVER_JOB:
            return  # NVFlare's simulator copies the site's privacy.json to the server
        if event_type == EventType.BEFORE_TASK_EXECUTION:
            self._keep(fl_ctx)
        elif event_type == EventType.AFTER_TASK_RESULT_FILTER:
            self._compare(fl_ctx.get_prop(FLContextKey.TASK_RESULT), fl_ctx)
        elif event_type == EventType.END_RUN and self.policy:
            self._summarize()

    def _keep(self, fl_ctx: FLContext) -> None:
        task, data = _task_of(fl_ctx), fl_ctx.get_prop(FLContextKey.TASK_DATA)
        task.watched, task.released, task.received, task.round = True, None, {}, 0
        if isinstance(data, Shareable):
            number = data.get_header(AppConstants.CURRENT_ROUND)
            task.round = int(number) if _is_count(number) else 0
            try:
                dxo = from_shareable(data)
                if dxo.data_kind == DataKind.WEIGHTS:
                    task.received = {name: np.array(as_array(value)) for name, value in dxo.data.items()}
            except (ValueError, InputError):  # no model, so that what needs it is refused
                task.received = {}

    def _compare(self, result: Any, fl_ctx: FLContext) -> None:
        try:
            task = _task_of(fl_ctx)
            same = task.released is not None and _sealed(result) == task.released
            task.released = None
        except Exception:
            same = False
        if not same and isinstance(result, Shareable):
            result.clear()
            result.set_return_code(ReturnCode.UNSAFE_JOB)
            _logger.error(
                "nothing left the site: EgressCheck did not release this result, or it was changed afterwards"
            )

    def _summarize(self) -> None:
        try:
            policy = read_policy(self.policy)
            write_evidence(Path(policy.evidence) / NAME, policy.budget.delta)
        except (InputError, OSError) as error:
            _logger.error("no summary of the log: %s", reason_of(error))


def _task_of(fl_ctx: FLContext) -> _Task:
    key = str(fl_ctx.get_identity_name()), str(fl_ctx.get_job_id())
    with _lock:
        return _tasks.setdefault(key, _Task())


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 <= value < 2**31)


def _as_before(value: Array, sent: Any) -> Any:
    """An array in the framework of the sent one."""
    if type(sent).__module__.partition(".")[0] != "torch":
        return value
    import torch

    return torch.from_numpy(value).to(sent.dtype)


def _sealed(result: Shareable) -> tuple[Any, str]:
    """Everything that a result holds: plain values, and a hash of its arrays by place.

    Raises:
        InputError: it holds something else.
    """
    arrays: dict[str, Array] = {}

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, Mapping):
            return [[key, plain(part, f"{place}/{key}")] for key, part in value.items()]
        if value is None or isinstance(value, bool | int | float | str):
            return [type(value).__name__, value]
        if isinstance(value, list):
            return [plain(part, f"{place}/{number}") for number, part in enumerate(value)]
        arrays[place] = as_array(value, where=place)
        return type(value).__name__

    return plain(result, ""), tensors_hash(arrays)
