"""Guard of a Flower site that no app can leave out: a gateway between the site's SuperNode and the SuperLink.

The SuperNode connects to the gateway in place of the SuperLink, over Flower's own Fleet protocol. The gateway collects
each reply until it is whole, checks it, and sends what may leave in a message of its own: content from the checked
numbers, everything else from the server's message. It forwards no other call with anything that the SuperNode chose:
identifiers must be those that the SuperLink sent. A site makes it the only way out of the SuperNode's host.
"""

import hashlib
import logging
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

from fedleak_guard.flower import arrays_of, error_reply, released_content
from fedleak_guard.guard import Guard
from fedleak_guard.policy import read_policy
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.errors import InputError

_logger = logging.getLogger("fedleak_guard")
_PREFIX = "/v1/fleet/"
_HEADERS = {
    "flwr-public-key": r"[A-Za-z0-9+/=]{1,400}",
    "flwr-signature": r"[A-Za-z0-9+/=]{1,150}",
    "flwr-timestamp": r"[0-9T:.+-]{1,40}",
}
"""Headers by which the SuperLink knows the SuperNode, which are forwarded, and what they may be."""
_MEDIA = "application/protobuf"


class ForbiddenError(Exception):
    """A call that the gateway does not forward; the text is one line that says why."""


@dataclass
class _Asked:
    """A message of the server that waits for its reply: without content, and its objects as far as they came."""

    message: Message
    ids: frozenset[str]
    objects: dict[str, bytes] = field(default_factory=dict)

    def whole(self) -> Message | None:
        """The message with its content; None if an object of it did not pass the gateway."""
        if self.ids - self.objects.keys():
            return None
        made = inflate_object_from_contents(self.message.metadata.message_id, dict(self.objects))
        return made if isinstance(made, Message) else None


