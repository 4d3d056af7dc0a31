"""Guard of an NVFlare site: a filter that the site names in its privacy.json, and a component that watches the filter.

NVFlare applies a site's filters to every job that runs in the site's scope, and a job cannot remove them. It applies
the job's own filters after them, so `EgressWatch` compares what finally leaves with what `EgressCheck` released. Each
of the two refuses everything without the other.
"""

import copy
import logging
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

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
from fedleak_guard.message import Message
from fedleak_guard.nvflare_parts import as_before, has_empty_part, in_order, is_torch, sealed
from fedleak_guard.nvflare_task import SiteTask, task_of
from fedleak_guard.policy import read_policy
from fedleak_guard.refusal import RefusedError, reason_of
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
        # NVFlare reads the arguments from attributes.
        self.policy = policy
        self.examples_key = examples_key
        self._guard = Guard(policy)
        self._said_of_steps = False

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """What leaves of a result.

        Raises:
            UnsafeJobError: nothing does.
        """
        try:
            return self._process(shareable, task_of(fl_ctx), job_of(fl_ctx))
        except RefusedError as refused:
            _logger.error(refused.public)
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
        raise UnsafeJobError(RefusedError.TO_THE_SERVER)

    def _process(self, shareable: Shareable, task: SiteTask, job: str) -> Shareable:
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
        task.released = sealed(leaving)
        return leaving

    def _released(self, shareable: Shareable, dxo: DXO, task: SiteTask, job: str) -> Shareable:
        """What leaves of a result that a client made."""
        holds = holds_of(dxo)
        meta = {key: value for key, value in (dxo.meta or {}).items() if key not in _ROUNDS}
        metrics = dict(meta.pop(MetaKey.INITIAL_METRICS, None) or {})
        counts = {key: meta.pop(key) for key in (_STEPS, self.examples_key) if key in meta}
        if dxo.data_kind == DataKind.METRICS:
            metrics |= dxo.data
        # Meta data are checked as metrics, whatever their names are; those without a value are dropped.
        metrics |= {key: value for key, value in meta.items() if value not in (None, "", [], {})}
        if _STEPS in counts and self._may_leave(_STEPS):
            metrics[_STEPS] = counts[_STEPS]
        unknown = [f"the entry {key!r}" for key in shareable if key not in (ReservedHeaderKey.HEADERS, "DXO")]
        unknown += [f"the value {value!r:.20} of {key}" for key, value in counts.items() if not is_count(value)]
        if holds is None and dxo.data_kind != DataKind.METRICS:
            unknown.append(f"data of the kind {dxo.data_kind!r:.40}")
        if has_empty_part(metrics):
            unknown.append("an empty list or mapping among the metrics")
        if holds is not None:
            unknown += _unknown_tensors(dxo.data, task.received)
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

    def _made(self, released: Released, dxo: DXO, task: SiteTask, counts: Mapping[str, Any]) -> Shareable:
        """The result that leaves, made from checked numbers and from the task, in an order that says nothing."""
        numbers = in_order(released.metrics)
        meta: dict[str, Any] = {}
        if self.examples_key in counts:
            meta[self.examples_key] = int(counts[self.examples_key])
        if _STEPS in numbers:
            meta[_STEPS] = int(numbers.pop(_STEPS))
        data = numbers
        if released.tensors is not None:
            in_received_order = [name for name in task.received if name in released.tensors]
            not_received = sorted(released.tensors.keys() - task.received.keys())
            data = {}
            for name in in_received_order + not_received:
                data[str(name)] = as_before(released.tensors[name], dxo.data[name])
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
        """Keeps what a task says, and forgets what was released for the one before."""
        task = task_of(fl_ctx)
        task.watched = True
        task.released = None
        task.left = None
        task.sealed = None
        task.received = {}
        task.round = 0
        task.headers = {}
        task.data = None
        task.jar = None
        data = fl_ctx.get_prop(FLContextKey.TASK_DATA)
        if not isinstance(data, Shareable):
            return
        task.data = data
        task.jar = copy.deepcopy(data.get_cookie_jar())
        task.headers = round_headers(data)
        task.round = task.headers.get(AppConstants.CURRENT_ROUND, 0)
        try:
            dxo = from_shareable(data)
            if holds_of(dxo) == "models":
                task.received = arrays_in(dxo)
        except (ValueError, InputError):  # no model, so that what needs it is refused
            task.received = {}

    def _compare(self, result: Any, fl_ctx: FLContext) -> None:
        """Compares what passed the last filter with what the guard released; each release is good for one result."""
        try:
            task = task_of(fl_ctx)
            seal = sealed(result)
            is_same = task.released is not None and seal == task.released
            task.released = None
            task.left = result if is_same else None
            task.sealed = seal if is_same else None
        except Exception:
            is_same = False
        if not is_same:
            self._empty(result)

    def _compare_again(self, fl_ctx: FLContext) -> None:
        """Compares what NVFlare is about to send with what passed the last filter; other components ran in between."""
        task = task_of(fl_ctx)
        passed = task.left
        task.left = None
        jar = None
        if task.data is not None:
            jar = task.data.get_cookie_jar()
        if isinstance(jar, dict) and jar != task.jar:  # NVFlare has put this object into whatever it sends
            jar.clear()
            jar.update(task.jar or {})
        if passed is None:
            return
        try:
            headers = dict(passed.get(ReservedHeaderKey.HEADERS) or {})
            headers_by_nvflare = {key: headers.pop(key) for key in _SET_BY_NVFLARE if key in headers}
            # The rest, in the same order, must be what passed.
            rest = {}
            for key, value in passed.items():
                rest[key] = headers if key == ReservedHeaderKey.HEADERS else value
            is_same = sealed(rest) == task.sealed and _is_of_task(headers_by_nvflare, task, fl_ctx)
        except Exception:
            is_same = False
        if not is_same:
            self._empty(passed)

    def _empty(self, result: Any) -> None:
        """Leaves nothing of a result but a return code."""
        if isinstance(result, Shareable):
            result.clear()
            result.set_return_code(ReturnCode.UNSAFE_JOB)
            _logger.error(
                "nothing left the site: EgressCheck did not release this result, or it was changed afterwards"
            )

    def _summarize(self) -> None:
        """Writes the summaries of the log; the job ends without them if that fails."""
        try:
            policy = read_policy(self.policy)
            write_evidence(Path(policy.evidence) / NAME, policy.budget.delta)
        except (InputError, OSError) as error:
            _logger.error("no summary of the log: %s", reason_of(error))


