"""A message of the server at the gateway, from when the gateway got it until its reply left."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content

from fedleak_guard.flower import error_reply
from fedleak_recorder.errors import InputError


@dataclass
class IncomingReply:
    """A reply that the SuperNode sends, object by object."""

    root: str
    """Name of the object that is the whole message."""
    ids: frozenset[str]
    """Names of all objects, the hashes of their contents."""
    session: str
    """Random name that the SuperNode's calls repeat."""
    objects: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    """Bytes of the objects that are here."""
    is_checked: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class GatewayTask:
    """A message of the server, from when the gateway got it until its reply left."""

    proto: Any
    """The message without its content, as Flower's protocol has it."""
    tree: Any
    """Names of its objects, as Flower's protocol has them."""
    run: int
    ids: frozenset[str]
    """Names of its objects."""
    until: float
    """When it expires."""
    objects: dict[str, bytes] = field(default_factory=dict)
    message: Message | None = None
    """The message with its content, once all of its objects are here."""
    is_taken: bool = False
    """Whether the SuperNode has it whole."""
    reply: IncomingReply | None = None
    leaving: RecordDict | str | None = None
    """What leaves: the released content, or the reason of an error; None until it is known."""
    sent: Message | None = None
    """The message that leaves, the same in each try."""


def size_of(root: str, objects: Mapping[str, bytes]) -> int:
    """Bytes of an object once each of its parts is written out, however often it names the same part.

    Args:
        root: name of the object.
        objects: it and all of its parts, by name.

    Raises:
        InputError: a part is none of Flower's.
    """
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        # Each part is looked at once, though it counts as often as it is named.
        if name not in sizes:
            content = objects[name]
            parts = _named_parts(content)
            sizes[name] = len(content) + sum(map(size, parts))
        return sizes[name]

    try:
        return size(root)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        way_out = "Send what Flower's SuperNode sends."
        raise InputError(expected="objects of Flower", found=type(error).__name__, way_out=way_out) from None


def _named_parts(content: bytes) -> list[str]:
    """Names of the parts of an object, as often as it names them."""
    kind, children, _ = get_object_head_values_from_object_content(content)
    if kind not in ("Array", "ArrayRecord", "RecordDict"):
        return list(children)
    # These name their parts in their body, where a part may stand any number of times.
    body = json.loads(content.partition(b"\0")[2])
    if kind == "Array":
        return [children[index] for index in body["arraychunk_ids"]]
    return list(body.values())


def leaving_message(leaving: RecordDict | str, task_message: Message, *, beat: float) -> Message:
    """The message that leaves in place of a reply, made at a beat of the gateway's clock."""
    if isinstance(leaving, str):
        message = error_reply(task_message, leaving)
    else:
        message = Message(leaving, reply_to=task_message)
    # Flower writes down to the microsecond when it makes a message; it was made when the app was ready.
    metadata = message.metadata.__dict__
    metadata["_created_at"] = float(beat)
    # What is left of the task's own time to live, which ends when that of the task does.
    metadata["_ttl"] = task_message.metadata.created_at + task_message.metadata.ttl - beat
    return message
