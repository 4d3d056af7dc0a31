"""HTTP server of a gateway: what a stranger can make it read, keep or print is bounded."""

import contextlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from fedleak_guard.gateway_log import RejectedError
from fedleak_recorder.errors import InputError

MOST_CONNECTIONS = 64
"""Connections, and with them threads, at one time; a SuperNode opens about ten."""
FIRST_CALL = 10.0
"""Seconds in which a connection must have made a call that was admitted; otherwise it is closed."""
IDLE = 60.0
"""Seconds without a byte after which a connection is closed."""
_LENGTH = re.compile(r"[0-9]{1,10}")


class Answers(Protocol):
    """What answers the calls."""

    def admit(self, path: str, headers: Mapping[str, str]) -> int:
        """Bytes that the body of a call may have; raises `RejectedError` before any of it is read."""

    def answered(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to an admitted call."""

    def rejected(self, reason: str) -> None:
        """Counts a call that is not answered."""


class GatewayServer(ThreadingHTTPServer):
    """Listens for the SuperNode; ``serve_forever`` runs it.

    Args:
        answers: answers the calls.
        address: host and port to listen at; port 0 for any free one.
        headers: the headers that `answers` looks at.
        media: type of the content of answers.
    """

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, answers: Answers, address: tuple[str, int], *, headers: tuple[str, ...], media: str) -> None:
        self.answers = answers
        self.read_headers = headers
        self.media = media
        self._connections: dict[Any, float] = {}
        """When a connection must have made its first admitted call; infinite once it has."""
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for another connection: in place of the oldest that made no admitted call yet.

        Whoever opens many connections thus closes its own, and keeps those of the SuperNode.
        """
        with self._lock:
            is_full = len(self._connections) >= MOST_CONNECTIONS
            # The one whose time for a first call ends first; infinite if all have made one.
            oldest = min(self._connections, key=self._connections.__getitem__, default=None)
            can_be_replaced = oldest is not None and self._connections[oldest] < float("inf")
            has_room = not is_full or can_be_replaced
            if has_room:
                self._connections[request] = time.monotonic() + FIRST_CALL
        if is_full:
            self.answers.rejected("too many connections")
        # Closed outside of the lock, which closing takes itself.
        if is_full and has_room:
            self._close(oldest)
        return has_room

    def admitted(self, request: Any) -> None:
        """A connection made a call that was admitted: it may stay."""
        with self._lock:
            if request in self._connections:
                self._connections[request] = float("inf")

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Closes connections that said nothing of worth in time; `serve_forever` calls it twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, end in self._connections.items() if end < now]
        for request in late:
            self.answers.rejected("no call in time")
            self._close(request)

    def _close(self, request: Any) -> None:
        """Closes a connection; its thread then reads the end, and gives it up."""
        with self._lock:
            self._connections.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Counts a connection that broke, in place of a traceback."""
        self.answers.rejected("a broken connection")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE
    server: GatewayServer

    def do_POST(self) -> None:
        """Answers a call; its headers are judged before its body is read."""
        answers = self.server.answers
        try:
            most = answers.admit(self.path, self._headers())
            self.server.admitted(self.connection)
            body = self._body(most)
        except RejectedError as error:
            answers.rejected(error.reason)
            self.close_connection = True  # the body, which nobody reads, would be taken for the next call
            self._respond(error.status, b"")
            return
        self._respond(*answers.answered(self.path, body))

    def _headers(self) -> dict[str, str]:
        """The headers that count, each of them once.

        Raises:
            RejectedError: one is there several times.
        """
        headers = {}
        for name in self.server.read_headers:
            values = self.headers.get_all(name, [])
            if len(values) > 1:
                raise RejectedError("a header twice", 400)
            if values:
                headers[name] = values[0]
        return headers

    def _body(self, most: int) -> bytes:
        """The body of a call, of a length that the call says first and that is allowed.

        Raises:
            RejectedError: the length is missing, too large or not kept.
        """
        # Two lengths, or a length and chunks, are read in different ways by different programs.
        lengths = self.headers.get_all("content-length", [])
        if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]) or "transfer-encoding" in self.headers:
            raise RejectedError("no length of the body", 411)
        length = int(lengths[0])
        if length > most:
            raise RejectedError("too long a body", 413)
        body = self.rfile.read(length)
        if len(body) != length:
            raise RejectedError("a body that ends early", 400)
        return body

    def _respond(self, status: int, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("content-type", self.server.media)
        self.send_header("content-length", str(len(content)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what is no call: another method, or no HTTP."""
        self.server.answers.rejected("no call")
        self.close_connection = True
        self._respond(int(code), b"")

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing, since the text is a stranger's."""


def with_tls(server: GatewayServer, certificate: str, key: str | None) -> None:
    """Gives a server its certificate.

    Args:
        server: the server.
        certificate: path of the certificate.
        key: path of its private key; None if the certificate's file holds it.

    Raises:
        InputError: one cannot be read.
    """
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        way_out = "Give a certificate and its private key as PEM files."
        raise InputError(expected="a certificate", found=f"{error} in {certificate}", way_out=way_out) from None
    # Each connection's own thread shakes hands, so that one that says nothing does not keep others waiting.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
