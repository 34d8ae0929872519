"""A process's place in a group: finds the others through a store and connects with all of them."""

from __future__ import annotations

import itertools
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any, Optional, Protocol

from railhop._transport.errors import (
    MismatchError,
    PluginLoadError,
    TransportError,
    TransportTimeoutError,
)
from railhop._transport.native import Messenger, Operation, Plugin

# What ranks call, in messages of a mismatch. Order is the number that travels.
KINDS = (
    "send or recv",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)

# Connections of each pair and direction: more than the devices of any topology here gain nothing.
_LANES_MAX = 16
# Where the kernel lists RDMA devices.
_DEVICES = pathlib.Path("/sys/class/infiniband")


class Store(Protocol):
    """What the c10d stores have; `get` waits until the key is there."""

    def set(self, key: str, value: Any) -> None: ...
    def get(self, key: str) -> bytes: ...


class FolderStore:
    """A store in a folder that all processes see: for programs without torch."""

    def __init__(self, folder: str, timeout_s: float = 60.0) -> None:
        self._folder = pathlib.Path(folder)
        self._timeout_s = timeout_s

    def set(self, key: str, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        path = self._folder / key.replace("/", ".")
        staged = path.with_name(f"{path.name}.new{os.getpid()}")
        staged.write_bytes(data)
        staged.replace(path)

    def get(self, key: str) -> bytes:
        path = self._folder / key.replace("/", ".")
        deadline = time.monotonic() + self._timeout_s
        while not path.exists():
            if time.monotonic() > deadline:
                raise TransportTimeoutError(f"nobody has set {key} within {self._timeout_s:g} s")
            time.sleep(0.005)
        return path.read_bytes()


def plugin_file() -> str:
    """The plugin to drive: NCCL_NET_PLUGIN if it is a file, else the one of this package."""
    chosen = os.environ.get("NCCL_NET_PLUGIN", "")
    if "/" in chosen:
        return chosen
    from railhop import paths  # noqa: PLC0415 (it looks at the file system)

    return str(paths.plugin_path())


def open_plugin(path: str, devices: pathlib.Path = _DEVICES) -> Plugin:
    """The plugin. Errors: PluginLoadError, with the way out where there is no RDMA device."""
    try:
        return Plugin(path)
    except PluginLoadError as error:
        real = devices.is_dir() and any(devices.iterdir())
        if "RAILHOP_FABRIC" in os.environ or real or not pathlib.Path(path).exists():
            raise
        more = PluginLoadError(
            "no RDMA device and no fabric here: start it with 'railhop run --fabric "
            f"two-hosts-4nic -- CMD' ('railhop fabric topology' lists more); {error}"
        )
        more.result = error.result
        raise more from None


def _device_names(path: str) -> list[str]:
    plugin = open_plugin(path)
    try:
        return [device.name for device in plugin.devices()]
    finally:
        plugin.close()


class Group:
    """Connected with every other rank. `send` and `receive` are of any thread."""

    def __init__(
        self,
        rank: int,
        size: int,
        store: Store,
        *,
        plugin: Optional[str] = None,
        timeout_s: float = 1800.0,
        connect_timeout_s: float = 120.0,
    ) -> None:
        """Connects with all others, which make theirs at the same time.

        Args:
          rank: of this process, from 0.
          size: of the group.
          store: all ranks see the same, and no other group does.
          plugin: file of the net plugin; `plugin_file()` if not given.
          timeout_s: how long one operation may take.
          connect_timeout_s: how long all this may take.
        """
        self.rank = rank
        self.size = size
        self.timeout_s = timeout_s
        self.plugin = plugin or plugin_file()
        self.busy_ns = 0  # in waits, of all threads
        self.devices: list[str] = []
        self._numbers = itertools.count()
        self.messenger: Optional[Messenger] = None
        if size == 1:
            return
        self.lanes = self._agree_on_lanes(store)
        messenger = Messenger(self.plugin, rank, size, self.lanes, KINDS)
        try:
            self._connect(messenger, store, connect_timeout_s)
        except BaseException:
            messenger.close(0.0)
            raise
        self.messenger = messenger

    def _agree_on_lanes(self, store: Store) -> int:
        """As many as the rank with most devices has: each uses its own in turn."""
        self.devices = _device_names(self.plugin)
        store.set(f"devices/{self.rank}", str(len(self.devices)))
        counts = [int(store.get(f"devices/{peer}")) for peer in range(self.size)]
        return min(max(counts), _LANES_MAX)

    def _connect(self, messenger: Messenger, store: Store, timeout_s: float) -> None:
        others = [peer for peer in range(self.size) if peer != self.rank]
        for peer in others:
            store.set(f"handles/{self.rank}/{peer}", messenger.listen(peer).hex())
        handles = [b""] * self.size
        for peer in others:
            handles[peer] = bytes.fromhex(store.get(f"handles/{peer}/{self.rank}").decode())
        if not messenger.connect(handles, timeout_s):
            raise TransportTimeoutError(
                f"rank {self.rank} is not connected with all of {self.size} ranks "
                f"after {timeout_s:g} s"
            )

    def next_tag(self) -> int:
        """The tag of the next collective, which every rank calls in the same order."""
        return 1 << 63 | next(self._numbers) << 8

    def open_plugin(self) -> Messenger:
        if self.messenger is None:
            raise MismatchError("a group of one rank has nobody to talk to")
        return self.messenger

    def send(self, peer: int, kind: int, tag: int, memory: tuple[int, int, Any]) -> Operation:
        """Memory: address, bytes, and the object that keeps them."""
        address, size, owner = memory
        return self.open_plugin().send(peer, kind, tag, address, size, owner)

    def receive(self, peer: int, kind: int, tag: int, memory: tuple[int, int, Any]) -> Operation:
        """From `peer`, or from anyone if it is -1."""
        address, size, owner = memory
        return self.open_plugin().receive(peer, kind, tag, address, size, owner)

    def wait(
        self,
        operations: Sequence[tuple[int, Operation]],
        what: str,
        timeout_s: Optional[float] = None,
    ) -> None:
        """Until all (peer, operation) are done; if one fails, the others are cancelled."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        start = time.monotonic()
        deadline = start + limit
        try:
            for peer, operation in operations:
                if not operation.wait(max(deadline - time.monotonic(), 0.001)):
                    raise TransportTimeoutError(
                        f"{what}: rank {self.rank} has waited {limit:g} s for rank {peer}; "
                        "is it alive, and did it call the same?"
                    )
        except TransportError as error:
            if isinstance(error, TransportTimeoutError):
                raise
            again = type(error)(f"{what}: {error}")
            again.result = error.result
            raise again from None
        finally:
            for _, operation in operations:
                operation.cancel()
            self.busy_ns += int((time.monotonic() - start) * 1e9)

    def report(self) -> list[dict[str, int]]:
        """Bytes by peer, lane and device."""
        return self.messenger.report() if self.messenger is not None else []

    def dips(self) -> list[tuple[int, int]]:
        """When bytes were under way and none moved: (begin_unix_ns, end_unix_ns), oldest first."""
        return self.messenger.dips() if self.messenger is not None else []

    def close(self, goodbye_s: float = 2.0) -> None:
        """Waits a little for the others to close too. May be repeated."""
        if self.messenger is not None:
            self.messenger.close(goodbye_s)
