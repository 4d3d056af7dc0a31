"""Guard of a Flower site that no app can leave out: a gateway between the site's SuperNode and the SuperLink.

The SuperNode connects to the gateway in place of the SuperLink, over Flower's own Fleet protocol. The gateway forwards
none of its calls. It is a node of its own at the SuperLink: it signs with a key of its own, asks for messages and sends
its heartbeats at the beats of its own clock, and answers the SuperNode from what it got. A reply is collected until it
is whole, and checked; what may leave goes at the next beat, in a message that is made from the checked numbers and from
the server's message. A site makes the gateway the only way out of the SuperNode's host.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.common.constant import HEARTBEAT_BASE_MULTIPLIER, HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE
from flwr.common.serde import message_from_proto
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedleak_guard.flower_answers import FleetAnswers, of_superlink
from fedleak_guard.flower_caller import HEADERS, Caller, read_public_key
from fedleak_guard.flower_superlink import MEDIA, SuperLink, read_private_key
from fedleak_guard.gateway_log import GatewayLog
from fedleak_guard.gateway_server import GatewayServer, with_tls
from fedleak_guard.gateway_task import GatewayTask, leaving_message
from fedleak_guard.guard import Guard
from fedleak_guard.policy import read_policy
from fedleak_guard.refusal import reason_of
from fedleak_guard.reply_check import ReplyCheck
from fedleak_recorder.errors import InputError, require

PACE = 3.0
"""Seconds between two beats, as often as Flower's SuperNode asks for messages."""
LARGEST = 2**31
"""Bytes of the objects of a reply together."""
_HEARTBEAT = HEARTBEAT_BASE_MULTIPLIER * HEARTBEAT_DEFAULT_INTERVAL
"""Seconds between two heartbeats, as Flower's SuperNode on average."""
_SILENCE = HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL
"""Seconds without a call of the SuperNode after which it counts as gone."""
_KNOWN_RUNS = 16
"""Runs whose apps are kept: an app may have many megabytes, and a site takes part in few runs at a time."""


class Gateway(FleetAnswers):
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
        private_key = None
        if superlink_key is not None:
            private_key = read_private_key(Path(superlink_key))
        public_key = None
        if supernode_key is not None:
            public_key = read_public_key(Path(supernode_key))
        super().__init__(
            superlink=SuperLink(
                superlink,
                key=private_key,
                root_certificates=root_certificates,
                transport=transport,
            ),
            caller=Caller(public_key, clock),
            log=GatewayLog(evidence, clock),
            reply_check=ReplyCheck(Guard(policy), examples_key=examples_key, records=records, largest=largest),
            pace=pace,
            clock=clock,
        )
        self._log.note("started", pace=pace)

    def run(self, stopped: threading.Event) -> None:
        """Makes a step at each beat until `stopped`, and then takes the node back."""
        # Beats are multiples of the pace since 1970: not even the time at which the gateway started says anything.
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
                # In this order at each beat, so that the order says nothing.
                self._keep_alive()
                self._send()
                self._fetch()
            self._said = ""
        except httpx.HTTPError as error:
            self._say(f"the SuperLink does not answer: {of_superlink(error)}")
        except Exception as error:
            self._say(f"the gateway's own call failed: {reason_of(error)}")

    def _keep_alive(self) -> None:
        """Sends a heartbeat if one is due and the SuperNode is there."""
        now = self._clock()
        if not self._is_here:
            self._is_connected = False
            self._superlink.disconnect()
            return
        # No heartbeat for a SuperNode that is silent; a clock that was set back makes one due.
        is_silent = now - self._heard >= _SILENCE
        is_beaten = 0 <= now - self._beaten < _HEARTBEAT
        if is_silent or is_beaten:
            return
        self._beaten = now
        self._is_known = self._superlink.heartbeat()
        if not self._is_known:  # the SuperLink was started anew, say; the SuperNode ends, and connects again
            self._is_connected = False
            self._is_here = False
            self._superlink.forget()

    def _send(self) -> None:
        """Sends the reply that may leave; the same one again at the next beat if the SuperLink does not answer."""
        task = self._task
        now = self._clock()
        if task is None:
            return
        if now >= task.until:
            self._task = None
            return
        if task.leaving is None or task.message is None:
            return
        if task.sent is None:
            # Made once, at the last beat: when the app was ready within the beat, nobody can read off it.
            beat = math.floor(now / self.pace) * self.pace
            task.sent = leaving_message(task.leaving, task.message, beat=beat)
        try:
            self._superlink.push(task.sent)
        except httpx.HTTPStatusError as error:
            # A fault of the SuperLink passes; a refusal of the reply would be the same at each beat.
            if error.response.status_code >= 500:
                raise
            self._say(f"the SuperLink does not take a reply: {of_superlink(error)}")
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
            ids = frozenset(node.object_id for node in iterate_object_tree(tree))
            self._task = GatewayTask(proto, tree, metadata.run_id, ids, until=metadata.created_at + metadata.ttl)
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

    def _complete(self, task: GatewayTask) -> None:
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
            # The number of the message as the SuperLink knows it, which inflating does not set.
            message.metadata.__dict__["_message_id"] = name
            self._superlink.confirm(task.run, name)
            task.message = message


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
