"""A SuperLink and a SuperNode in this process, on the two sides of a gateway."""

import base64
import datetime
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message
from flwr.supercore.task_identity import TaskIdentity

from fedleak_guard.flower_gateway import Gateway
from tests.guard_toys import model, update

NODE = 7
REFUSED = "the site's guard refused the message"


class SuperLink:
    """A SuperLink of one run that asks once, and keeps what arrives."""

    def __init__(self) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in model().items()})})
        content["config"] = ConfigRecord({"server-round": 3})
        self.asked = Message(content=content, dst_node_id=NODE, message_type="train")
        self.asked.metadata.__dict__["_message_id"] = self.asked.object_id
        self.objects = {name: one.deflate() for name, one in get_all_nested_objects(self.asked).items()}
        self.calls: list[str] = []
        self.pushed: list[Any] = []
        self.arrived: dict[str, bytes] = {}
        self.answers = self.knows = True
        self.requests: list[httpx.Request] = []
        self.waits = True
        """Whether the message has not been asked for yet."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request.url.path.rpartition("/")[2])
        self.requests.append(request)
        if not self.answers:
            raise httpx.ConnectError("no SuperLink")
        return httpx.Response(200, content=self.answer(request.url.path, request.content))

    def answer(self, path: str, body: bytes) -> bytes:
        """Body of the answer to a call."""
        call: Callable[[bytes], Any] = getattr(self, path.rpartition("/")[2].replace("-", "_"))
        return bytes(call(body).SerializeToString())

    def register_node(self, _: bytes) -> Any:
        return fleet_pb2.RegisterNodeFleetResponse(node_id=NODE)

    def activate_node(self, _: bytes) -> Any:
        return fleet_pb2.ActivateNodeResponse(node_id=NODE)

    def pull_messages(self, _: bytes) -> Any:
        if not self.waits:
            return fleet_pb2.PullMessagesResponse()
        self.waits = False
        message = message_to_proto(remove_content_from_message(self.asked))
        return fleet_pb2.PullMessagesResponse(
            messages_list=[message], message_object_trees=[get_object_tree(self.asked)]
        )

    def get_run(self, _: bytes) -> Any:
        response = run_pb2.GetRunResponse()
        response.run.fab_hash = "the app"
        return response

    def get_fab(self, _: bytes) -> Any:
        return fab_pb2.GetFabResponse()

    def pull_object(self, body: bytes) -> Any:
        content = self.objects[message_pb2.PullObjectRequest.FromString(body).object_id]
        return message_pb2.PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def confirm_message_received(self, _: bytes) -> Any:
        return message_pb2.ConfirmMessageReceivedResponse()

    def send_node_heartbeat(self, _: bytes) -> Any:
        return heartbeat_pb2.SendNodeHeartbeatResponse(success=self.knows)

    def deactivate_node(self, _: bytes) -> Any:
        return fleet_pb2.DeactivateNodeResponse()

    def unregister_node(self, _: bytes) -> Any:
        return fleet_pb2.UnregisterNodeFleetResponse()

    def push_messages(self, body: bytes) -> Any:
        request = fleet_pb2.PushMessagesRequest.FromString(body)
        self.pushed.append(request.messages_list[0])
        tree, ids = request.message_object_trees[0], list[str]()
        waiting = [tree]
        while waiting:
            one = waiting.pop()
            ids.append(one.object_id)
            waiting += one.children
        return fleet_pb2.PushMessagesResponse(objects_to_push=ids, session_id="session")

    def push_object(self, body: bytes) -> Any:
        request = message_pb2.PushObjectRequest.FromString(body)
        self.arrived[request.object_id] = request.object_content
        return message_pb2.PushObjectResponse(stored=True)

    def reply(self) -> Message:
        """The one reply that arrived."""
        (proto,) = self.pushed
        found = message_from_proto(proto)
        made = inflate_object_from_contents(found.metadata.message_id, dict(self.arrived))
        assert isinstance(made, Message)
        return made


class SuperLinkServer(ThreadingHTTPServer):
    """Serves a SuperLink on a port of this machine.

    Args:
        answer: body of the answer to the path, the headers and the body of a call.
    """

    daemon_threads = True

    def __init__(self, answer: Callable[[str, bytes, bytes], bytes]) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _SuperLinkHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: a gateway that was killed is no fault of the SuperLink."""


