"""Guard of an NVFlare site: a filter that the site names in its privacy.json, and a component that watches the filter.

NVFlare applies a site's filters to every job that runs in the site's scope, and a job cannot remove them. It applies
the job's own filters after them, so `EgressWatch` compares what finally leaves with what `EgressCheck` released. Each
of the two refuses everything without the other.
"""

import copy
import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
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
from fedleak_guard.guard import Guard, Released
from fedleak_guard.message import Message, tensors_hash
from fedleak_guard.policy import read_policy
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import InputError
from fedleak_recorder.frameworks.nvflare import arrays_in, has_failed, holds_of, is_count, job_of, round_headers

_STEPS = MetaKey.NUM_STEPS_CURRENT_ROUND
"""Meta data with the number of steps; it leaves as a metric, counted with the others, if the policy names it."""
_ROUNDS = MetaKey.START_ROUND, MetaKey.CURRENT_ROUND, MetaKey.TOTAL_ROUNDS
"""Meta data with numbers of rounds, which do not leave: the server knows its task."""
_SET_BY_NVFLARE = (
    ReservedHeaderKey.AUDIT_EVENT_ID,
    ReservedHeaderKey.COOKIE_JAR,
    ReservedHeaderKey.TASK_NAME,
    ReservedHeaderKey.TASK_ID,
)
"""Headers that NVFlare sets after the last filter, from what the server sent."""
_logger = logging.getLogger("fedleak_guard")


@dataclass
class _Task:
    """What the site knows of the task that a job works on."""

    watched: bool = False
    round: int = 0
    received: dict[str, Array] = field(default_factory=dict)
    headers: dict[str, int] = field(default_factory=dict)
    """Numbers of rounds in the task's headers, with which the result leaves, whatever the client says."""
    data: Shareable | None = None
    jar: Any = None
    """The task, and a copy of its cookies, which NVFlare copies from the task into the result."""
    released: tuple[Any, str] | None = None
    """Plain part and hash of the tensors of what was released and has not left yet."""
    left: Shareable | None = None
    """The result that passed the last filter, until NVFlare sends it."""
    sealed: tuple[Any, str] | None = None
    """What it held."""


_tasks: dict[tuple[str, str], _Task] = {}
_lock = threading.Lock()


