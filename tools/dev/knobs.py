"""Which test proves which option: the table, its page and the check that both hold.

Every row of the option table (cc/config/option_table.cc) has at least one test here, each named
test exists, and docs/reference/knob-tests.md is what this prints:

  .venv/bin/python3 -m tools.dev.knobs > docs/reference/knob-tests.md
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

PAGE = "docs/reference/knob-tests.md"
OPTION_TABLE = "cc/config/option_table.cc"

_OPTIONS = "cc/config/options_test.cc"
_VALUES = "cc/config/nccl_values_test.cc"
_TABLE = "cc/runtime/device_table_test.cc"
_GID = "cc/runtime/gid_choice_test.cc"
_BRIDGE = "cc/runtime/transport_options_test.cc"
_LIFE = "cc/runtime/lifetime_fabric_test.cc"
_SHAKE = "cc/runtime/handshake_fabric_test.cc"
_SOCKETS = "cc/control/socket_address_test.cc"
_DEVICES = "integration/plugin/devices_test.py"
_KNOBS = "integration/plugin/knobs_test.py"
_ADMIN = "integration/failover/admin_test.py"

_READ = f"{_OPTIONS} OptionTable.EveryIntegerOfNccl_IsReadIntoItsField"
_TEXT = f"{_OPTIONS} Options.NcclText_KeptAsItIs"
_OWN = f"{_OPTIONS} Options.OwnValues_ReachTheirFields"
_BAD = f"{_OPTIONS} Options.OwnValues_CheckedAndWarnedOf"
_NAMED = f"{_OPTIONS} Options.KnobThatRailhopDoesNotUse_IsNamed"
_DATA = f"{_BRIDGE} TransportOptions.EveryKnobOfTheDataPath_ReachesItsField"
_SOCKET = f"{_BRIDGE} TransportOptions.EveryKnobOfTheSockets_ReachesItsField"
# NCCL's core acts on these: Railhop owes it truthful properties.
_TRUTH = f"{_TABLE} DeviceTable.PlainDevice_PropertiesAreTruthful"
_SHOWN = f"{_OPTIONS} OptionReport.NamesEverySetOptionAndItsSource"

# Option -> tests as "file Suite.Test" (C++) or "file function" (Python), the most telling first.
KNOBS: dict[str, tuple[str, ...]] = {
    "NCCL_NET_PLUGIN": (f"{_DEVICES} test_every_version_shows_the_same_devices", _SHOWN),
    "NCCL_NET": (f"{_DEVICES} test_net_name", _SHOWN),
    "NCCL_NET_PLUGIN_REF_COUNT": (
        "cc/plugin/tables_test.cc LegacyLife.LastClose_StopsAndKeepsTheDevices",
        "cc/plugin/boundary_test.cc BoundaryTest.FinalizeOfEachContext_StopsWithTheLast",
    ),
    "NCCL_IB_DISABLE": (f"{_DEVICES} test_cannot_serve_says_why_in_one_warning", _READ),
    "NCCL_IB_HCA": (
        f"{_VALUES} NameFilter.EveryRule_AsNcclIbHca",
        f"{_TABLE} DeviceTable.HcaFilter_SelectsPorts",
        f"{_TABLE} DeviceTable.HcaFilter_GivesRailAndPlane",
        f"{_DEVICES} test_hca_filter",
    ),
    "NCCL_IB_DEVICE_PCI_ORDER": (
        f"{_TABLE} DeviceTable.PciOrder_NumbersByAddress",
        f"{_DEVICES} test_flat_four_nics_are_shown_in_pci_order",
    ),
    "NCCL_IB_MERGE_VFS": (f"{_TABLE} DeviceTable.MergeVfs_CountsPortsOfOneCard",),
    "NCCL_IB_MERGE_NICS": (
        f"{_KNOBS} test_fused_devices_use_every_part",
        f"{_TABLE} Fuse.MergeNicsOff_RefusesMoreThanOne",
    ),
    "NCCL_IB_QUERY_PORT_SPEED": (f"{_TABLE} DeviceTable.Speed_AskedOrFromTheTables",),
    "NCCL_IB_WARN_RAIL_LOCAL": (_NAMED,),
    "NCCL_IB_DATA_DIRECT": (_NAMED,),
    "NCCL_NET_MERGE_LEVEL": (_TRUTH,),
    "NCCL_NET_FORCE_MERGE": (f"{_TABLE} Fuse.UpToEight_SumsAndNames", _TRUTH),
    "NCCL_NET_MERGE_POLICY": (f"{_TABLE} Fuse.RailAndPlane_OfTheParts",),
    "NCCL_CROSS_NIC": (_TRUTH,),
    "NCCL_NETDEVS_POLICY": (_TRUTH,),
    "NCCL_IGNORE_NET_MISMATCH": (_TRUTH,),
    "NCCL_PXN_DISABLE": (_TRUTH,),
    "NCCL_NET_GDR_LEVEL": (f"{_TABLE} DeviceTable.PointerSupport_AsProbed",),
    "NCCL_NET_GDR_READ": (f"{_TABLE} DeviceTable.PointerSupport_AsProbed",),
    "NCCL_NET_GDR_C2C": (f"{_TABLE} DeviceTable.PointerSupport_AsProbed",),
    "NCCL_DMABUF_ENABLE": (f"{_TABLE} DeviceTable.PointerSupport_AsProbed",),
    "NCCL_NET_FORCE_FLUSH": (_TRUTH,),
    "NCCL_NET_SHARED_COMMS": (_TRUTH,),
    "NCCL_IB_GID_INDEX": (
        f"{_KNOBS} test_gid_index",
        f"{_GID} GidChoice.Pinned_UsedUncheckedWithItsDoubt",
    ),
    "NCCL_IB_ROUTABLE_FLID_GID_INDEX": (
        f"{_GID} GidChoice.InfiniBand_RoutableIdOrEntry0",
        f"{_TABLE} DeviceTable.InfiniBand_RoutableIdKnob",
    ),
    "NCCL_IB_ROCE_VERSION_NUM": (
        f"{_GID} GidChoice.EveryRule_OnTables",
        f"{_DEVICES} test_gid_knobs",
    ),
    "NCCL_IB_ADDR_FAMILY": (
        f"{_GID} GidChoice.EveryRule_OnTables",
        f"{_DEVICES} test_gid_knobs",
    ),
    "NCCL_IB_ADDR_RANGE": (
        f"{_VALUES} AddressRange.EveryRule_AsNcclIbAddrRange",
        f"{_DEVICES} test_gid_knobs",
        f"{_GID} GidChoice.BadRange_IsIgnoredAndSaid",
    ),
    "NCCL_IB_PKEY": (
        f"{_KNOBS} test_pkey",
        f"{_DEVICES} test_pkey_index_that_a_port_does_not_have_is_named",
    ),
    "NCCL_IB_SUBNET_AWARE_ROUTING": (_NAMED,),
    "NCCL_IB_SUBNET_PREFIX_LEN": (_NAMED,),
    "NCCL_IB_SL": (f"{_KNOBS} test_sl_and_tc", _DATA),
    "NCCL_IB_TC": (
        f"{_KNOBS} test_sl_and_tc",
        f"{_KNOBS} test_traffic_class_of_the_communicator",
        _DATA,
    ),
    "NCCL_IB_FIFO_TC": (f"{_KNOBS} test_fifo_tc_is_for_the_receiving_end", _DATA),
    "NCCL_IB_TIMEOUT": (f"{_KNOBS} test_timeout", _DATA),
    "NCCL_IB_RETRY_CNT": (f"{_KNOBS} test_retry_cnt", _DATA),
    "NCCL_IB_MQP_RETRY_ALL": (f"{_KNOBS} test_mqp_retry", _DATA),
    "NCCL_IB_MQP_RETRY_CNT": (f"{_KNOBS} test_mqp_retry", _DATA),
    "NCCL_IB_MQP_RETRY_SLEEP_MSEC": (f"{_KNOBS} test_mqp_retry_sleep_grows", _DATA),
    "NCCL_IB_RETURN_ASYNC_EVENTS": (
        f"{_LIFE} Events.DeviceFatal_ItsConnectionsEndOthersGoOn",
        _DATA,
    ),
    "NCCL_IB_QPS_PER_CONNECTION": (f"{_KNOBS} test_qps_per_connection", _DATA),
    "NCCL_IB_SPLIT_DATA_ON_QPS": (f"{_KNOBS} test_split_data_on_qps", _DATA),
    "NCCL_IB_ADAPTIVE_ROUTING": (f"{_KNOBS} test_adaptive_routing_and_its_threshold", _DATA),
    "NCCL_IB_AR_THRESHOLD": (f"{_KNOBS} test_adaptive_routing_and_its_threshold", _DATA),
    "NCCL_IB_OOO_RQ": (f"{_DEVICES} test_what_cannot_apply_is_named", _NAMED),
    "NCCL_IB_USE_INLINE": (f"{_KNOBS} test_use_inline", _DATA),
    "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS": (_NAMED,),
    "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME": (_NAMED,),
    "NCCL_IB_ECE_ENABLE": (f"{_KNOBS} test_ece_enable", _DATA),
    "NCCL_IB_PCI_RELAXED_ORDERING": (
        f"{_KNOBS} test_pci_relaxed_ordering",
        f"{_TABLE} DeviceTable.RelaxedOrdering_WantedAndPossible",
    ),
    "NCCL_GDR_FLUSH_DISABLE": (f"{_LIFE} Flush.SwitchedOff_NoRequest", _DATA),
    "NCCL_SOCKET_IFNAME": (
        f"{_SOCKETS} InterfaceFilter.NcclsGrammar_Matches",
        f"{_SOCKETS} ChooseInterface.Filter_FirstMatchOnly",
        f"{_SOCKETS} ChooseInterface.NoFilter_NcclsOrder",
        f"{_DEVICES} test_cannot_serve_says_why_in_one_warning",
        f"{_BRIDGE} TransportOptions.IfnameOfOneCharacter_IgnoredAndNamed",
    ),
    "NCCL_SOCKET_FAMILY": (
        f"{_DEVICES} test_cannot_serve_says_why_in_one_warning",
        f"{_VALUES} AddressFamily.OtherText_IsTheDefault",
        _SOCKET,
    ),
    "NCCL_COMM_ID": (f"{_SOCKETS} ChooseInterface.NoFilter_NcclsOrder", _SOCKET, _TEXT),
    "NCCL_SOCKET_RETRY_CNT": (f"{_SHAKE} HandshakeTest.NobodyListens_TriedAgainThenTold", _SOCKET),
    "NCCL_SOCKET_RETRY_SLEEP_MSEC": (
        f"{_SHAKE} HandshakeTest.NobodyListens_TriedAgainThenTold",
        _SOCKET,
    ),
    "NCCL_SOCKET_POLL_TIMEOUT_MSEC": (_NAMED,),
    "NCCL_SOCKET_RCVBUF": (f"{_KNOBS} test_socket_buffers", _SOCKET),
    "NCCL_SOCKET_SNDBUF": (f"{_KNOBS} test_socket_buffers", _SOCKET),
    "NCCL_SOCKET_MAGIC": (_NAMED, f"{_VALUES} SocketMagic.WholeNumberOnly"),
    "NCCL_IB_RESILIENCY_PORT_FAILOVER": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_START_DELAY": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT": (_NAMED,),
    "NCCL_IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX": (_NAMED,),
    "RAILHOP_NET_NAME": (f"{_DEVICES} test_net_name", _BAD),
    "RAILHOP_VERBS_LIBRARY": (
        f"{_KNOBS} test_defaults_are_nccls",
        f"{_DEVICES} test_cannot_serve_says_why_in_one_warning",
    ),
    "RAILHOP_LOG": (f"{_DEVICES} test_log_threshold", _BAD),
    "RAILHOP_FAILOVER": (_NAMED, _BAD),
    "RAILHOP_CONFIRM_RECEIVES": (_NAMED, _OWN, _BAD),
    "RAILHOP_STALL_THRESHOLD": (_NAMED, _OWN, _BAD),
    "RAILHOP_PROBE_INTERVAL": (_NAMED, _OWN, _BAD),
    "RAILHOP_GIVE_UP_TIME": (_NAMED, _OWN, _BAD),
    "RAILHOP_HOLD_DOWN": (_NAMED, _OWN, _BAD),
    "RAILHOP_HOLD_DOWN_MAX": (_NAMED, _OWN),
    "RAILHOP_PORT_POLL_INTERVAL": (
        f"{_DEVICES} test_port_down_at_start_joins_when_it_comes_up",
        _OWN,
    ),
    "RAILHOP_COVER": (
        "cc/runtime/cover_test.cc CoverTest.Limit_NearestOnly",
        "cc/runtime/transport_options_test.cc FailoverOptions.Cover_AllOrANumber",
        _OWN,
    ),
    "RAILHOP_ADMIN": (f"{_ADMIN} test_no_socket_where_none_is_wanted_or_can_be", _OWN, _BAD),
    "RAILHOP_ADMIN_DIR": (
        f"{_ADMIN} test_socket_files_are_private_and_the_stale_are_told",
        f"{_ADMIN} test_no_socket_where_none_is_wanted_or_can_be",
    ),
    "RAILHOP_JOB_ID": (f"{_ADMIN} test_health_shows_a_port_that_goes_down_and_comes_back",),
}

_ROW = re.compile(r'^\s+\{k\w+, "([A-Z_0-9]+)"', re.MULTILINE)
_CC_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)
_PY_TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)


def tests_in(path: str, text: str) -> set[str]:
    """Names of the tests in a file, as the table writes them."""
    if path.endswith(".py"):
        return set(_PY_TEST.findall(text))
    return {f"{suite}.{test}" for suite, test in _CC_TEST.findall(text)}


def options_in(table: str) -> list[str]:
    """Names of the options, in the table's order."""
    return _ROW.findall(table)