@dataclass
class _Held:
    """A reply that the SuperNode sends, object by object."""

    request: Any
    asked: _Asked
    ids: frozenset[str]
    objects: dict[str, bytes] = field(default_factory=dict)
    leaving: Message | None = None
    sent: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Gateway:
    """Answers the calls of one SuperNode, and makes its own to the SuperLink.

    Args:
        superlink: address of the SuperLink, such as ``https://superlink.example:8000``.
        policy: path of the site's policy.
        root_certificates: path of the certificates that sign the SuperLink's; None for those of the system.
        examples_key: metric with the number of training examples.
        records: names that the records of a reply may have.

    Raises:
        InputError: the policy is missing or wrong.
    """

    def __init__(
        self,
        superlink: str,
        policy: str,
        *,
        root_certificates: str | None = None,
        examples_key: str = "num-examples",
        records: Sequence[str] = ("arrays", "metrics"),
    ) -> None:
        read_policy(policy)
        self._guard, self._examples_key, self._records = Guard(policy), examples_key, tuple(records)
        verify = True if root_certificates is None else ssl.create_default_context(cafile=root_certificates)
        self._client = httpx.Client(base_url=superlink, verify=verify, timeout=60, follow_redirects=False)
        self._lock = threading.Lock()
        self._version = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())
        self._key: bytes | None = None
        self._node: int | None = None
        self._asked: dict[str, _Asked] = {}
        self._held: dict[str, _Held] = {}
        self._fabs: dict[int, str] = {}
        """Hash of the app of each run that a message of the server named; empty until it is known."""

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a call; only what is forwarded reaches the SuperLink."""
        name = path.removeprefix(_PREFIX)
        try:
            if name not in _CALLS or not path.startswith(_PREFIX):
                raise ForbiddenError(f"the call {path!r:.60} is none of the Fleet protocol")
            kind, _, handle = _CALLS[name]
            request = kind.FromString(body)
            request.DiscardUnknownFields()
            self._check_node(request)
            return 200, handle(self, request, _kept(headers)).SerializeToString(deterministic=True)
        except ForbiddenError as error:
            _logger.error("nothing left the site: %s", error)
            return 403, b""
        except httpx.HTTPStatusError as error:  # the SuperLink's own answer, which the SuperNode understands
            return error.response.status_code, error.response.content
        except httpx.HTTPError as error:
            _logger.error("the SuperLink does not answer: %s", reason_of(error))
            return 503, b""
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
            return 500, b""

    def _forward(self, name: str, request: Any, headers: Mapping[str, str]) -> Any:
        """The SuperLink's answer to a call."""
        content = request.SerializeToString(deterministic=True)
        sent = {**headers, **self._version, "content-type": _MEDIA, "accept": _MEDIA}
        response = self._client.post(_PREFIX + name, content=content, headers=sent)
        response.raise_for_status()
        return _CALLS[name][1].FromString(response.content)

    def _check_node(self, request: Any) -> None:
        """Accepts one identifier of a node, which the SuperLink gave."""
        node = request.node if hasattr(request, "node") else request
        if hasattr(node, "node_id") and node.node_id != self._node:
            raise ForbiddenError("a call for another node than the SuperNode")

    def _register(self, request: Any, headers: Mapping[str, str]) -> Any:
        self._pin(request.public_key)
        return self._forward("register-node", request, headers)

    def _activate(self, request: Any, headers: Mapping[str, str]) -> Any:
        self._pin(request.public_key)
        request.heartbeat_interval = HEARTBEAT_DEFAULT_INTERVAL
        response = self._forward("activate-node", request, headers)
        self._node = response.node_id
        return response

    def _pin(self, key: bytes) -> None:
        """Accepts one public key, that of the SuperNode, which calls first: an app that starts later has no other."""
        with self._lock:
            self._key = self._key or key
            if key != self._key or len(key) > 300:
                raise ForbiddenError("a second public key; start the gateway anew for another SuperNode")

    def _deactivate(self, request: Any, headers: Mapping[str, str]) -> Any:
        return self._forward("deactivate-node", request, headers)

    def _unregister(self, request: Any, headers: Mapping[str, str]) -> Any:
        return self._forward("unregister-node", request, headers)

    def _heartbeat(self, request: Any, headers: Mapping[str, str]) -> Any:
        request.heartbeat_interval = HEARTBEAT_DEFAULT_INTERVAL
        return self._forward("send-node-heartbeat", request, headers)

    def _pull_messages(self, request: Any, headers: Mapping[str, str]) -> Any:
        del request.message_ids[:]
        response = self._forward("pull-messages", request, headers)
        with self._lock:
            now = time.time()
            for name, one in list(self._asked.items()):
                if one.message.metadata.created_at + one.message.metadata.ttl < now:
                    del self._asked[name]
            for proto, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                message, ids = message_from_proto(proto), frozenset(one.object_id for one in iterate_object_tree(tree))
                known = {name: value for one in self._asked.values() for name, value in one.objects.items()}
                objects = {name: known[name] for name in ids & known.keys()}  # which the SuperNode does not pull again
                self._asked[message.metadata.message_id] = _Asked(message, ids, objects)
                self._fabs.setdefault(message.metadata.run_id, "")
        return response

    def _run_of(self, request: Any) -> int:
        if request.run_id not in self._fabs:
            raise ForbiddenError("a call for a run that no message of the server names")
        return int(request.run_id)

    def _get_run(self, request: Any, headers: Mapping[str, str]) -> Any:
        run = self._run_of(request)
        response = self._forward("get-run", request, headers)
        self._fabs[run] = response.run.fab_hash
        return response

    def _get_fab(self, request: Any, headers: Mapping[str, str]) -> Any:
        if request.hash_str != self._fabs[self._run_of(request)]:
            raise ForbiddenError("a call for another app than that of the run")
        return self._forward("get-fab", request, headers)

    def _pull_object(self, request: Any, headers: Mapping[str, str]) -> Any:
        self._run_of(request)
        waiting = [one for one in list(self._asked.values()) if request.object_id in one.ids]
        if not waiting:
            raise ForbiddenError("a call for an object that no message of the server names")
        response = self._forward("pull-object", request, headers)
        if response.object_available and get_object_id(response.object_content) == request.object_id:
            for one in waiting:
                one.objects[request.object_id] = response.object_content
        return response

    def _confirm(self, request: Any, headers: Mapping[str, str]) -> Any:
        self._run_of(request)
        if request.message_object_id not in self._asked:
            raise ForbiddenError("the receipt of a message that the server did not send")
        return self._forward("confirm-message-received", request, headers)

    def _push_messages(self, request: Any, _: Mapping[str, str]) -> Any:
        """Asks the SuperNode for all objects of its reply; nothing is forwarded."""
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise ForbiddenError(f"{len(request.messages_list)} messages in one call")
        (reply,), (tree,) = request.messages_list, request.message_object_trees
        asked = self._asked.get(reply.metadata.reply_to_message_id)
        if asked is None:
            raise ForbiddenError("a message that is no reply to one of the server")
        ids, session = frozenset(one.object_id for one in iterate_object_tree(tree)), secrets.token_hex(16)
        with self._lock:
            self._held[session] = _Held(request, asked, ids)
        response = fleet_pb2.PushMessagesResponse(objects_to_push=sorted(ids), session_id=session)
        response.results[reply.metadata.message_id] = 0
        return response

    def _push_object(self, request: Any, headers: Mapping[str, str]) -> Any:
        """Keeps an object of a reply; with the last one, checks the reply and sends what leaves of it."""
        held = self._held.get(request.session_id)
        if held is None or request.object_id not in held.ids:
            raise ForbiddenError("an object of no reply")
        if hashlib.sha256(request.object_content).hexdigest() != request.object_id:
            raise ForbiddenError("an object with another content than its identifier says")
        with held.lock:
            held.objects[request.object_id] = request.object_content
            if held.objects.keys() == held.ids and not held.sent:
                held.leaving = held.leaving or self._leaving(held)  # once, also if the SuperLink does not answer
                self._send(held, headers)
                held.sent = True
                with self._lock:
                    self._held.pop(request.session_id, None)
                    self._asked.pop(held.asked.message.metadata.message_id, None)
        return message_pb2.PushObjectResponse(stored=True)

    def _leaving(self, held: _Held) -> Message:
        """The message that leaves in place of a reply."""
        message = held.asked.message
        try:
            root = held.request.message_object_trees[0].object_id
            reply = inflate_object_from_contents(root, dict(held.objects))
            if not isinstance(reply, Message):
                raise ForbiddenError(f"an object of the type {type(reply).__name__:.40} in place of a reply")
            if reply.has_error():
                return error_reply(message, reply.error.code)
            asked = held.asked.whole()
            received = None if asked is None else arrays_of(asked)
            content = released_content(
                self._guard,
                asked or message,
                reply.content,
                job=str(message.metadata.run_id),
                received=received,
                examples_key=self._examples_key,
                records=self._records,
            )
            return Message(content, reply_to=message)
        except RefusedError as refused:
            _logger.error(refused.public)
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
        return error_reply(message, ErrorCode.MOD_FAILED_PRECONDITION, RefusedError.TO_THE_SERVER)

    def _send(self, held: _Held, headers: Mapping[str, str]) -> None:
        """Sends a message of the gateway's own with the objects that the SuperLink asks for."""
        assert held.leaving is not None
        message, node = held.leaving, held.request.node
        message.metadata.__dict__["_message_id"] = message.object_id  # as Flower's own sender does
        with no_object_id_recompute():
            seconds = [round(one) for one in held.request.clientapp_runtime_list[:1]]
            request = fleet_pb2.PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[get_object_tree(message)],
                clientapp_runtime_list=seconds,
            )
            response = self._forward("push-messages", request, headers)
            objects = get_all_nested_objects(message)
            for name in response.objects_to_push:
                part = message_pb2.PushObjectRequest(
                    node=node,
                    run_id=message.metadata.run_id,
                    object_id=name,
                    object_content=objects[name].deflate(),
                    session_id=response.session_id,
                )
                self._forward("push-object", part, headers)


