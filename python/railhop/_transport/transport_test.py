"""The plugin's calls one by one, and collectives in NumPy, over the fabric and over loopback."""

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from railhop import _transport as transport
from railhop._transport.collectives import Collectives
from railhop._transport.group import FolderStore, Group, open_plugin
from railhop._transport.numpy_arrays import NumpyArrays
from railhop.testing.fabric import Fabric

LIBRARY = pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).resolve().parent
LOOPBACK = str(pathlib.Path(os.environ["RAILHOP_TEST_LOOPBACK"]).resolve())
PLUGIN = str(pathlib.Path(os.environ["RAILHOP_TEST_PLUGIN"]).resolve())


def connected(plugin: transport.Plugin) -> tuple[transport.Connection, transport.Connection]:
    """A process's connection with itself."""
    listener = plugin.listen(0)
    accepted: list[transport.Connection] = []
    thread = threading.Thread(target=lambda: accepted.append(listener.accept(60)))
    thread.start()
    sends = plugin.connect(0, listener.handle, timeout_s=60)
    thread.join()
    listener.close()
    return sends, accepted[0]


@pytest.mark.parametrize("version", [0, 6, 8, 9, 10, 11, 12])
def test_bytes_go_over_every_version(version: int) -> None:
    plugin = transport.Plugin(LOOPBACK, version)
    assert plugin.name == "Loopback"
    assert version in (0, plugin.version)
    assert len(plugin.devices()) == 4
    sends, receives = connected(plugin)
    assert sends.sends
    assert not receives.sends
    into = bytearray(5)
    received = receives.register(into).post()
    sent = sends.register(b"hello").post()
    assert received.wait(60) == 5
    sent.wait(60)
    assert into == b"hello"
    plugin.close()


def test_closed_plugin_says_so() -> None:
    plugin = transport.Plugin(LOOPBACK)
    plugin.close()
    plugin.close()
    with pytest.raises(transport.ClosedError, match="closed"):
        plugin.devices()


def test_missing_plugin_is_named() -> None:
    with pytest.raises(transport.PluginLoadError, match=r"/no/such/plugin\.so"):
        transport.Plugin("/no/such/plugin.so")


def test_without_a_device_the_way_out_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAILHOP_FABRIC", raising=False)
    with pytest.raises(transport.PluginLoadError, match=r"railhop run --fabric \S+ -- CMD") as told:
        open_plugin(PLUGIN, devices=tmp_path / "none")
    assert str(told.value).startswith("no RDMA device and no fabric here: ")
    assert "\n" not in str(told.value)
    # Where there is one, something else is wrong.
    (tmp_path / "mlx5_0").mkdir()
    with pytest.raises(transport.PluginLoadError) as told:
        open_plugin(PLUGIN, devices=tmp_path)
    assert "railhop run" not in str(told.value)


def test_nobody_connects() -> None:
    plugin = transport.Plugin(LOOPBACK)
    listener = plugin.listen()
    with pytest.raises(transport.TransportTimeoutError):
        listener.accept(timeout_s=0.05)
    with pytest.raises(TimeoutError):
        listener.accept(timeout_s=0.05)
    plugin.close()


def test_read_only_memory_receives_nothing() -> None:
    plugin = transport.Plugin(LOOPBACK)
    _, receives = connected(plugin)
    with pytest.raises(BufferError):
        receives.register(b"constant")
    memory = receives.register(bytearray(8))
    with pytest.raises(transport.MismatchError, match="bytes 4 to 12 of a memory of 8"):
        memory.post(offset=4, size=8)
    plugin.close()


def test_objects_may_go_in_any_order() -> None:
    plugin = transport.Plugin(LOOPBACK)
    sends, receives = connected(plugin)
    kept = receives.register(bytearray(8)).post()
    plugin.close()
    del sends, receives, plugin
    gc.collect()
    with pytest.raises(transport.TransportError):
        kept.test()


def ranks(folder: pathlib.Path, size: int, plugin: str, work: Callable[[Group], Any]) -> list[Any]:
    """Runs `work` in a thread for each rank; their results, or the first exception."""
    results: list[Any] = [None] * size
    problems: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            group = Group(rank, size, FolderStore(str(folder)), plugin=plugin, timeout_s=60)
            try:
                results[rank] = work(group)
            finally:
                group.close(30.0)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return results