def _has_empty_part(value: Any) -> bool:
    """Whether a list or mapping holds an empty one at any depth, whose place and name would be all that it says."""
    if not isinstance(value, Mapping | list | tuple):
        return False
    parts = list(value.values()) if isinstance(value, Mapping) else list(value)
    return any(_has_empty_part(part) or (isinstance(part, Mapping | list | tuple) and not part) for part in parts)


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
        self._said_of_steps = False

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """What leaves of a result.

        Raises:
            UnsafeJobError: nothing does.
        """
        try:
            return self._process(shareable, _task_of(fl_ctx), job_of(fl_ctx))
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
        if has_failed(shareable):
            leaving = make_reply(ReturnCode.EXECUTION_EXCEPTION)  # one code for all failures, so that it says no more
        else:
            leaving = self._released(shareable, from_shareable(shareable), task, job)
        task.released = _sealed(leaving)
        return leaving

    def _released(self, shareable: Shareable, dxo: DXO, task: _Task, job: str) -> Shareable:
        meta = {key: value for key, value in (dxo.meta or {}).items() if key not in _ROUNDS}
        metrics, holds = dict(meta.pop(MetaKey.INITIAL_METRICS, None) or {}), holds_of(dxo)
        counts = {key: meta.pop(key) for key in (_STEPS, self.examples_key) if key in meta}
        unknown = [f"the entry {key!r}" for key in shareable if key not in (ReservedHeaderKey.HEADERS, "DXO")]
        unknown += [f"the value {value!r:.20} of {key}" for key, value in counts.items() if not is_count(value)]
        if dxo.data_kind == DataKind.METRICS:
            metrics |= dxo.data
        elif holds is None:
            unknown.append(f"data of the kind {dxo.data_kind!r:.40}")
        metrics |= {key: value for key, value in meta.items() if value not in (None, "", [], {})}
        if _STEPS in counts and self._may_leave(_STEPS):
            metrics[_STEPS] = counts[_STEPS]
        if _has_empty_part(metrics):
            unknown.append("an empty list or mapping among the metrics")
        if holds is not None and task.received:
            unknown += [f"the tensor {name!r:.40}, which the task has not" for name in dxo.data.keys() - task.received]
        frameworks = {_is_torch(value) for value in dxo.data.values()} if holds is not None else set()
        if len(frameworks) > 1:
            unknown.append("tensors of two frameworks")
        released = self._guard.release(
            Message(
                job=job,
                round=task.round,
                sent=None if holds is None else dxo.data,
                holds=holds or "deltas",
                received=task.received or None,
                metrics=metrics,
                examples=counts.get(self.examples_key),
                unknown=tuple(unknown),
            )
        )
        return self._made(released, dxo, task, counts)

    def _may_leave(self, name: str) -> bool:
        """Whether the policy names a metric; says once that it does not."""
        is_named = any(fnmatchcase(name, allowed) for allowed in read_policy(self.policy).metrics.names)
        if not is_named and not self._said_of_steps:
            self._said_of_steps = True
            _logger.warning("%s does not leave, since metrics.names of the policy does not name it", name)
        return is_named

    def _made(self, released: Released, dxo: DXO, task: _Task, counts: Mapping[str, Any]) -> Shareable:
        """The result that leaves, made from checked numbers and from the task, in an order that says nothing."""
        numbers = _in_order(released.metrics)
        meta: dict[str, Any] = {}
        if self.examples_key in counts:
            meta[self.examples_key] = int(counts[self.examples_key])
        if _STEPS in numbers:
            meta[_STEPS] = int(numbers.pop(_STEPS))
        if released.tensors is None:
            data = numbers
        else:
            known = [name for name in task.received if name in released.tensors]
            names = known + sorted(released.tensors.keys() - task.received.keys())
            data = {str(name): _as_before(released.tensors[name], dxo.data[name]) for name in names}
            if numbers:
                meta[MetaKey.INITIAL_METRICS] = numbers
        leaving = DXO(DataKind(dxo.data_kind), data, meta).to_shareable()
        for key, number in task.headers.items():
            leaving.set_header(key, number)
        return leaving