def _unknown_tensors(tensors: Mapping[str, Any], received: Mapping[str, Any]) -> list[str]:
    """What no check covers of a result's tensors: a name that the task has not, and the choice of a framework."""
    unknown = []
    if received:
        for name in tensors.keys() - received:
            unknown.append(f"the tensor {name!r:.40}, which the task has not")
    # Which tensors are of which framework would be a bit for each.
    frameworks = {is_torch(value) for value in tensors.values()}
    if len(frameworks) > 1:
        unknown.append("tensors of two frameworks")
    return unknown


def _is_of_task(headers: Mapping[str, Any], task: SiteTask, fl_ctx: FLContext) -> bool:
    """Whether the headers that NVFlare sets are those of the task."""
    audit = headers.get(ReservedHeaderKey.AUDIT_EVENT_ID)
    return (
        headers.get(ReservedHeaderKey.TASK_NAME) == fl_ctx.get_prop(FLContextKey.TASK_NAME)
        and headers.get(ReservedHeaderKey.TASK_ID) == fl_ctx.get_prop(FLContextKey.TASK_ID)
        and headers.get(ReservedHeaderKey.COOKIE_JAR) == (task.jar or None)
        and (audit is None or re.fullmatch(r"[0-9a-f-]{0,36}", audit) is not None)
    )
