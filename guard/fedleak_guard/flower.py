"""Guard of a Flower client: a mod that checks the reply before the ClientApp returns it.

The mod runs in the process of the ClientApp, next to its code, and the app names it. It is no enforcement against an
app that leaves it out or changes it; `fedleak_guard.flower_gateway` is.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.constant import ErrorCode

from fedleak_guard.guard import Guard
from fedleak_guard.message import Message as Checked
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.errors import require
from fedleak_recorder.frameworks.flower import arrays_in, received_model, round_of

POLICY = "FEDLEAK_GUARD_POLICY"
"""Environment variable with the path of the site's policy; set it where the SuperNode starts."""
FAILED = "the client failed"
"""Reason of an error in place of a reply of an app that failed; its own reason and code could say anything."""
_logger = logging.getLogger("fedleak_guard")
_CLIENT_DATA = "records", "labels", "algorithm", "network"
"""What a client may have itself, by its names in `fedleak_guard.message.Message`."""
OwnData = Callable[[Message, Context], Mapping[str, Any]]


def egress_mod(
    policy: str | None = None,
    *,
    examples_key: str = "num-examples",
    records: Sequence[str] = ("arrays", "metrics"),
    own_data: OwnData | None = None,
) -> Mod:
    """A mod that lets a reply leave only if the site's policy allows it.

    Put it last among the mods that change replies, that is, first in the list: Flower applies the first mod of a list
    outermost. What leaves is made anew from the checked numbers. In place of a refused reply, the server gets an error
    without a reason.

    Args:
        policy: path of the site's policy; None for that in the environment variable ``FEDLEAK_GUARD_POLICY``.
        examples_key: metric with the number of training examples.
        records: names of a reply's record of arrays and of its record of metrics.
        own_data: gives what the client has itself for the server's message and the context, for the attacks on the own
            message: any of ``records``, ``labels``, ``algorithm`` and ``network`` of `fedleak_guard.message.Message`.
            It never leaves. None for what the policy's section ``own`` names.
    """
    guards: dict[str, Guard] = {}

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        # Copied before the app runs, which may change what it got.
        received = received_model(message)
        try:
            reply = call_next(message, context)
        except Exception:  # its text would leave
            _logger.exception("the client failed")
            return error_reply(message, FAILED)
        if reply.has_error():
            return error_reply(message, FAILED)
        try:
            path = policy or os.environ.get(POLICY, "")
            require(path, f"the path of the site's policy in {POLICY}", "nothing", "Set it where the SuperNode starts.")
            guard = guards.setdefault(path, Guard(path))
            content = released_content(
                guard,
                message,
                reply.content,
                job=str(context.run_id),
                received=received,
                examples_key=examples_key,
                records=records,
                client_data={} if own_data is None else own_data(message, context),
            )
            return Message(content=content, reply_to=message)
        except RefusedError as refused:
            _logger.error(refused.public)
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
        return error_reply(message, RefusedError.TO_THE_SERVER)

    return mod


def released_content(
    guard: Guard,
    message: Message,
    content: RecordDict,
    *,
    job: str,
    received: Mapping[str, Any] | None,
    examples_key: str,
    records: Sequence[str],
    client_data: Mapping[str, Any] | None = None,
) -> RecordDict:
    """What leaves of the content of a reply, made anew from the checked numbers.

    Args:
        guard: the site's guard.
        message: the server's message, whose configuration has the number of the round.
        content: of the reply.
        job: name of the training, the number of Flower's run.
        received: the model in the server's message; None if it has none.
        examples_key: metric with the number of training examples.
        records: names of a reply's record of arrays and of its record of metrics.
        client_data: what the client has itself, see `egress_mod`.

    Raises:
        RefusedError: nothing leaves.
    """
    way_out = "Give the name of the record of arrays and that of the record of metrics."
    require(len(records) == 2, "two names of records", ", ".join(records) or "none", way_out)
    arrays_name, metrics_name = records
    unknown = _unknown_records(content, arrays_name, metrics_name)
    tensors = None
    arrays = content.array_records.get(arrays_name)
    if arrays:
        tensors = arrays_in(arrays)
    values = dict(content.metric_records.get(metrics_name) or {})
    # Of an empty list, its name is all that it says.
    unknown += [f"the empty list {name!r:.40}" for name, value in values.items() if value == []]
    examples = values.pop(examples_key, None)
    reported = examples if isinstance(examples, int) else None
    if examples is not None and (reported is None or not 0 <= reported < 2**31):
        unknown.append(f"the value {examples!r:.20} of {examples_key}")
    own_data = {name: value for name, value in (client_data or {}).items() if name in _CLIENT_DATA}
    released = guard.release(
        Checked(
            job=job,
            round=round_of(message),
            sent=tensors,
            holds="models",
            received=received,
            metrics=values,
            examples=reported,
            unknown=tuple(unknown),
            **own_data,
        )
    )
    leaving: dict[str, ArrayRecord | MetricRecord] = {}
    if released.tensors is not None:
        leaving[arrays_name] = _array_record(released.tensors, received or {})
    numbers: dict[str, Any] = {}
    if examples is not None:
        numbers[examples_key] = examples
    for name, value in released.metrics.items():
        numbers[name] = _as_floats(value)
    if numbers:
        # In the order of their names, so that the order says nothing.
        leaving[metrics_name] = MetricRecord({name: numbers[name] for name in sorted(numbers)})
    return RecordDict(leaving)


def _unknown_records(content: RecordDict, arrays_name: str, metrics_name: str) -> list[str]:
    """Names of the records of a reply that no check covers; empty records say nothing."""
    unknown = []
    for name, arrays in content.array_records.items():
        if arrays and name != arrays_name:
            unknown.append(f"a record of arrays named {name!r:.40}")
    for name, metrics in content.metric_records.items():
        if metrics and name != metrics_name:
            unknown.append(f"a record of metrics named {name!r:.40}")
    for config in content.config_records.values():
        if config:
            unknown.append(f"a configuration of {len(config)} values")
    return unknown


def _array_record(tensors: Mapping[str, Any], received: Mapping[str, Any]) -> ArrayRecord:
    """Tensors in the order of the received model and in C order, so that neither order says anything."""
    names = [name for name in received if name in tensors] + sorted(tensors.keys() - received.keys())
    return ArrayRecord({name: FlowerArray(np.array(tensors[name], order="C")) for name in names})


def _as_floats(value: Any) -> Any:
    """A metric whose numbers are all of one type, so that the type says nothing."""
    if isinstance(value, list):
        return [_as_floats(part) for part in value]
    return float(value)


def error_reply(message: Message, reason: str) -> Message:
    """A reply without content.

    Args:
        message: the server's message.
        reason: `FAILED` or `RefusedError.TO_THE_SERVER`, never an app's own.
    """
    # Any other reason becomes that of a refusal, so that no text of an app leaves.
    error = Error(ErrorCode.MOD_FAILED_PRECONDITION, RefusedError.TO_THE_SERVER)
    if reason == FAILED:
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, FAILED)
    return Message(error, reply_to=message)
