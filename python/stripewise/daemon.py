"""Pools and volumes of a daemon (`stripewise serve`), over its HTTP interface.

>>> from stripewise import Daemon
>>> pool = Daemon().pool("tank")  # doctest: +SKIP
>>> pool.create_volume("media", layout="raid6", size="4TB").write(0, b"...")  # doctest: +SKIP
>>> pool.scrub(wait=True)["last_scrub"]  # doctest: +SKIP

`docs/daemon.md` describes the requests and the roles that they need. Errors are `DaemonError`, with
a `hint` and the `status` of HTTP. Other requests: `Daemon.request`.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union, cast

from ._daemon_types import Activity, DriveStatus, Event, PoolStatus, VolumeStatus
from ._errors import RequestError
from ._http import Client, Value, path_of
from ._sizes import Size, optional_bytes, size_bytes

__all__ = ["Activity", "Daemon", "DriveStatus", "Event", "Pool", "PoolStatus", "Volume", "VolumeStatus"]

Path = Union[str, "os.PathLike[str]"]

#: Most bytes of a volume in one request.
_PIECE_BYTES = 16 << 20


class Daemon:
    """A daemon that serves pools.

    :param address: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`; by default the socket
        `http.sock` in the state folder (`STRIPEWISE_HOME`)
    :param token: secret of the daemon's token file; not needed for users it knows at a unix socket
    :param ca_file: certificates (PEM) to trust instead of the system's
    :param timeout_seconds: longest silence of the daemon, except while it works on a job
    """

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        token: Optional[str] = None,
        ca_file: Optional[Path] = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        self._client = Client(address, token, ca_file, timeout_seconds)

    @property
    def address(self) -> str:
        """Address of the daemon."""
        return self._client.address

    def __repr__(self) -> str:
        return f"<stripewise.Daemon at {self.address}>"

    def request(
        self,
        method: str,
        *names: str,
        query: Optional[Dict[str, Value]] = None,
        document: Optional[Dict[str, Any]] = None,
        waits: bool = False,
    ) -> Dict[str, Any]:
        """Send any request of the interface, `/api/v1/NAME/NAME…`, and return its document.

        :param waits: no limit on the time to the answer
        """
        return self._client.document(method, path_of(*names), query=query, document=document, waits=waits)

    def pool(self, name: str) -> Pool:
        """A pool by its name; nothing is requested."""
        return Pool(name, self)

    def pools(self) -> List[Pool]:
        """The pools that the daemon knows."""
        return [self.pool(status["name"]) for status in self.status()]

    def status(self) -> List[PoolStatus]:
        """The status of all pools."""
        return cast("List[PoolStatus]", self.request("GET", "pools")["pools"])

    def create_pool(
        self,
        name: str,
        drives: Iterable[Path],
        *,
        spares: Iterable[Path] = (),
        journals: Iterable[Path] = (),
        fast: Iterable[Path] = (),
        slab: Optional[Size] = None,
        force: bool = False,
    ) -> Pool:
        """Create a pool.

        :param drives: files, block devices, or volumes of other pools (`POOL/VOL`)
        :param slab: allocation unit: a power of two, 1 MiB to 128 MiB
        :param force: overwrite drives that hold data
        """
        document = {
            "name": name,
            "drives": _paths(drives),
            "spares": _paths(spares),
            "journals": _paths(journals),
            "fast": _paths(fast),
            "slab_bytes": optional_bytes("slab", slab),
            "force": force,
        }
        self.request("POST", "pools", document=document, waits=True)
        return self.pool(name)

    def import_pool(
        self,
        pool: str,
        *,
        folders: Iterable[Path] = (),
        new_name: Optional[str] = None,
        force: bool = False,
    ) -> Pool:
        """Find a pool on drives, and serve it.

        :param pool: name or identity
        :param folders: folders to search; all block devices by default
        :param force: take it from the host that has it
        """
        document = {"folders": _paths(folders), "pool": pool, "new_name": new_name, "force": force}
        self.request("POST", "import", document=document, waits=True)
        return self.pool(new_name or pool)

    def events(self) -> Iterator[Dict[str, Any]]:
        """Follow all pools: the state of each first, then events, progress and load.

        The stream ends with the daemon; closing the generator ends it too.
        """
        return self._client.events(path_of("events"))


class Pool:
    """A pool of a daemon.

    Methods that start a job return the status at once; with `wait=True` they return when the job is
    done. An interrupt ends the wait, not the job.

    :param name: name of the pool
    :param daemon: the daemon; that at the socket in the state folder by default
    """

    def __init__(self, name: str, daemon: Optional[Daemon] = None) -> None:
        self.name = name
        self.daemon = daemon or Daemon()

    def __repr__(self) -> str:
        return f"<stripewise.Pool {self.name} of {self.daemon.address}>"

    def _ask(self, method: str, *names: str, **options: Any) -> Dict[str, Any]:
        return self.daemon.request(method, "pools", self.name, *names, **options)

    def _change(self, method: str, *names: str, wait: bool = False, **options: Any) -> PoolStatus:
        """The status after a change. Drives may be slow to answer: there is no limit of time."""
        query = {"wait": wait, **options.pop("query", {})}
        return cast(PoolStatus, self._ask(method, *names, query=query, waits=True, **options)["pools"][0])

    def status(self) -> PoolStatus:
        """The status of the pool, its drives and volumes."""
        return cast(PoolStatus, self._ask("GET")["pools"][0])

    def volume(self, name: str) -> Volume:
        """A volume by its name; nothing is requested."""
        return Volume(name, self)

    def volumes(self) -> List[Volume]:
        """The volumes of the pool."""
        return [self.volume(status["name"]) for status in self._ask("GET", "volumes")["volumes"]]

    def create_volume(
        self,
        name: str,
        layout: str,
        *,
        size: Optional[Size] = None,
        columns: Optional[int] = None,
        groups: Optional[int] = None,
        interleave: Optional[Size] = None,
        slices: Optional[int] = None,
        thin: bool = False,
        write_back: Optional[bool] = None,
        checksums: Optional[bool] = None,
        pin: Optional[str] = None,
        log: bool = False,
        reserve_percent: Optional[int] = None,
    ) -> Volume:
        """Create a volume.

        :param layout: single, raid0, raid1, raid4, raid5, raid6, raid7, raid10, raid50, raid60
        :param size: usable size; all free space by default
        :param columns: drives per row
        :param groups: groups of raid50 and raid60
        :param interleave: strip size
        :param slices: number of arrays that extents go to in turn, 1 to 8
        :param thin: allocate space when it is written
        :param write_back: acknowledge small writes from the journal
        :param checksums: record checksums of all blocks; the default
        :param pin: fast or slow
        :param log: a log volume, which never overwrites
        :param reserve_percent: share of a log volume that is kept free, 5 to 50
        """
        document = {
            "name": name,
            "layout": layout,
            "size_bytes": optional_bytes("size", size),
            "columns": columns,
            "groups": groups,
            "interleave_bytes": optional_bytes("interleave", interleave),
            "slices": slices,
            "thin": thin,
            "write_back": write_back,
            "checksums": checksums,
            "pin": pin,
            "log": log,
            "reserve_percent": reserve_percent,
        }
        self._ask("POST", "volumes", document=document, waits=True)
        return self.volume(name)

    def add(self, *drives: Path, role: str = "data", force: bool = False) -> PoolStatus:
        """Add drives.

        :param role: data, spare, journal or fast
        :param force: overwrite drives that hold data
        """
        document = {"drives": _paths(drives), "role": role, "force": force}
        return self._change("POST", "drives", document=document)

    def remove(self, drive: str) -> PoolStatus:
        """Remove an unused drive. Drives of a pool are named by their `id`."""
        return self._change("DELETE", "drives", drive)

    def offline(self, drive: str) -> PoolStatus:
        """Take a drive offline."""
        return self._change("POST", "drives", drive, "offline")

    def online(self, drive: str, *, wait: bool = False) -> PoolStatus:
        """Bring a drive online; it catches up with what it missed."""
        return self._change("POST", "drives", drive, "online", wait=wait)

    def replace(
        self, drive: str, new: Path, *, wait: bool = False, force: bool = False, yes: bool = False
    ) -> PoolStatus:
        """Replace a drive, present or lost, and rebuild onto the new one.

        :param new: path of the new drive, or `id` of a spare
        :param force: overwrite it if it holds data
        :param yes: accept a smaller drive
        """
        document = {"with": os.fspath(new), "force": force, "yes": yes}
        return self._change("POST", "drives", drive, "replace", wait=wait, document=document)

    def retire(self, drive: str, *, wait: bool = False) -> PoolStatus:
        """Evacuate a drive to the others, and remove it."""
        return self._change("POST", "drives", drive, "retire", wait=wait)

    def scrub(self, *, wait: bool = False, check_only: bool = False) -> PoolStatus:
        """Request a scrub: every stripe is read, compared and, unless `check_only`, repaired.

        Data loss that it finds is a `DaemonError` if `wait` is set.
        """
        return self._change("POST", "scrub", wait=wait, query={"check_only": check_only})

    def rebalance(self, *, wait: bool = False) -> PoolStatus:
        """Spread the volumes over all data drives."""
        return self._change("POST", "rebalance", wait=wait)

    def wait(self, job: str) -> PoolStatus:
        """Wait until no job of this kind is left: rebuild, scrub, convert, destage or rebalance."""
        return self._change("POST", "wait", query={"job": job})

    def follow(self, job: str) -> Iterator[Dict[str, Any]]:
        """Follow the jobs of a kind: `progress` every second, and `done` at last."""
        return self.daemon._client.events(path_of("pools", self.name, "jobs", job, "events"))

    def events(self, last: Optional[int] = None) -> List[Event]:
        """The recorded events, oldest first.

        :param last: the newest ones only
        """
        return cast("List[Event]", self._ask("GET", "events", query={"last": last})["events"])

    def iostat(self, *, seconds: int = 1, count: int = 1) -> List[Dict[str, Any]]:
        """Measure the load of drives and volumes.

        :param seconds: length of an interval
        :param count: number of intervals
        """
        query = {"seconds": seconds, "count": count}
        return cast(
            "List[Dict[str, Any]]", self._ask("GET", "iostat", query=query, waits=True)["intervals"]
        )

    def settings(self) -> Dict[str, str]:
        """The settings by name, as `pool set` takes them."""
        return {setting["key"]: setting["value"] for setting in self._ask("GET", "settings")["settings"]}

    def set(self, **settings: Union[str, int]) -> PoolStatus:
        """Change settings, as in `set(rebuild_priority="low", space_warning=80)`."""
        return self._change("PATCH", document=settings)

    def clear(self, drive: Optional[str] = None) -> PoolStatus:
        """Reset error counters, of one drive or of all."""
        return self._change("POST", "clear", query={"drive": drive})

    def rename(self, name: str) -> Pool:
        """Rename the pool, and return it under its new name."""
        self._change("POST", "rename", document={"name": name})
        return Pool(name, self.daemon)

    def export(self) -> None:
        """Close and unregister the pool, so that its drives can be used on another host."""
        self._ask("POST", "export", waits=True)

    def destroy(self, *, yes: bool = False, wipe: bool = False) -> None:
        """Destroy the pool with all its volumes.

        :param yes: confirms it
        :param wipe: make the pool impossible to bring back
        """
        self._ask("DELETE", query={"yes": yes, "wipe": wipe}, waits=True)


class Volume:
    """A volume of a pool.

    :param name: name within the pool
    :param pool: the pool
    """

    def __init__(self, name: str, pool: Pool) -> None:
        self.name = name
        self.pool = pool

    def __repr__(self) -> str:
        return f"<stripewise.Volume {self.pool.name}/{self.name} of {self.pool.daemon.address}>"

    def _ask(self, method: str, **options: Any) -> Dict[str, Any]:
        return self.pool._ask(method, "volumes", self.name, **options)

    def _change(self, change: Dict[str, Any], wait: bool = False) -> VolumeStatus:
        answer = self._ask("PATCH", document=change, query={"wait": wait}, waits=True)
        return cast(VolumeStatus, answer["volumes"][0])

    @property
    def _bytes(self) -> str:
        return path_of("pools", self.pool.name, "volumes", self.name, "bytes")

    def status(self) -> VolumeStatus:
        """The status of the volume."""
        return cast(VolumeStatus, self._ask("GET")["volumes"][0])

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes.

        :param offset: first byte
        :param length: number of bytes; more than 16 MiB take several requests
        """
        into = bytearray(length)
        self.read_into(offset, into)
        return bytes(into)

    def read_into(self, offset: int, buffer: Any) -> None:
        """Read bytes into writable contiguous memory, such as a `bytearray` or a NumPy array."""
        for at, piece in _pieces(buffer, writable=True):
            query = {"offset": offset + at, "length": len(piece)}
            found = self.pool.daemon._client.request("GET", self._bytes, query=query)
            if len(found) != len(piece):
                raise RequestError(
                    f"{len(found)} of {len(piece)} bytes are there at {offset + at}",
                    "status() has the size",
                )
            piece[:] = found

    def write(self, offset: int, data: Any) -> int:
        """Write bytes; they are durable when this returns.

        :param offset: first byte
        :param data: contiguous memory; more than 16 MiB take several requests
        :return: number of bytes written
        """
        written = 0
        for at, piece in _pieces(data, writable=False):
            query = {"offset": offset + at}
            self.pool.daemon._client.document("PUT", self._bytes, query=query, content=piece)
            written += len(piece)
        return written

    def resize(self, size: Size) -> VolumeStatus:
        """Change the usable size. A smaller size that cuts off data is refused."""
        return self._change({"size_bytes": size_bytes("size", size)})

    def convert(
        self,
        layout: Optional[str] = None,
        *,
        columns: Optional[int] = None,
        groups: Optional[int] = None,
        interleave: Optional[Size] = None,
        slices: Optional[int] = None,
        wait: bool = False,
        yes: bool = False,
    ) -> VolumeStatus:
        """Convert to another layout while the volume is in use.

        :param wait: return when it is done
        :param yes: accept a layout that survives the loss of fewer drives
        """
        layouts = {
            "layout": layout,
            "columns": columns,
            "groups": groups,
            "interleave_bytes": optional_bytes("interleave", interleave),
            "slices": slices,
            "yes": yes,
        }
        change = {name: value for name, value in layouts.items() if value is not None}
        return self._change({"convert": change}, wait)

    def cancel_conversion(self) -> VolumeStatus:
        """Cancel the conversion, and return to the previous layout."""
        return self._change({"cancel_conversion": True})

    def pin(self, tier: str, *, wait: bool = False) -> VolumeStatus:
        """Keep the volume on a tier: fast, slow or none."""
        return self._change({"pin": tier}, wait)

    def delete(self, *, yes: bool = False) -> None:
        """Delete the volume with its data.

        :param yes: confirms it
        """
        self._ask("DELETE", query={"yes": yes}, waits=True)


def _paths(drives: Iterable[Path]) -> List[str]:
    if isinstance(drives, (str, bytes)):
        raise TypeError("drives are a list of paths, not one text")
    return [os.fspath(drive) for drive in drives]


def _pieces(buffer: Any, *, writable: bool) -> Iterator["tuple[int, memoryview]"]:
    """Pieces of contiguous memory, each with its offset."""
    whole = memoryview(buffer)
    if not whole.c_contiguous or (writable and whole.readonly):
        raise RequestError("the memory is not contiguous, or cannot be written", "pass a bytearray")
    if whole.nbytes == 0:
        return
    whole = whole.cast("B")
    for at in range(0, len(whole), _PIECE_BYTES):
        yield at, whole[at : at + _PIECE_BYTES]