class EgressWatch(FLComponent):
    """Component for ``components`` of the site's privacy.json: keeps the received model, and watches what leaves.

    A result that is not what `EgressCheck` released is emptied, and leaves as the return code ``UNSAFE_JOB`` alone. It
    is compared after the last filter and again before NVFlare sends it, with the cookies as the server sent them. When
    the job ends, the summaries of the log are written.

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
        elif event_type == EventType.BEFORE_SEND_TASK_RESULT:
            self._compare_again(fl_ctx)
        elif event_type == EventType.END_RUN and self.policy:
            self._summarize()

    def _keep(self, fl_ctx: FLContext) -> None:
        task, data = _task_of(fl_ctx), fl_ctx.get_prop(FLContextKey.TASK_DATA)
        task.watched, task.released, task.left, task.sealed = True, None, None, None
        task.received, task.round, task.headers, task.data, task.jar = {}, 0, {}, None, None
        if isinstance(data, Shareable):
            task.data, task.jar = data, copy.deepcopy(data.get_cookie_jar())
            task.headers = round_headers(data)
            task.round = task.headers.get(AppConstants.CURRENT_ROUND, 0)
            try:
                dxo = from_shareable(data)
                if holds_of(dxo) == "models":
                    task.received = arrays_in(dxo)
            except (ValueError, InputError):  # no model, so that what needs it is refused
                task.received = {}

    def _compare(self, result: Any, fl_ctx: FLContext) -> None:
        try:
            task = _task_of(fl_ctx)
            sealed = _sealed(result)
            same = task.released is not None and sealed == task.released
            task.released = None
            task.left, task.sealed = (result, sealed) if same else (None, None)
        except Exception:
            same = False
        if not same:
            self._empty(result)

    def _compare_again(self, fl_ctx: FLContext) -> None:
        """Compares what NVFlare is about to send with what passed the last filter; other components ran in between."""
        task = _task_of(fl_ctx)
        left, sealed, task.left = task.left, task.sealed, None
        jar = None if task.data is None else task.data.get_cookie_jar()
        if isinstance(jar, dict) and jar != task.jar:  # NVFlare has put this object into whatever it sends
            jar.clear()
            jar.update(task.jar or {})
        if left is None:
            return
        try:
            headers = dict(left.get(ReservedHeaderKey.HEADERS) or {})
            own = {key: headers.pop(key) for key in _SET_BY_NVFLARE if key in headers}
            rest = {key: headers if key == ReservedHeaderKey.HEADERS else value for key, value in left.items()}
            same = _sealed(rest) == sealed and _is_of_task(own, task, fl_ctx)
        except Exception:
            same = False
        if not same:
            self._empty(left)

    def _empty(self, result: Any) -> None:
        if isinstance(result, Shareable):
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
    key = str(fl_ctx.get_identity_name()), job_of(fl_ctx)
    with _lock:
        return _tasks.setdefault(key, _Task())


def _is_of_task(headers: Mapping[str, Any], task: _Task, fl_ctx: FLContext) -> bool:
    """Whether the headers that NVFlare sets are those of the task."""
    audit = headers.get(ReservedHeaderKey.AUDIT_EVENT_ID)
    return (
        headers.get(ReservedHeaderKey.TASK_NAME) == fl_ctx.get_prop(FLContextKey.TASK_NAME)
        and headers.get(ReservedHeaderKey.TASK_ID) == fl_ctx.get_prop(FLContextKey.TASK_ID)
        and headers.get(ReservedHeaderKey.COOKIE_JAR) == (task.jar or None)
        and (audit is None or re.fullmatch(r"[0-9a-f-]{0,36}", audit) is not None)
    )


def _in_order(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics in the order of their names and with numbers of one type, so that neither says anything."""
    return {name: _plain_numbers(metrics[name]) for name in sorted(metrics)}


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _in_order(value)
    return [_plain_numbers(part) for part in value] if isinstance(value, list) else float(value)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _as_before(value: Array, sent: Any) -> Any:
    """An array in the framework of the sent one, in C order and of the type that was checked."""
    value = np.array(value, order="C")
    if not _is_torch(sent):
        return value
    import torch

    tensor = torch.from_numpy(value)
    # bfloat16 was checked as such, though NumPy holds it as float32; of other types, such as float8, float32 was.
    return tensor.bfloat16() if sent.dtype == torch.bfloat16 else tensor


def _sealed(result: Mapping[str, Any]) -> tuple[Any, str]:
    """Everything that a result holds: plain values, types and memory layout of its arrays, and a hash of them by place.

    Raises:
        InputError: it holds something else.
    """
    arrays: dict[str, Array] = {}

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, Mapping):
            return [[plain(key, place), plain(part, f"{place}/{key}")] for key, part in value.items()]
        if value is None or type(value) in (bool, int, float, str, DataKind):
            return [type(value).__name__, value]
        if isinstance(value, list):
            return [plain(part, f"{place}/{number}") for number, part in enumerate(value)]
        arrays[place] = as_array(value, where=place)
        strides = value.stride() if _is_torch(value) else value.strides
        return [type(value).__name__, str(value.dtype), tuple(strides), getattr(value, "requires_grad", False)]

    return plain(result, ""), tensors_hash(arrays)
