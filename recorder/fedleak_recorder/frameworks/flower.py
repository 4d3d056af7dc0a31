"""Reads messages of Flower: who sends or gets one, for which round it is, and what it holds."""

import json
from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.server.client_proxy import ClientProxy

from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import InputError
from fedleak_recorder.plain_values import strange_value

ROUND_KEY = "server-round"
"""Key by which Flower's strategies send the number of the round to the clients."""


def sender_of(reply: Message) -> str:
    """Name of the client that sent a reply: the number of its node."""
    return str(reply.metadata.src_node_id)


def receiver_of(task: Message) -> str:
    """Name of the client that gets a task, which is that of the sender of its reply."""
    return str(task.metadata.dst_node_id)


def client_of(proxy: ClientProxy) -> str:
    """Name of a client, for strategies of parameter lists."""
    return str(proxy.cid)


def round_of(task: Message) -> int:
    """Number of the round in the configuration of a task; 0 if there is none."""
    for record in task.content.config_records.values():
        number = record.get(ROUND_KEY)
        if isinstance(number, int):
            return number
    return 0


def arrays_in(record: ArrayRecord) -> dict[str, Array]:
    """Arrays of a record by name."""
    return {name: array.numpy() for name, array in record.items()}


def received_model(task: Message) -> dict[str, Array] | None:
    """Copies of the model in a task; None if the task has none, or several."""
    if not task.has_content():
        return None
    records = list(task.content.array_records.values())
    if len(records) != 1:
        return None
    # Copies, since the app may train in the memory of what it received.
    return {name: np.array(array) for name, array in arrays_in(records[0]).items()}


def trained_model(reply: Message) -> ArrayRecord:
    """The only record of arrays of a reply.

    Raises:
        InputError: it has none, or several.
    """
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise InputError(
            expected="one ArrayRecord with the trained model",
            found=f"{len(records)} in the reply of node {sender_of(reply)}",
            way_out="Send other values as metrics.",
        )
    return records[0]


def metrics_in(reply: Message) -> dict[str, Any]:
    """Metrics of all records of a reply, by name."""
    metrics: dict[str, Any] = {}
    for record in reply.content.metric_records.values():
        metrics |= record.items()
    return metrics


def beside_arrays(reply: Message, truth: Collection[str]) -> dict[str, Any]:
    """Metrics and configurations of a reply by the name of their record, without what is sent for evaluations only."""
    beside: dict[str, Any] = {}
    for name, metrics in reply.content.metric_records.items():
        beside[name] = {key: value for key, value in metrics.items() if key not in truth}
    for name, settings in reply.content.config_records.items():
        beside[name] = dict(settings)
    return beside


def metric(metrics: Mapping[str, Any], name: str, where: str) -> Any:
    """A metric that every client sends.

    Raises:
        InputError: it is missing.
    """
    if name not in metrics:
        raise InputError(
            expected=f"the metric {name!r} from every client",
            found=f"{', '.join(metrics) or 'none'} in {where}",
            way_out="Return it with the trained model, or leave it out of the strategy's arguments.",
        )
    return metrics[name]


def numbers(value: Any) -> Array:
    """Numbers of a metric, which strategies of parameter lists send as JSON text if there are several."""
    if isinstance(value, str):
        value = json.loads(value)
    return as_array(value)


def origin_of(strategy: object, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Description of a training by its strategy and the clients' configuration, and the versions of its packages."""
    origin = {
        "system": "flower",
        "strategy": f"{type(strategy).__module__}.{type(strategy).__qualname__}",
        "settings": _plain(vars(strategy)),
        "config": _plain(config),
    }
    return origin, {"flwr": version("flwr")}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a manifest can hold; a strategy also has functions and objects."""
    plain = {}
    for name, value in settings.items():
        if isinstance(value, bool | int | float | str) and strange_value(value) is None:
            plain[name] = value
    return plain
