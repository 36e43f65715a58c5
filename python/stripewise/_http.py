"""Requests to a daemon over a unix socket, HTTP on loopback, or TLS. Standard library only.

Each request has a connection of its own: threads can share a `Client`, and no answer of an earlier
request can be mistaken for a later one's.

Expected faults: no daemon, another server, a certificate that is not trusted, an answer that stops.
Each is a `DaemonError` with a hint. A request is never sent twice.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import socket
import ssl
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping, Optional, Union
from urllib.parse import quote, urlencode, urlsplit

from ._errors import DaemonError, RequestError
from ._home import state_folder

__all__ = ["Client", "Value", "path_of"]

#: A parameter of a query; `None` is left out.
Value = Union[None, bool, int, str]

#: Longest answer that is read whole: bytes of a volume come in pieces of 16 MiB.
_LONGEST_ANSWER = 64 << 20
#: A stream sends at least a comment every 15 s.
_STREAM_SECONDS = 60.0


def path_of(*names: str) -> str:
    """The path below `/api/v1` with these names."""
    return "/api/v1/" + "/".join(quote(name, safe="") for name in names)


class Client:
    """Address and secrets of a daemon.

    :param address: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`; the socket in the state
        folder by default
    :param token: secret of the daemon's token file
    :param ca_file: certificates (PEM) to trust instead of the system's
    :param timeout_seconds: longest silence of the daemon, except while it works on a job
    """

    def __init__(
        self,
        address: Optional[str],
        token: Optional[str],
        ca_file: Union[None, str, "os.PathLike[str]"],
        timeout_seconds: float,
    ) -> None:
        self.address = address or f"unix:{state_folder() / 'http.sock'}"
        self._timeout = timeout_seconds
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls: Optional[ssl.SSLContext] = None
        self._socket: Optional[str] = None
        self._host, self._port = "localhost", 0
        if self.address.startswith("unix:"):
            self._socket = self.address[len("unix:") :]
            return
        try:
            parts = urlsplit(self.address)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
            raise RequestError(
                f"`{self.address}` is not the address of a daemon",
                "unix:PATH, http://127.0.0.1:PORT or https://HOST:PORT",
            )
        self._host, self._port = host, port or (443 if parts.scheme == "https" else 80)
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(
                    cafile=None if ca_file is None else os.fspath(ca_file)
                )
            except (OSError, ssl.SSLError) as error:
                raise RequestError(
                    f"cannot read certificates of {ca_file}: {error}", "a file in PEM"
                ) from error
        elif token and not _is_loopback(host):
            raise RequestError(f"a token would be readable on the way to {host}", "use https://")

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Value]] = None,
        document: Optional[Mapping[str, Any]] = None,
        content: Optional[memoryview] = None,
        waits: bool = False,
    ) -> bytes:
        """The body of the answer to a request; `waits` if it is answered when a job is done."""
        timeout = None if waits else self._timeout
        with self._answer(method, path, query, document, content, timeout) as answer:
            body = answer.read(_LONGEST_ANSWER + 1)
            if len(body) > _LONGEST_ANSWER:
                raise DaemonError(f"{self.address} sent more than {_LONGEST_ANSWER >> 20} MiB", "")
            return body

    def document(self, method: str, path: str, **options: Any) -> Dict[str, Any]:
        """The document that answers a request."""
        return self._parsed(self.request(method, path, **options))

    def events(self, path: str) -> Iterator[Dict[str, Any]]:
        """The documents of a stream of events, until it ends or the generator is closed."""
        with self._answer("GET", path, None, None, None, _STREAM_SECONDS) as answer:
            while True:
                line = answer.readline(_LONGEST_ANSWER)
                if not line:
                    return
                if line.startswith(b"data:"):
                    yield self._parsed(line[len(b"data:") :])

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Value]],
        document: Optional[Mapping[str, Any]],
        content: Optional[memoryview],
        timeout: Optional[float],
    ) -> Iterator[http.client.HTTPResponse]:
        """A successful answer, of which only the head was read."""
        target = path + _query(query or {})
        headers = dict(self._headers)
        body: Any = content
        if document is not None:
            body = json.dumps(
                {name: value for name, value in document.items() if value is not None}
            ).encode()
            headers["Content-Type"] = "application/json"
        elif content is not None:
            headers["Content-Type"] = "application/octet-stream"
        connection = self._connection(timeout)
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise self._problem(answer.status, answer.read(_LONGEST_ANSWER))
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _connection(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        if self._socket is not None:
            return _UnixConnection(self._socket, timeout)
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _parsed(self, body: bytes) -> Dict[str, Any]:
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if not isinstance(document, dict) or document.pop("output_version", 1) != 1:
            raise DaemonError(
                f"{self.address} did not answer as a daemon of this version",
                "is it a `stripewise serve` of the same version?",
            )
        return document

    def _problem(self, status: int, body: bytes) -> DaemonError:
        """The error of an answer that is no success (RFC 9457)."""
        try:
            problem = json.loads(body)
            detail = str(problem["detail"])
        except (ValueError, TypeError, KeyError):
            return DaemonError(
                f"{self.address} answered with status {status}", "is it a `stripewise serve`?", status
            )
        hint = problem.get("hint") or problem.get("command_hint") or ""
        return DaemonError(detail, hint, status, problem.get("document"))

    def _unreachable(self, error: Exception) -> DaemonError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return DaemonError(
                f"the certificate of {self.address} is not trusted: {error.verify_message}",
                "ca_file= names the certificate of its authority",
            )
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return DaemonError(
                f"no daemon listens at {self.address}",
                "`stripewise serve` starts one; --http gives it an address",
            )
        if isinstance(error, PermissionError):
            return DaemonError(
                f"{self.address} does not admit this user", "`serve --http unix:PATH` admits users by name"
            )
        if isinstance(error, TimeoutError):
            return DaemonError(
                f"{self.address} was silent for {self._timeout:g} s",
                "the request may be done later; timeout_seconds= sets the limit",
            )
        text = str(error) or type(error).__name__
        return DaemonError(
            f"the connection to {self.address} failed: {text}",
            "the request may have been done; the daemon's log tells",
        )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _query(values: Mapping[str, Value]) -> str:
    text = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None and value is not False
    }
    return f"?{urlencode(text)}" if text else ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
