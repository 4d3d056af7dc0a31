"""Guard of a Flower site that no app can leave out: a gateway between the site's SuperNode and the SuperLink.

The SuperNode connects to the gateway in place of the SuperLink, over Flower's own Fleet protocol. The gateway forwards
none of its calls. It is a node of its own at the SuperLink: it signs with a key of its own, asks for messages and sends
its heartbeats at the beats of its own clock, and answers the SuperNode from what it got. A reply is collected until it
is whole, and checked; what may leave goes at the next beat, in a message that is made from the checked numbers and from
the server's message. A site makes the gateway the only way out of the SuperNode's host.
"""

import contextlib
import hashlib
import json
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import HEARTBEAT_BASE_MULTIPLIER, HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE
from flwr.common.serde import message_from_proto
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.supercore.inflatable.inflatable_object import (
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedleak_guard.flower import FAILED, error_reply, released_content
from fedleak_guard.flower_caller import HEADERS, Caller, read_public_key
from fedleak_guard.flower_superlink import MEDIA, PREFIX, SuperLink, read_private_key
from fedleak_guard.gateway_log import GatewayLog, RejectedError
from fedleak_guard.gateway_server import GatewayServer, with_tls
from fedleak_guard.guard import Guard
from fedleak_guard.policy import read_policy
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.frameworks.flower import received_model

PACE = 3.0
"""Seconds between two beats, as often as Flower's SuperNode asks for messages."""
LARGEST = 2**31
"""Bytes of the objects of a reply together."""
MOST_OBJECTS = 100_000
"""Objects of a reply; an array has one for each 20 MB, and two more."""
_SMALL, _TREE = 2**16, 2**25
"""Bytes of a call that carries names alone, and of one that carries the tree of a reply's objects."""
_HEARTBEAT = HEARTBEAT_BASE_MULTIPLIER * HEARTBEAT_DEFAULT_INTERVAL
"""Seconds between two heartbeats, as Flower's SuperNode on average."""
_SILENCE = HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL
"""Seconds without a call of the SuperNode after which it counts as gone."""
_RECONNECT = 60.0
"""Seconds between two connections to the SuperLink, so that whoever restarts the SuperNode cannot signal by it."""
_KNOWN_RUNS = 16
_logger = logging.getLogger("fedleak_guard")


@dataclass
class _Reply:
    """A reply that the SuperNode sends, object by object."""

    root: str
    ids: frozenset[str]
    session: str
    objects: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    is_checked: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class _Task:
    """A message of the server, from when the gateway got it until its reply left."""

    proto: Any
    tree: Any
    run: int
    ids: frozenset[str]
    until: float
    """When it expires."""
    objects: dict[str, bytes] = field(default_factory=dict)
    message: Message | None = None
    """The message with its content, once all of its objects are here."""
    is_taken: bool = False
    """Whether the SuperNode has it whole."""
    reply: _Reply | None = None
    leaving: RecordDict | str | None = None
    """What leaves: the released content, or the reason of an error; None until it is known."""
    sent: Message | None = None
    """The message that leaves, the same in each try."""


class Gateway:
    """Answers the calls of one SuperNode, and makes its own to the SuperLink.

    Args:
        superlink: address of the SuperLink, such as ``https://superlink.example:8000``.
        policy: path of the site's policy.
        root_certificates: path of the certificates that sign the SuperLink's; None for those of the system.
        superlink_key: path of the private key that the SuperLink knows; None to register a new key.
        supernode_key: path of the SuperNode's public key; None for that of the first call that is signed rightly.
        examples_key: metric with the number of training examples.
        records: names of a reply's record of arrays and of its record of metrics.
        pace: seconds between two beats of the gateway's own clock, at which all of its calls are made.
        largest: bytes of the objects of a reply together.
        clock: seconds since 1970.
        transport: carries the calls to the SuperLink in place of the network, for tests.

    Raises:
        InputError: the policy or a key is missing or wrong, or the gateway's log cannot be continued.
        OSError: the gateway's log cannot be written.
    """

    def __init__(
        self,
        superlink: str,
        policy: str,
        *,
        root_certificates: str | None = None,
        superlink_key: str | None = None,
        supernode_key: str | None = None,
        examples_key: str = "num-examples",
        records: Sequence[str] = ("arrays", "metrics"),
        pace: float = PACE,
        largest: int = LARGEST,
        clock: Callable[[], float] = time.time,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        evidence = Path(read_policy(policy).evidence)
        require(0.01 <= pace <= 3600, "seconds between 0.01 and 3600 as the pace", pace, "Leave it out for 3 seconds.")
        self._guard, self._examples_key, self._records = Guard(policy), examples_key, tuple(records)
        self._superlink = SuperLink(
            superlink,
            key=None if superlink_key is None else read_private_key(Path(superlink_key)),
            root_certificates=root_certificates,
            transport=transport,
        )
        known = None if supernode_key is None else read_public_key(Path(supernode_key))
        self._caller = Caller(known, clock)
        self._log = GatewayLog(evidence, clock)
        self._log.note("started", pace=pace)
        self.pace, self._largest, self._clock = pace, largest, clock
        self._lock = threading.RLock()
        self._is_here, self._is_connected, self._is_known = False, False, True
        """Whether the SuperNode is active; whether the node is active at the SuperLink; whether the SuperLink said so
        in answer to the last heartbeat."""
        self._heard = self._beaten = self._tried = -math.inf
        """When the SuperNode last called, when the last heartbeat was sent, when the gateway last connected."""
        self._task: _Task | None = None
        self._last_session = ""
        """Session of the reply that was checked last."""
        self._runs: dict[int, tuple[Any, Any]] = {}
        """What the SuperLink said of the last runs, and their apps."""
        self._said = ""
        """What was last printed of the SuperLink, which is not printed again."""

    # The side of the SuperNode

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a call, of which nothing is forwarded."""
        try:
            self.admit(path, headers)
        except RejectedError as error:
            self.rejected(error.reason)
            return error.status, b""
        return self.answered(path, body)

    def admit(self, path: str, headers: Mapping[str, str]) -> int:
        """Bytes that the body of a call may have.

        Raises:
            RejectedError: the call is none of the protocol, or not the SuperNode's.
        """
        name = path.removeprefix(PREFIX)
        if name not in _CALLS or not path.startswith(PREFIX):
            raise RejectedError("no call of the Fleet protocol")
        was_known = self._caller.key is not None
        key = self._caller.check(headers)
        if not was_known:
            _logger.warning("the SuperNode's key is the first that called, SHA-256 %s", hashlib.sha256(key).hexdigest())
        self._heard = self._clock()
        return _SMALL + self._largest if name == "push-object" else _CALLS[name].most

    def answered(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to an admitted call."""
        call = _CALLS[path.removeprefix(PREFIX)]
        try:
            request = call.kind.FromString(body)
            self._check_node(call, request)
            return 200, call.handle(self, request).SerializeToString(deterministic=True)
        except RejectedError as error:
            self.rejected(error.reason)
            return error.status, b""
        except httpx.HTTPError as error:
            self._say(f"the SuperLink does not take the node: {_of_superlink(error)}")
            return 503, b""  # upon which the SuperNode tries again
        except Exception:
            self.rejected("a call of another form")
            return 400, b""

    def rejected(self, reason: str) -> None:
        """Counts a call that is not answered."""
        self._log.count(reason)

    def _check_node(self, call: "_Call", request: Any) -> None:
        """Accepts the number that the SuperLink gave, and the key by which the call is signed."""
        if call.node is None:
            if request.public_key != self._caller.key:
                raise RejectedError("a key that did not sign the call", 401)
        elif self._superlink.node is None or call.node(request) != self._superlink.node:
            raise RejectedError("a call for another node")

    def _register(self, _: Any) -> Any:
        return fleet_pb2.RegisterNodeFleetResponse(node_id=self._connected())

    def _activate(self, _: Any) -> Any:
        return fleet_pb2.ActivateNodeResponse(node_id=self._connected())

    def _connected(self) -> int:
        """Number of the node at the SuperLink, to which the gateway connects once in a while at most."""
        with self._lock:
            node = self._superlink.node
            if not self._is_connected or node is None:
                now = self._clock()
                if 0 <= now - self._tried < (self.pace if node is None else _RECONNECT):
                    raise RejectedError("another connection too soon", 503)
                self._tried = self._beaten = now
                node = self._superlink.connect()
                self._is_connected = self._is_known = True
                key = self._caller.key or b""
                self._log.note("connected", supernode_key=hashlib.sha256(key).hexdigest())
            self._is_here = True
            return node

    def _deactivate(self, _: Any) -> Any:
        self._is_here = False
        return fleet_pb2.DeactivateNodeResponse()

    def _unregister(self, _: Any) -> Any:
        return fleet_pb2.UnregisterNodeFleetResponse()  # the gateway takes its own registration back when it ends

    def _heartbeat(self, _: Any) -> Any:
        return heartbeat_pb2.SendNodeHeartbeatResponse(success=self._is_known)

    def _pull_messages(self, _: Any) -> Any:
        """The message that waits; again, until the SuperNode has confirmed it."""
        response = fleet_pb2.PullMessagesResponse()
        with self._lock:
            task = self._task
            if task is None or task.message is None:
                return response
            if not task.is_taken:
                response.messages_list.append(task.proto)
                response.message_object_trees.append(task.tree)
            elif task.leaving is None and not (task.reply and task.reply.is_checked):
                # The SuperNode works on one message after the other: it gave up the one that it has.
                task.leaving = FAILED
            return response

    def _task_of(self, request: Any) -> _Task:
        """The task of a call that names its run."""
        task = self._task
        if task is None or task.message is None or request.run_id != task.run:
            raise RejectedError("a call for a run without a message")
        return task

    def _get_run(self, request: Any) -> Any:
        self._task_of(request)
        return self._runs[request.run_id][0]

    def _get_fab(self, request: Any) -> Any:
        self._task_of(request)
        run, fab = self._runs[request.run_id]
        if request.hash_str != run.run.fab_hash:
            raise RejectedError("a call for another app than that of the run")
        return fab

    def _pull_object(self, request: Any) -> Any:
        content = self._task_of(request).objects.get(request.object_id)
        if content is None:
            raise RejectedError("a call for an object that the message does not have")
        return message_pb2.PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def _confirm(self, request: Any) -> Any:
        task = self._task_of(request)
        if request.message_object_id != task.proto.metadata.message_id:
            raise RejectedError("the receipt of another message")
        task.is_taken = True
        task.objects = {}  # the message is whole, here and at the SuperNode
        return message_pb2.ConfirmMessageReceivedResponse()

    def _push_messages(self, request: Any) -> Any:
        """Asks the SuperNode for all objects of its reply."""
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise RejectedError("another number of replies than one")
        (proto,), (tree,) = request.messages_list, request.message_object_trees
        with self._lock:
            task = self._task
            if task is None or task.message is None or task.leaving is not None:
                raise RejectedError("a reply to no message that waits for one")
            if proto.metadata.reply_to_message_id != task.proto.metadata.message_id:
                raise RejectedError("a reply to no message that waits for one")
            if task.reply is None or task.reply.root != tree.object_id:
                ids = frozenset(one.object_id for one in iterate_object_tree(tree))
                if len(ids) > MOST_OBJECTS:
                    raise RejectedError("a reply of too many objects", 413)
                task.reply = _Reply(tree.object_id, ids, secrets.token_hex(16))
            reply = task.reply
        missing = sorted(reply.ids - reply.objects.keys())
        response = fleet_pb2.PushMessagesResponse(objects_to_push=missing, session_id=reply.session)
        response.results[proto.metadata.message_id] = 0
        return response

    def _push_object(self, request: Any) -> Any:
        """Keeps an object of a reply; with the last one, checks the reply."""
        task = self._task
        reply = None if task is None else task.reply
        if request.session_id and request.session_id == self._last_session:
            return message_pb2.PushObjectResponse(stored=True)  # again, since the SuperNode got no answer
        if task is None or reply is None or request.session_id != reply.session or request.object_id not in reply.ids:
            raise RejectedError("an object of no reply")
        if hashlib.sha256(request.object_content).hexdigest() != request.object_id:
            raise RejectedError("an object with another content than its name says")
        with reply.lock:
            if request.object_id not in reply.objects and not reply.is_checked:
                reply.size += len(request.object_content)
                if reply.size > self._largest:
                    task.leaving, reply.is_checked = RefusedError.TO_THE_SERVER, True
                    reply.objects.clear()
                    raise RejectedError("a reply that is too large", 413)
                reply.objects[request.object_id] = request.object_content
            if reply.objects.keys() == reply.ids and not reply.is_checked:
                reply.is_checked = True  # once, also if the SuperNode repeats its call
                task.leaving = self._leaving(task, reply)
                self._last_session = reply.session
                reply.objects.clear()
        return message_pb2.PushObjectResponse(stored=True)

    def _leaving(self, task: _Task, whole: _Reply) -> RecordDict | str:
        """What leaves in place of a reply: the released content, or the reason of an error."""
        message = task.message
        assert message is not None
        try:
            size = size_of(whole.root, whole.objects)
            require(size <= self._largest, f"a reply of at most {self._largest} bytes", size, "Send fewer numbers.")
            reply = inflate_object_from_contents(whole.root, dict(whole.objects))
            if not isinstance(reply, Message):
                raise InputError(
                    expected="a message", found=type(reply).__name__[:40], way_out="The SuperNode sends another object."
                )
            if reply.has_error():
                return FAILED
            return released_content(
                self._guard,
                message,
                reply.content,
                job=str(task.run),
                received=received_model(message),
                examples_key=self._examples_key,
                records=self._records,
            )
        except RefusedError as refused:
            _logger.error(refused.public)
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
        return RefusedError.TO_THE_SERVER

    # The side of the SuperLink

    def run(self, stopped: threading.Event) -> None:
        """Makes a step at each beat until `stopped`, and then takes the node back."""
        while not stopped.wait(self.pace - self._clock() % self.pace):
            self.step()
        self.close()

    def close(self) -> None:
        """Makes the node unavailable."""
        with contextlib.suppress(httpx.HTTPError):
            if self._is_connected:
                self._superlink.disconnect()
            self._superlink.close()

    def step(self) -> None:
        """What the gateway does at a beat: it logs, says that the node is there, sends what may leave, asks for more.

        Nothing is done if the log cannot be written.
        """
        try:
            self._log.write_due()
        except Exception as error:
            self._say(f"nothing leaves the site: the gateway's log could not be written: {reason_of(error)}")
            return
        try:
            if self._is_connected:
                self._keep_alive()
                self._send()
                self._fetch()
            self._said = ""
        except httpx.HTTPError as error:
            self._say(f"the SuperLink does not answer: {_of_superlink(error)}")
        except Exception as error:
            self._say(f"the gateway's own call failed: {reason_of(error)}")

    def _keep_alive(self) -> None:
        """Sends a heartbeat if one is due and the SuperNode is there."""
        now = self._clock()
        if not self._is_here:
            self._is_connected = False
            self._superlink.disconnect()
        elif now - self._heard < _SILENCE and not 0 <= now - self._beaten < _HEARTBEAT:
            self._beaten = now
            self._is_known = self._superlink.heartbeat()
            if not self._is_known:  # the SuperLink was started anew, say; the SuperNode ends, and connects again
                self._is_connected = self._is_here = False
                self._superlink.forget()

    def _send(self) -> None:
        """Sends the reply that may leave; the same one again at the next beat if the SuperLink does not answer."""
        task, now = self._task, self._clock()
        if task is None:
            return
        if now >= task.until:
            self._task = None
            return
        if task.leaving is None or task.message is None:
            return
        if task.sent is None:
            task.sent = _message(task.leaving, task.message, beat=math.floor(now / self.pace) * self.pace)
        try:
            self._superlink.push(task.sent)
        except httpx.HTTPStatusError as error:
            if error.response.status_code >= 500:
                raise
            self._say(f"the SuperLink does not take a reply: {_of_superlink(error)}")
        self._task = None

    def _fetch(self) -> None:
        """Asks for the next message if none waits for its reply, and for its objects."""
        if not self._is_connected or self._clock() - self._heard >= _SILENCE:
            return
        if self._task is None:
            pulled = self._superlink.message()
            if pulled is None:
                return
            proto, tree = pulled
            metadata = proto.metadata
            ids = frozenset(one.object_id for one in iterate_object_tree(tree))
            self._task = _Task(proto, tree, metadata.run_id, ids, until=metadata.created_at + metadata.ttl)
        task = self._task
        if task.message is None:
            try:
                self._complete(task)
            except httpx.HTTPStatusError as error:
                if error.response.status_code < 500:  # the run has ended
                    self._task = None
                raise
            except InputError:
                self._task = None
                raise

    def _complete(self, task: _Task) -> None:
        """Gets the app and the objects of a message."""
        if task.run not in self._runs:
            self._runs[task.run] = self._superlink.run(task.run)
            for run in list(self._runs)[:-_KNOWN_RUNS]:
                del self._runs[run]
        for name in sorted(task.ids - task.objects.keys()):
            content = self._superlink.object(task.run, name)
            if content is not None:
                task.objects[name] = content
        if task.objects.keys() == task.ids:
            name = message_from_proto(task.proto).metadata.message_id
            message = inflate_object_from_contents(name, dict(task.objects), keep_object_contents=True)
            if not isinstance(message, Message):
                way_out = "Ask the federation's operator; the message is dropped."
                raise InputError(expected="a message", found=type(message).__name__, way_out=way_out)
            message.metadata.__dict__["_message_id"] = name
            self._superlink.confirm(task.run, name)
            task.message = message

    def _say(self, line: str) -> None:
        """Prints what is wrong with the SuperLink or the log, once until it changes."""
        if line != self._said:
            _logger.error(line)
        self._said = line


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
        if name not in sizes:
            content = objects[name]
            kind, children, _ = get_object_head_values_from_object_content(content)
            named = children
            if kind in ("Array", "ArrayRecord", "RecordDict"):
                # These name their parts in their body, where a part may stand any number of times.
                body = json.loads(content.partition(b"\0")[2])
                named = [children[place] for place in body["arraychunk_ids"]] if kind == "Array" else body.values()
            sizes[name] = len(content) + sum(map(size, named))
        return sizes[name]

    try:
        return size(root)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        way_out = "Send what Flower's SuperNode sends."
        raise InputError(expected="objects of Flower", found=type(error).__name__, way_out=way_out) from None


def _message(leaving: RecordDict | str, asked: Message, *, beat: float) -> Message:
    """The message that leaves in place of a reply, made at a beat of the gateway's clock."""
    message = error_reply(asked, leaving) if isinstance(leaving, str) else Message(leaving, reply_to=asked)
    # Flower writes down to the microsecond when it makes a message; it was made when the app was ready.
    metadata = message.metadata.__dict__
    metadata["_created_at"] = float(beat)
    metadata["_ttl"] = asked.metadata.created_at + asked.metadata.ttl - beat
    return message


def _of_superlink(error: httpx.HTTPError) -> str:
    """One line on an error of the SuperLink."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}, {error.response.text!r:.200}"
    return reason_of(error)


def capacity(pace: float, seconds: float = 43200) -> str:
    """One line on what an app of the site can make arrive besides the content that the policy allows.

    Args:
        pace: seconds between two beats.
        seconds: time to live of the server's messages; Flower's default is 12 hours.
    """
    beats = math.floor(seconds / pace) + 1
    # A released, a refused or a failed reply at one of the beats, or none.
    bits = math.log2(3 * beats + 1)
    return (
        f"an app can choose, for each message of the server: what the policy allows as content (check-policy), and "
        f"{bits:.1f} bits by a released, refused, failed or missing reply and its beat, one of {beats}; not counted: "
        f"delays by the load of this machine, and whether the node is there, for who can stop the SuperNode"
    )


def _number(request: Any) -> int:
    """Number of the node that a request is for."""
    return int(request.node_id)


def _number_of_node(request: Any) -> int:
    """Number of the node that a request has as a part."""
    return int(request.node.node_id)


class _Call(NamedTuple):
    """A call of the Fleet protocol.

    Attributes:
        kind: type of its request.
        handle: answers it.
        node: number of the node in its request; None if the request has the node's key instead.
        most: bytes of its body; an object of a reply may have the `largest` of the gateway more.
    """

    kind: Any
    handle: Callable[[Gateway, Any], Any]
    node: Callable[[Any], int] | None
    most: int = _SMALL


_CALLS = {
    "register-node": _Call(fleet_pb2.RegisterNodeFleetRequest, Gateway._register, None),
    "activate-node": _Call(fleet_pb2.ActivateNodeRequest, Gateway._activate, None),
    "deactivate-node": _Call(fleet_pb2.DeactivateNodeRequest, Gateway._deactivate, _number),
    "unregister-node": _Call(fleet_pb2.UnregisterNodeFleetRequest, Gateway._unregister, _number),
    "send-node-heartbeat": _Call(heartbeat_pb2.SendNodeHeartbeatRequest, Gateway._heartbeat, _number_of_node),
    "pull-messages": _Call(fleet_pb2.PullMessagesRequest, Gateway._pull_messages, _number_of_node),
    "get-run": _Call(run_pb2.GetRunRequest, Gateway._get_run, _number_of_node),
    "get-fab": _Call(fab_pb2.GetFabRequest, Gateway._get_fab, _number_of_node),
    "pull-object": _Call(message_pb2.PullObjectRequest, Gateway._pull_object, _number_of_node),
    "confirm-message-received": _Call(message_pb2.ConfirmMessageReceivedRequest, Gateway._confirm, _number_of_node),
    "push-messages": _Call(fleet_pb2.PushMessagesRequest, Gateway._push_messages, _number_of_node, _TREE),
    "push-object": _Call(message_pb2.PushObjectRequest, Gateway._push_object, _number_of_node),
}
"""The calls that the gateway answers, by name."""


def server_of(
    gateway: Gateway, host: str, port: int, *, certificate: str | None = None, key: str | None = None
) -> GatewayServer:
    """A server that listens for the SuperNode; ``serve_forever`` runs it.

    Args:
        gateway: answers the calls.
        host: address to listen at.
        port: its port; 0 for any free one.
        certificate: path of the gateway's certificate; None for no TLS, for a SuperNode on the same machine.
        key: path of the certificate's private key.

    Raises:
        InputError: the certificate or the key cannot be read.
    """
    server = GatewayServer(gateway, (host, port), headers=HEADERS, media=MEDIA)
    if certificate is not None:
        with_tls(server, certificate, key)
    return server
