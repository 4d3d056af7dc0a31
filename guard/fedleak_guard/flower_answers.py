"""What the gateway answers its SuperNode, in Flower's own Fleet protocol, without a call to the SuperLink but one.

Of the calls that the SuperNode makes, only the first leads to one of the gateway's own: it connects.
"""

import hashlib
import logging
import math
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

from fedleak_guard.flower import FAILED
from fedleak_guard.flower_caller import Caller
from fedleak_guard.flower_superlink import PREFIX, SuperLink
from fedleak_guard.gateway_log import GatewayLog, RejectedError
from fedleak_guard.gateway_task import GatewayTask, IncomingReply
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_guard.reply_check import ReplyCheck

MOST_OBJECTS = 100_000
"""Objects of a reply; an array has one for each 20 MB, and two more."""
_SMALL = 2**16
"""Bytes of a call that carries names alone."""
_TREE = 2**25
"""Bytes of a call that carries the tree of a reply's objects."""
_RECONNECT = 60.0
"""Seconds between two connections to the SuperLink, so that whoever restarts the SuperNode cannot signal by it."""
_logger = logging.getLogger("fedleak_guard")


class FleetAnswers:
    """Answers the calls of one SuperNode from what the gateway got, and checks its replies.

    Args:
        superlink: the SuperLink, as the gateway calls it.
        caller: the SuperNode, as the gateway knows it.
        log: counts calls that are not answered.
        reply_check: checks the replies.
        pace: seconds between two beats of the gateway's own clock.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        *,
        superlink: SuperLink,
        caller: Caller,
        log: GatewayLog,
        reply_check: ReplyCheck,
        pace: float,
        clock: Callable[[], float],
    ) -> None:
        self._superlink = superlink
        self._caller = caller
        self._log = log
        self._reply_check = reply_check
        self.pace = pace
        self._clock = clock
        self._lock = threading.RLock()
        self._is_here = False
        """Whether the SuperNode is active."""
        self._is_connected = False
        """Whether the node is active at the SuperLink."""
        self._is_known = True
        """Whether the SuperLink said so in answer to the last heartbeat."""
        self._heard = -math.inf
        """When the SuperNode last called."""
        self._beaten = -math.inf
        """When the last heartbeat was sent."""
        self._tried = -math.inf
        """When the gateway last connected."""
        self._task: GatewayTask | None = None
        self._last_session = ""
        """Session of the reply that was checked last."""
        self._runs: dict[int, tuple[Any, Any]] = {}
        """What the SuperLink said of the last runs, and their apps."""
        self._said = ""
        """What was last printed of the SuperLink, which is not printed again."""

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
        if name == "push-object":
            return _SMALL + self._reply_check.largest
        return _CALLS[name].most

    def answered(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to an admitted call."""
        call = _CALLS[path.removeprefix(PREFIX)]
        # Whatever goes wrong, the answer is one of few fixed ones, and nothing follows from the call.
        try:
            request = call.kind.FromString(body)
            self._check_node(call, request)
            return 200, call.handle(self, request).SerializeToString(deterministic=True)
        except RejectedError as error:
            self.rejected(error.reason)
            return error.status, b""
        except httpx.HTTPError as error:
            self._say(f"the SuperLink does not take the node: {of_superlink(error)}")
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
            if self._is_connected and node is not None:
                self._is_here = True
                return node
            # A SuperNode that is restarted again and again must not be seen at the SuperLink; one that was never
            # connected may try at the gateway's pace. A clock that was set back makes a difference below 0.
            now = self._clock()
            interval = self.pace if node is None else _RECONNECT
            if 0 <= now - self._tried < interval:
                raise RejectedError("another connection too soon", 503)
            self._tried = now
            self._beaten = now
            node = self._superlink.connect()
            self._is_connected = True
            self._is_known = True
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

    def _task_of(self, request: Any) -> GatewayTask:
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
        proto = request.messages_list[0]
        tree = request.message_object_trees[0]
        with self._lock:
            task = self._task
            if task is None or task.message is None or task.leaving is not None:
                raise RejectedError("a reply to no message that waits for one")
            if proto.metadata.reply_to_message_id != task.proto.metadata.message_id:
                raise RejectedError("a reply to no message that waits for one")
            # The same reply again, since the SuperNode got no answer, goes on with what is here of it.
            if task.reply is None or task.reply.root != tree.object_id:
                ids = frozenset(node.object_id for node in iterate_object_tree(tree))
                if len(ids) > MOST_OBJECTS:
                    raise RejectedError("a reply of too many objects", 413)
                task.reply = IncomingReply(tree.object_id, ids, secrets.token_hex(16))
            reply = task.reply
        missing = sorted(reply.ids - reply.objects.keys())
        response = fleet_pb2.PushMessagesResponse(objects_to_push=missing, session_id=reply.session)
        response.results[proto.metadata.message_id] = 0  # accepted
        return response

    def _push_object(self, request: Any) -> Any:
        """Keeps an object of a reply; with the last one, checks the reply."""
        task = self._task
        reply = None if task is None else task.reply
        if request.session_id and request.session_id == self._last_session:
            return message_pb2.PushObjectResponse(stored=True)  # again, since the SuperNode got no answer
        if task is None or reply is None or request.session_id != reply.session or request.object_id not in reply.ids:
            raise RejectedError("an object of no reply")
        # Names are hashes, so that an object cannot be exchanged for another one of its name.
        if hashlib.sha256(request.object_content).hexdigest() != request.object_id:
            raise RejectedError("an object with another content than its name says")
        with reply.lock:
            if request.object_id not in reply.objects and not reply.is_checked:
                reply.size += len(request.object_content)
                if reply.size > self._reply_check.largest:
                    task.leaving = RefusedError.TO_THE_SERVER
                    reply.is_checked = True
                    reply.objects.clear()
                    raise RejectedError("a reply that is too large", 413)
                reply.objects[request.object_id] = request.object_content
            if reply.objects.keys() == reply.ids and not reply.is_checked:
                reply.is_checked = True  # once, also if the SuperNode repeats its call
                task.leaving = self._reply_check.leaving(task, reply)
                self._last_session = reply.session
                reply.objects.clear()
        return message_pb2.PushObjectResponse(stored=True)

    def _say(self, sentence: str) -> None:
        """Prints what is wrong with the SuperLink or the log, once until it changes."""
        if sentence != self._said:
            _logger.error(sentence)
        self._said = sentence