def all_of_them(group: Group) -> dict[str, Any]:
    """Every collective once, small and large."""
    talk = Collectives(group, NumpyArrays())
    rank, size = group.rank, group.size
    result: dict[str, Any] = {}
    array: Any
    for count in (0, 1, 7, 50_001):
        array = numpy.arange(count, dtype=numpy.float64) + rank
        talk.all_reduce(array, "sum")
        result[f"sum{count}"] = array
        array = numpy.arange(count, dtype=numpy.int32) * (rank + 1)
        talk.all_reduce(array, "max")
        result[f"max{count}"] = array
        array = numpy.full(count, rank + 1.0, numpy.float32)
        talk.broadcast(array, size - 1)
        result[f"broadcast{count}"] = array
        outs = [numpy.empty(count, numpy.int64) for _ in range(size)]
        talk.all_gather(outs, numpy.full(count, rank, numpy.int64))
        result[f"gathered{count}"] = numpy.concatenate(outs)
        out = numpy.empty(count, numpy.float32)
        talk.reduce_scatter(
            out, [numpy.full(count, to + rank, numpy.float32) for to in range(size)], "avg"
        )
        result[f"scattered{count}"] = out
        talk.all_to_all(outs, [numpy.full(count, 10 * rank + to) for to in range(size)])
        result[f"swapped{count}"] = numpy.concatenate(outs)
        array = numpy.full(count, rank + 1.0)
        talk.reduce(array, 0, "product")
        result[f"product{count}"] = array
        talk.barrier()
    return result


def check_all(results: list[dict[str, Any]]) -> None:
    size = len(results)
    total = sum(range(size))
    for rank, result in enumerate(results):
        for count in (0, 1, 7, 50_001):
            base = numpy.arange(count)
            numpy.testing.assert_array_equal(result[f"sum{count}"], base * size + total)
            numpy.testing.assert_array_equal(result[f"max{count}"], base * size)
            assert (result[f"broadcast{count}"] == size).all()
            expected = numpy.repeat(numpy.arange(size), count)
            numpy.testing.assert_array_equal(result[f"gathered{count}"], expected)
            assert (result[f"scattered{count}"] == rank + total / size).all()
            expected = numpy.repeat([10 * peer + rank for peer in range(size)], count)
            numpy.testing.assert_array_equal(result[f"swapped{count}"], expected)
            product = numpy.prod(numpy.arange(1.0, size + 1)) if rank == 0 else rank + 1
            assert (result[f"product{count}"] == product).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_collectives_over_loopback(tmp_path: pathlib.Path, size: int) -> None:
    check_all(ranks(tmp_path, size, LOOPBACK, all_of_them))


def test_ranks_that_call_different_things_are_told(tmp_path: pathlib.Path) -> None:
    def work(group: Group) -> None:
        talk = Collectives(group, NumpyArrays())
        if group.rank == 0:
            talk.all_reduce(numpy.ones(4), "sum")
        else:
            talk.broadcast(numpy.ones(4), 0)

    with pytest.raises(transport.TransportError) as caught:
        ranks(tmp_path, 2, LOOPBACK, work)
    text = str(caught.value)
    assert "all_reduce" in text
    assert "broadcast" in text or "closed its group" in text


def test_rank_that_leaves_is_named(tmp_path: pathlib.Path) -> None:
    def work(group: Group) -> None:
        if group.rank == 0:
            Collectives(group, NumpyArrays()).barrier()

    with pytest.raises(transport.PeerError, match="barrier: rank 1 has closed its group"):
        ranks(tmp_path, 2, LOOPBACK, work)


def test_store_that_nobody_fills(tmp_path: pathlib.Path) -> None:
    with pytest.raises(transport.TransportTimeoutError, match="devices/1"):
        Group(0, 2, FolderStore(str(tmp_path), 0.1), plugin=LOOPBACK)


PROGRAM = """
import pickle, sys
sys.path[:0] = {path!r}
from railhop._transport.group import FolderStore, Group
import transport_test
store = FolderStore(sys.argv[2])
group = Group(int(sys.argv[1]), 2, store, plugin=transport_test.PLUGIN, timeout_s=60)
assert group.lanes == 4
result = transport_test.all_of_them(group)
carried = [row["sent_bytes"] for row in group.report()]
group.close(30.0)
pickle.dump((result, carried), open(sys.argv[2] + "/result" + sys.argv[1], "wb"))
"""


def test_collectives_between_hosts_of_the_fabric(tmp_path: pathlib.Path) -> None:
    import pickle  # noqa: PLC0415

    here = str(pathlib.Path(__file__).parent)
    program = PROGRAM.format(path=[here, *sys.path])
    topology = "testdata/topologies/two-hosts-4nic.topology"
    with Fabric(topology, library_dir=LIBRARY) as fabric:
        hosts = ["alpha", "beta"]
        processes = [
            fabric.popen([sys.executable, "-c", program, str(rank), str(tmp_path)], host=host)
            for rank, host in enumerate(hosts)
        ]
        outputs = [process.communicate(timeout=300)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
        assert sum(one["queue_pairs"] for one in fabric.snapshot()["processes"]) == 0
    results = []
    for rank in range(2):
        result, carried = pickle.loads((tmp_path / f"result{rank}").read_bytes())
        results.append(result)
        assert len(carried) == 4
        assert min(carried) > 0
    check_all(results)


def test_import_needs_no_torch() -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; import railhop._transport.collectives; "
    code += "assert not [name for name in sys.modules if name.split('.')[0] == 'torch']"
    subprocess.run([sys.executable, "-c", code], check=True)