class _SuperLinkHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SuperLinkServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        content = self.server.answer(self.path, bytes(self.headers), body)
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class SuperNode:
    """A SuperNode that speaks to the gateway, and signs as Flower's."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self.gateway, self.node, self.clock = gateway, Node(node_id=NODE), clock
        self.private, public = generate_key_pairs()
        self.public = public_key_to_bytes(public)

    def signed(self) -> dict[str, str]:
        """Headers of a call of its own."""
        timestamp = datetime.datetime.fromtimestamp(self.clock(), datetime.UTC).isoformat()
        return headers_of(self.public, timestamp, sign_message(self.private, timestamp.encode()))

    def call(self, name: str, request: Any, kind: Any = None) -> Any:
        """The answer to a call: the message of the given type, or the status."""
        status, body = self.gateway.answer(f"/v1/fleet/{name}", self.signed(), request.SerializeToString())
        return kind.FromString(body) if kind is not None and status == 200 else status

    def connect(self) -> None:
        assert self.call("register-node", fleet_pb2.RegisterNodeFleetRequest(public_key=self.public)) == 200
        assert self.call("activate-node", fleet_pb2.ActivateNodeRequest(public_key=self.public)) == 200

    def pull(self, link: SuperLink) -> Message:
        """Connects, and pulls the message and its objects."""
        self.connect()
        self.gateway.step()
        pulled = self.call(
            "pull-messages", fleet_pb2.PullMessagesRequest(node=self.node), fleet_pb2.PullMessagesResponse
        )
        assert len(pulled.messages_list) == 1
        for name in link.objects:
            assert self.call("pull-object", self.pulled(name)) == 200
        confirmed = message_pb2.ConfirmMessageReceivedRequest(
            node=self.node, run_id=1, message_object_id=link.asked.metadata.message_id
        )
        assert self.call("confirm-message-received", confirmed) == 200
        return link.asked

    def pulled(self, name: str, run: int = 1) -> Any:
        return message_pb2.PullObjectRequest(node=self.node, run_id=run, object_id=name)

    def push(self, reply: Message, change: Callable[[str, bytes], bytes] = lambda _, content: content) -> list[int]:
        """Sends a reply, and returns the status of each object."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        request = fleet_pb2.PushMessagesRequest(
            node=self.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
        )
        answer = self.call("push-messages", request, fleet_pb2.PushMessagesResponse)
        if isinstance(answer, int):
            return [answer]
        objects = {name: one.deflate() for name, one in get_all_nested_objects(reply).items()}
        assert set(answer.objects_to_push) == set(objects)
        parts = [
            message_pb2.PushObjectRequest(
                node=self.node,
                run_id=1,
                object_id=name,
                object_content=change(name, objects[name]),
                session_id=answer.session_id,
            )
            for name in answer.objects_to_push
        ]
        statuses = [self.call("push-object", part) for part in parts]
        self.gateway.step()
        return statuses


def headers_of(key: bytes, timestamp: str, signature: bytes) -> dict[str, str]:
    return {
        "flwr-public-key": base64.b64encode(key).decode(),
        "flwr-timestamp": timestamp,
        "flwr-signature": base64.b64encode(signature).decode(),
    }


def trained(**more: Any) -> RecordDict:
    after = {name: value + update()[name] for name, value in model().items()} | more
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in after.items()})})
    content["metrics"] = MetricRecord({"num-examples": 20, "loss": 0.5})
    return content
