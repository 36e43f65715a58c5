"""Pools and volumes of a real daemon: over its socket, and over TLS with a token."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy
import pytest

import stripewise
from conftest import CommandLine
from stripewise import Daemon, Pool, Volume, daemon

MIB = 1 << 20


@dataclass
class Served:
    """A running daemon."""

    home: Path
    daemon: Daemon
    https: str
    tokens: dict[str, str]

    def drives(self, name: str, count: int, size: int = 48 * MIB) -> list[Path]:
        """New files for the drives of a pool."""
        paths = [self.home / f"{name}{number}.img" for number in range(count)]
        for path in paths:
            with open(path, "wb") as file:
                file.truncate(size)
        return paths

    def over_tls(self, role: str) -> Daemon:
        return Daemon(self.https, token=self.tokens[role], ca_file=self.home / "cert.pem")


@pytest.fixture(scope="module")
def served(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`stripewise serve` with a socket, and TLS on a port of its own."""
    home = tmp_path_factory.mktemp("served")
    home.chmod(0o700)
    certificate = ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem"), "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, *certificate, *name], check=True, capture_output=True)
    tokens = {role: f"secret-of-{role}-0123456789" for role in ("read", "operate", "admin")}
    lines = [f"token {role} {role} {secret}\n" for role, secret in tokens.items()]
    (home / "http.tokens").write_text("".join(lines))
    (home / "http.tokens").chmod(0o600)
    log = home / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [program, "serve", "--http", "127.0.0.1:0", "--drive-dirs", str(home)]
            + ["--http-tls-cert", str(home / "cert.pem"), "--http-tls-key", str(home / "key.pem")],
            env={**os.environ, "STRIPEWISE_HOME": str(home)},
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + 60
        while "ready\n" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        port = re.search(r"https://127\.0\.0\.1:(\d+)", log.read_text())
        assert port, log.read_text()
        socket_path = f"unix:{home / 'http.sock'}"
        yield Served(home, Daemon(socket_path), f"https://localhost:{port[1]}", tokens)
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0, log.read_text()


@pytest.fixture(scope="module")
def pool(served: Served) -> Pool:
    """A pool of four drives."""
    return served.daemon.create_pool("tank", served.drives("tank", 4))