def page(options: Iterable[str]) -> str:
    """The page for the documentation."""
    lines = [
        "# Which test proves which option",
        "",
        "Made from the table in `tools/dev/knobs.py`, which `tools/dev/check` holds to the option",
        "table and to the tests; do not edit it by hand. What an option means: `environment.md`.",
        "",
        "A test in `integration/plugin/knobs_test.py` looks at what the built plugin does with its",
        "queue pairs over the software fabric, one in `devices_test.py` at the devices that it",
        "shows and what it logs; the others are unit tests. An option that Railhop does not use is",
        "proved to be named at start.",
        "",
        "| option | tests |",
        "| --- | --- |",
    ]
    for option in options:
        cells = []
        for test in KNOBS.get(option, ()):
            path, name = test.split()
            cells.append(f"`{name}` ({path})")
        lines.append(f"| `{option}` | {'; '.join(cells)} |")
    return "\n".join(lines) + "\n"


def check_tree(root: pathlib.Path) -> list[str]:
    """What is wrong, one sentence each."""
    options = options_in((root / OPTION_TABLE).read_text(encoding="utf-8"))
    found = [f"{OPTION_TABLE}: no test proves {name}" for name in options if name not in KNOBS]
    found += [f"tools/dev/knobs.py: no option {name}" for name in KNOBS if name not in options]
    for path in sorted({test.split()[0] for tests in KNOBS.values() for test in tests}):
        file = root / path
        there = tests_in(path, file.read_text(encoding="utf-8")) if file.exists() else set()
        named = {t.split()[1] for tests in KNOBS.values() for t in tests if t.split()[0] == path}
        found += [
            f"tools/dev/knobs.py: {path} has no test {name}" for name in sorted(named - there)
        ]
    text = (root / PAGE).read_text(encoding="utf-8") if (root / PAGE).exists() else ""
    if text != page(options):
        found.append(f"{PAGE}: run .venv/bin/python3 -m tools.dev.knobs > {PAGE}")
    return found


def main() -> None:
    root = pathlib.Path(__file__).resolve().parents[2]
    print(page(options_in((root / OPTION_TABLE).read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