def of_superlink(error: httpx.HTTPError) -> str:
    """One line on an error of the SuperLink."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}, {error.response.text!r:.200}"
    return reason_of(error)


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
    handle: Callable[[FleetAnswers, Any], Any]
    node: Callable[[Any], int] | None
    most: int = _SMALL


_CALLS = {
    "register-node": _Call(fleet_pb2.RegisterNodeFleetRequest, FleetAnswers._register, None),
    "activate-node": _Call(fleet_pb2.ActivateNodeRequest, FleetAnswers._activate, None),
    "deactivate-node": _Call(fleet_pb2.DeactivateNodeRequest, FleetAnswers._deactivate, _number),
    "unregister-node": _Call(fleet_pb2.UnregisterNodeFleetRequest, FleetAnswers._unregister, _number),
    "send-node-heartbeat": _Call(heartbeat_pb2.SendNodeHeartbeatRequest, FleetAnswers._heartbeat, _number_of_node),
    "pull-messages": _Call(fleet_pb2.PullMessagesRequest, FleetAnswers._pull_messages, _number_of_node),
    "get-run": _Call(run_pb2.GetRunRequest, FleetAnswers._get_run, _number_of_node),
    "get-fab": _Call(fab_pb2.GetFabRequest, FleetAnswers._get_fab, _number_of_node),
    "pull-object": _Call(message_pb2.PullObjectRequest, FleetAnswers._pull_object, _number_of_node),
    "confirm-message-received": _Call(
        message_pb2.ConfirmMessageReceivedRequest, FleetAnswers._confirm, _number_of_node
    ),
    "push-messages": _Call(fleet_pb2.PushMessagesRequest, FleetAnswers._push_messages, _number_of_node, _TREE),
    "push-object": _Call(message_pb2.PushObjectRequest, FleetAnswers._push_object, _number_of_node),
}
"""The calls that the gateway answers, by name."""