_Handle = Callable[[Gateway, Any, Mapping[str, str]], Any]
_CALLS: dict[str, tuple[Any, Any, _Handle]] = {
    "register-node": (
        fleet_pb2.RegisterNodeFleetRequest,
        fleet_pb2.RegisterNodeFleetResponse,
        Gateway._register,
    ),
    "activate-node": (fleet_pb2.ActivateNodeRequest, fleet_pb2.ActivateNodeResponse, Gateway._activate),
    "deactivate-node": (fleet_pb2.DeactivateNodeRequest, fleet_pb2.DeactivateNodeResponse, Gateway._deactivate),
    "unregister-node": (
        fleet_pb2.UnregisterNodeFleetRequest,
        fleet_pb2.UnregisterNodeFleetResponse,
        Gateway._unregister,
    ),
    "send-node-heartbeat": (
        heartbeat_pb2.SendNodeHeartbeatRequest,
        heartbeat_pb2.SendNodeHeartbeatResponse,
        Gateway._heartbeat,
    ),
    "pull-messages": (fleet_pb2.PullMessagesRequest, fleet_pb2.PullMessagesResponse, Gateway._pull_messages),
    "get-run": (run_pb2.GetRunRequest, run_pb2.GetRunResponse, Gateway._get_run),
    "get-fab": (fab_pb2.GetFabRequest, fab_pb2.GetFabResponse, Gateway._get_fab),
    "pull-object": (message_pb2.PullObjectRequest, message_pb2.PullObjectResponse, Gateway._pull_object),
    "confirm-message-received": (
        message_pb2.ConfirmMessageReceivedRequest,
        message_pb2.ConfirmMessageReceivedResponse,
        Gateway._confirm,
    ),
    "push-messages": (fleet_pb2.PushMessagesRequest, fleet_pb2.PushMessagesResponse, Gateway._push_messages),
    "push-object": (message_pb2.PushObjectRequest, message_pb2.PushObjectResponse, Gateway._push_object),
}
"""Type of the request, type of the response and handler of each call of the Fleet protocol."""


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are forwarded."""
    kept = {name: headers[name] for name in _HEADERS if headers.get(name)}
    for name, value in kept.items():
        if not re.fullmatch(_HEADERS[name], value):
            raise ForbiddenError(f"a header {name} of another form")
    return kept


def server_of(
    gateway: Gateway, host: str, port: int, *, certificate: str | None = None, key: str | None = None
) -> ThreadingHTTPServer:
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 600

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, content = gateway.answer(self.path, self.headers, body)  # type: ignore[arg-type]
            self.send_response(status)
            self.send_header("content-type", _MEDIA)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            _logger.debug(format, *args)

    server = ThreadingHTTPServer((host, port), Handler)
    if certificate is not None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
        except OSError as error:
            way_out = "Give a certificate and its private key as PEM files."
            raise InputError(expected="a certificate", found=f"{error} in {certificate}", way_out=way_out) from None
        # Each connection's own thread shakes hands, so that one that says nothing does not keep others waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server
