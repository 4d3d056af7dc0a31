"""The SuperLink as the gateway calls it: as a node of its own, with nothing in a call that another process chose."""

import base64
import ssl
from pathlib import Path
from typing import Any

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, TIMESTAMP_HEADER
from flwr.common.serde import message_to_proto
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

from fedleak_recorder.errors import InputError
from fedleak_recorder.files import read_bounded

PREFIX = "/v1/fleet/"
MEDIA = "application/protobuf"


class SuperLink:
    """Calls of one node to the SuperLink, signed with the gateway's own key.

    Args:
        address: of the SuperLink, such as ``https://superlink.example:8000``.
        key: private key that the SuperLink knows, where it authenticates its nodes; None to register a new one.
        root_certificates: path of the certificates that sign the SuperLink's; None for those of the system.
        transport: carries the calls in place of the network, for tests.

    Raises:
        InputError: the certificates cannot be read.

    Attributes:
        node: number that the SuperLink gave the node; None before `connect`.
    """

    def __init__(
        self,
        address: str,
        *,
        key: EllipticCurvePrivateKey | None = None,
        root_certificates: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        verify: bool | ssl.SSLContext = True
        if root_certificates is not None:
            verify = _trusting(root_certificates)
        # A redirection would send the signed calls elsewhere.
        self._client = httpx.Client(
            base_url=address, verify=verify, timeout=60, follow_redirects=False, transport=transport
        )
        # Without a key that the SuperLink knows, the node registers a new one.
        self._registers = key is None
        self._is_registered = False
        self._private = generate_key_pairs()[0] if key is None else key
        self._public = public_key_to_bytes(self._private.public_key())
        self._version = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())
        self.node: int | None = None

    def connect(self) -> int:
        """Makes the node known, and available.

        Raises:
            httpx.HTTPError: the SuperLink refuses it, or does not answer.
        """
        if self._registers and not self._is_registered:
            self._call(
                "register-node",
                fleet_pb2.RegisterNodeFleetRequest(public_key=self._public),
                fleet_pb2.RegisterNodeFleetResponse,
            )
            self._is_registered = True
        response = self._call(
            "activate-node",
            fleet_pb2.ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL),
            fleet_pb2.ActivateNodeResponse,
        )
        self.node = int(response.node_id)
        return self.node

    def forget(self) -> None:
        """Registers the node anew in the next `connect`, since the SuperLink does not know it."""
        self._is_registered = False

    def disconnect(self) -> None:
        """Makes the node unavailable."""
        self._call(
            "deactivate-node",
            fleet_pb2.DeactivateNodeRequest(node_id=self.node),
            fleet_pb2.DeactivateNodeResponse,
        )

    def close(self) -> None:
        """Takes a node back that `connect` registered, and closes the connection."""
        try:
            if self._is_registered:
                self._call(
                    "unregister-node",
                    fleet_pb2.UnregisterNodeFleetRequest(node_id=self.node),
                    fleet_pb2.UnregisterNodeFleetResponse,
                )
        finally:
            self._client.close()

    def heartbeat(self) -> bool:
        """Says that the node is there; False if the SuperLink does not know it."""
        response = self._call(
            "send-node-heartbeat",
            heartbeat_pb2.SendNodeHeartbeatRequest(node=self._node(), heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL),
            heartbeat_pb2.SendNodeHeartbeatResponse,
        )
        return bool(response.success)

    def message(self) -> tuple[Any, Any] | None:
        """The next message for the node as Flower's protocol has it, with the tree of its objects; None if none."""
        response = self._call(
            "pull-messages", fleet_pb2.PullMessagesRequest(node=self._node()), fleet_pb2.PullMessagesResponse
        )
        if not response.messages_list:
            return None
        return response.messages_list[0], response.message_object_trees[0]

    def run(self, run: int) -> tuple[Any, Any]:
        """What the SuperLink says of a run, and its app."""
        response = self._call("get-run", run_pb2.GetRunRequest(node=self._node(), run_id=run), run_pb2.GetRunResponse)
        request = fab_pb2.GetFabRequest(node=self._node(), hash_str=response.run.fab_hash, run_id=run)
        return response, self._call("get-fab", request, fab_pb2.GetFabResponse)

    def object(self, run: int, name: str) -> bytes | None:
        """Content of an object of a message; None if it is not there yet.

        Raises:
            InputError: it is not what its name says, or will never be there.
        """
        response = self._call(
            "pull-object",
            message_pb2.PullObjectRequest(node=self._node(), run_id=run, object_id=name),
            message_pb2.PullObjectResponse,
        )
        if response.object_found and not response.object_available:
            return None
        # An object's name is the hash of its content.
        if not response.object_found or get_object_id(response.object_content) != name:
            way_out = "Ask the federation's operator; the message is dropped."
            raise InputError(expected="an object of a message", found="another one or none", way_out=way_out)
        return bytes(response.object_content)

    def confirm(self, run: int, message: str) -> None:
        """Says that a message is here with all of its objects."""
        self._call(
            "confirm-message-received",
            message_pb2.ConfirmMessageReceivedRequest(node=self._node(), run_id=run, message_object_id=message),
            message_pb2.ConfirmMessageReceivedResponse,
        )

    def push(self, message: Message) -> None:
        """Sends a message, with those of its objects that the SuperLink asks for; it may be sent again.

        No run time of the app is sent.
        """
        message.metadata.__dict__["_message_id"] = message.object_id  # as Flower's own sender does
        with no_object_id_recompute():
            request = fleet_pb2.PushMessagesRequest(
                node=self._node(),
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[get_object_tree(message)],
            )
            response = self._call("push-messages", request, fleet_pb2.PushMessagesResponse)
            objects = get_all_nested_objects(message)
            wanted = frozenset(response.objects_to_push)
            # In the order of the message's own tree, whatever order the SuperLink asks in.
            for name in objects:
                if name not in wanted:
                    continue
                part = message_pb2.PushObjectRequest(
                    node=self._node(),
                    run_id=message.metadata.run_id,
                    object_id=name,
                    object_content=objects[name].deflate(),
                    session_id=response.session_id,
                )
                self._call("push-object", part, message_pb2.PushObjectResponse)

    def _node(self) -> Node:
        return Node(node_id=self.node)

    def _call(self, name: str, request: Any, kind: Any) -> Any:
        """The SuperLink's answer to a call."""
        content = request.SerializeToString(deterministic=True)
        headers = {**self._version, **self._signed(), "content-type": MEDIA, "accept": MEDIA}
        response = self._client.post(PREFIX + name, content=content, headers=headers)
        response.raise_for_status()
        return kind.FromString(response.content)

    def _signed(self) -> dict[str, str]:
        """Headers by which the SuperLink knows the node: its key, the time, and the signature of the time."""
        timestamp = now().isoformat()
        signature = sign_message(self._private, timestamp.encode("ascii"))
        return {
            FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(self._public).decode("ascii"),
            TIMESTAMP_HEADER: timestamp,
            FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode("ascii"),
        }


def _trusting(certificates: str) -> ssl.SSLContext:
    """TLS that trusts the certificates of a file alone."""
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        way_out = "Give the PEM file of the authority that signed the SuperLink's."
        raise InputError(expected="certificates", found=f"{error} in {certificates}", way_out=way_out) from None


def read_private_key(path: Path) -> EllipticCurvePrivateKey:
    """A private key that the SuperLink knows, from a file of OpenSSH, as `flower-supernode` takes it.

    Raises:
        InputError: it cannot be read, or is of another kind.
    """
    content = read_bounded(path, most=2**16)
    way_out = "Make one with `ssh-keygen -t ecdsa -b 384` and without a passphrase."
    try:
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(expected="a private key", found=f"{error} in {path}", way_out=way_out) from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise InputError(expected="an ECDSA key", found=f"{type(key).__name__} in {path}", way_out=way_out)
    return key