def test_a_pool_is_that_of_the_command_line(
    served: Served, pool: Pool, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPEWISE_HOME", str(served.home))
    status = pool.status()
    shown = command_line("pool", "status", "tank")["pools"][0]
    assert shown["drives"] == status["drives"]
    assert (shown["state"], shown["id"]) == (status["state"], status["id"]) == ("online", status["id"])
    assert [found.name for found in served.daemon.pools()] == ["tank"]
    # The default address is the socket in the state folder.
    assert Pool("tank").status()["id"] == status["id"]


def test_documents_have_the_keys_of_their_types(pool: Pool) -> None:
    volume = pool.create_volume("typed", "raid5", size="4MiB")
    status = pool.status()
    documents: list[tuple[Any, Any]] = [
        (daemon.PoolStatus, status),
        (daemon.VolumeStatus, volume.status()),
        (daemon.Event, pool.events(last=1)[0]),
        *((daemon.DriveStatus, drive) for drive in status["drives"]),
    ]
    for kind, document in documents:
        for name in typing.get_type_hints(kind):
            assert name in document, f"{kind.__name__} has no {name}"
    volume.delete(yes=True)


def test_types_are_those_of_the_description(served: Served) -> None:
    schemas = served.daemon.request("GET", "openapi.json")["components"]["schemas"]
    kinds = {"PoolReport": daemon.PoolStatus, "VolumeReport": daemon.VolumeStatus,
             "ActivityReport": daemon.Activity, "EventReport": daemon.Event}  # fmt: skip
    for schema, kind in kinds.items():
        assert set(typing.get_type_hints(kind)) <= set(schemas[schema]["properties"]), schema


def test_every_path_of_the_client_is_described(served: Served) -> None:
    described = served.daemon.request("GET", "openapi.json")["paths"]
    source = Path(daemon.__file__).read_text()
    used = set(re.findall(r'"(?:GET|POST|PATCH|PUT|DELETE)", "(\w+)"', source))
    named = {part for path in described for part in path.split("/")}
    assert used and used <= named, used - named


def test_written_bytes_are_read_back(pool: Pool) -> None:
    volume = pool.create_volume("bytes", "raid5", size="48MiB")
    data = os.urandom(40 * MIB)
    # More than a request takes, and not aligned.
    assert volume.write(1000, data) == len(data)
    assert volume.read(1000, len(data)) == data
    array = numpy.zeros(5000, dtype=numpy.uint16)
    volume.read_into(3000, array)
    assert array.tobytes() == data[2000:12000]
    volume.write(0, array)
    assert volume.read(0, 10000) == array.tobytes()
    assert volume.read(7, 0) == b""
    volume.delete(yes=True)
    assert pool.volumes() == []


def test_volumes_are_created_changed_and_converted(pool: Pool) -> None:
    volume = pool.create_volume("v", "raid0", size="4MiB", columns=3, interleave="32K", checksums=False)
    status = volume.status()
    assert (status["layout"], status["columns"], status["interleave_bytes"]) == ("raid0", 3, 32768)
    assert status["checksums"] is False
    assert volume.resize("6MiB")["capacity_bytes"] >= 6 * MIB
    volume.write(0, b"kept" * 1000)
    converted = volume.convert("raid5", columns=3, wait=True)
    assert (converted["layout"], converted["redundancy_left"], converted["conversion"]) == (
        "raid5",
        1,
        None,
    )
    assert volume.read(0, 4000) == b"kept" * 1000
    assert [found.name for found in pool.volumes()] == ["v"]
    volume.delete(yes=True)


def test_a_lost_drive_is_replaced(served: Served) -> None:
    pool = served.daemon.create_pool("sick", served.drives("sick", 4))
    volume = pool.create_volume("v", "raid5", size="16MiB")
    data = os.urandom(8 * MIB)
    volume.write(0, data)
    lost = pool.status()["drives"][1]["id"]
    assert pool.offline(lost)["state"] == "degraded"
    assert volume.read(0, len(data)) == data
    assert volume.status()["redundancy_left"] == 0
    [new] = served.drives("new", 1)
    assert pool.replace(lost, new, wait=True)["state"] == "online"
    assert lost not in [drive["id"] for drive in pool.status()["drives"]]
    scrub = pool.scrub(wait=True)["last_scrub"]
    assert scrub is not None and scrub["checked_bytes"] > len(data)
    assert volume.read(0, len(data)) == data
    assert any(event["kind"] == "rebuild" for event in pool.events())
    pool.destroy(yes=True)
    assert "sick" not in [found.name for found in served.daemon.pools()]


def test_drives_come_and_go(served: Served, pool: Pool) -> None:
    [path] = served.drives("more", 1)
    drives = pool.add(path, role="spare")["drives"]
    [spare] = [drive for drive in drives if drive["role"] == "spare"]
    assert spare["path"] == str(path)
    assert len(pool.remove(spare["id"])["drives"]) == len(drives) - 1


def test_settings_are_changed(pool: Pool) -> None:
    pool.set(rebuild_priority="low", space_warning=77)
    settings = pool.settings()
    assert settings["space-warning"] == "77"
    assert pool.status()["rebuild_priority_percent"] == 10 or settings["rebuild-priority"] == "low"


def test_a_pool_is_renamed_exported_and_imported(served: Served) -> None:
    pool = served.daemon.create_pool("old", served.drives("old", 2))
    new = pool.rename("new")
    identity = new.status()["id"]
    new.export()
    assert "new" not in [found.name for found in served.daemon.pools()]
    back = served.daemon.import_pool("new", folders=[served.home])
    assert back.status()["id"] == identity
    back.destroy(yes=True)


def test_a_stream_begins_with_the_state(served: Served, pool: Pool) -> None:
    events = served.daemon.events()
    first = next(events)
    assert (first["kind"], first["pool"], first["state"]) == ("state", "tank", "online")
    threading.Timer(0.1, pool.create_volume, ("seen", "raid5"), {"size": "4MiB"}).start()
    # Events of earlier changes may come first.
    assert any(
        event["kind"] == "event" and "seen was created" in event["event"]["text"] for event in events
    )
    events.close()
    pool.volume("seen").delete(yes=True)


def test_a_job_is_followed_to_its_end(pool: Pool) -> None:
    pool.create_volume("followed", "raid5", size="8MiB").write(0, bytes(8 * MIB))
    pool.scrub()
    assert list(pool.follow("scrub"))[-1]["kind"] == "done"
    assert pool.wait("scrub")["activity"] == []
    pool.volume("followed").delete(yes=True)


def test_tls_with_a_token_reaches_the_daemon(served: Served, pool: Pool) -> None:
    pool.create_volume("tls", "raid5", size="20MiB")
    volume = served.over_tls("admin").pool("tank").volume("tls")
    data = os.urandom(17 * MIB)
    volume.write(0, data)
    assert volume.read(0, len(data)) == data
    volume.delete(yes=True)


def refusals(served: Served) -> list[tuple[Callable[[], Any], "int | None", str, str]]:
    tank = served.daemon.pool("tank")
    reader = served.over_tls("read").pool("tank")
    nobody = Daemon(served.https, ca_file=served.home / "cert.pem")
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    port = silent.getsockname()[1]
    return [
        (lambda: served.daemon.pool("none").status(), 404, "no pool `none`", "tank"),
        (lambda: tank.volume("none").read(0, 1), None, "no volume none", "it has"),
        (lambda: served.daemon.pool("../tank").status(), 400, "pool name `../tank`", ""),
        (lambda: served.daemon.pool("tank?yes=true&x=").destroy(), 400, "pool name `tank?yes=true&x=`", ""),
        (lambda: tank.destroy(), 400, "loses all", "yes"),
        (lambda: tank.create_volume("v", "raid9"), 400, "no layout", ""),
        (lambda: tank.set(rebuild_priority="mad"), 400, "mad", ""),
        (lambda: tank.add("/nowhere/drive"), None, "/nowhere", ""),
        (lambda: nobody.status(), 401, "token", "http.tokens"),
        (lambda: reader.create_volume("v", "raid5"), 403, "role", ""),
        (lambda: Daemon(served.https, token="x" * 20).status(), None, "not trusted", "ca_file"),
        (lambda: Daemon("unix:/nowhere/sock").status(), None, "no daemon listens", "serve"),
        (
            lambda: Daemon(f"http://127.0.0.1:{port}", timeout_seconds=0.2).status(),
            None,
            "silent",
            "timeout",
        ),
        (lambda: silent.close() or Daemon(f"http://127.0.0.1:{port}").status(), None, "no daemon", "serve"),
    ]


@pytest.mark.parametrize("number", range(14))
def test_refusals_say_what_is_wrong(served: Served, pool: Pool, number: int) -> None:
    # All of them live while one is called: the last two share a socket.
    all_of_them = refusals(served)
    call, status, message, hint = all_of_them[number]
    with pytest.raises(stripewise.DaemonError) as error:
        call()
    assert message in error.value.message
    assert hint in error.value.hint
    assert status is None or error.value.status == status


def test_a_bad_outcome_has_its_document(served: Served) -> None:
    pool = served.daemon.create_pool("rotten", served.drives("rotten", 2))
    volume = pool.create_volume("v", "raid0", size="8MiB")
    volume.write(0, b"\xa5" * (8 * MIB))
    for path in (served.home / "rotten0.img", served.home / "rotten1.img"):
        rot(path)
    with pytest.raises(stripewise.DaemonError) as error:
        pool.scrub(wait=True)
    assert error.value.status == 409
    assert error.value.document is not None and "rotten" in str(error.value.document)
    pool.destroy(yes=True)


def rot(path: Path) -> None:
    """Changes the data of a volume behind the daemon's back."""
    pattern = b"\xa5" * 4096
    with open(path, "r+b") as file:
        for at in range(0, path.stat().st_size, 4096):
            file.seek(at)
            if file.read(4096) == pattern:
                file.seek(at)
                file.write(b"\x5a" * 4096)


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("tank", {}),
        ("ftp://localhost", {}),
        ("http://localhost:port", {}),
        ("http://", {}),
        ("http://localhost/api", {}),
        ("http://nas:8080", {"token": "secret-0123456789"}),
        ("https://nas", {"ca_file": "/nowhere/cert.pem"}),
    ],
)
def test_invalid_addresses_are_refused(address: str, options: dict[str, str]) -> None:
    with pytest.raises(stripewise.RequestError) as error:
        Daemon(address, **options)
    assert error.value.hint


ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"output_version":2}',
    b"HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_foreign_servers_are_reported(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(answer)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(stripewise.DaemonError) as error:
            Daemon(f"http://127.0.0.1:{server.getsockname()[1]}").status()
        thread.join()
    assert error.value.hint


def test_memory_that_cannot_be_written_is_refused(pool: Pool) -> None:
    volume = Volume("none", pool)
    for memory in (b"1234", numpy.zeros(8, dtype=numpy.uint8)[::2]):
        with pytest.raises(stripewise.RequestError, match="contiguous"):
            volume.read_into(0, memory)
    with pytest.raises(TypeError):
        pool.daemon.create_pool("x", "/dev/sda")  # type: ignore[arg-type]
