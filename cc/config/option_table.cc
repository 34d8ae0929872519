#include "cc/config/option_table.h"

#include <algorithm>
#include <iterator>

#include "cc/base/units.h"

namespace railhop::config {
namespace {

using T = OptionType;
using U = OptionUse;
using O = Options;

constexpr OptionField kShown{};  // no field: read by others, shown in the report
constexpr int64_t kMs = kNsPerMs;
constexpr int64_t kS = kNsPerSecond;

constexpr const char* kDevices = "Choosing the transport and the devices";
constexpr const char* kAddressing = "Addressing";
constexpr const char* kQos = "Quality of service";
constexpr const char* kReliability = "Reliability and timing";
constexpr const char* kData = "Data path";
constexpr const char* kControl = "Control channel (TCP)";
constexpr const char* kResilience = "NCCL's own resilience";
constexpr const char* kOurs = "Railhop's own";

constexpr const char* kOwnFailover =
    "Part of the failover inside NCCL's IB transport, which Railhop replaces with its own "
    "(RAILHOP_FAILOVER).";

// Sources of the NCCL_ rows: NCCL v2.30.7-1, src/transport/net_ib/*.cc,
// src/misc/{ibvwrap,socket}.cc; "since" is the first tag from v2.12 on whose source names it.
const OptionRow kTable[] = {
    // clang-format off
    {kDevices, "NCCL_NET_PLUGIN", T::kNcclText, U::kCore, kShown, "", "", "comma list", 0, 0, "NCCL 2.12", "",
     "Plugins to try, in this order: each as a library name, then as libnccl-net-NAME.so. `railhop` loads Railhop, "
     "`none` goes back to NCCL's own transports. Lists since NCCL 2.27."},
    {kDevices, "NCCL_NET", T::kNcclText, U::kCore, kShown, "", "", "name of a network", 0, 0, "NCCL 2.12", "",
     "Only a network of this name is used, in any case of letters. `IB` passes Railhop by: see RAILHOP_NET_NAME."},
    {kDevices, "NCCL_NET_PLUGIN_REF_COUNT", T::kNcclInt, U::kCore, kShown, "0", "", "", 0, 0, "NCCL 2.26", "",
     "At 0 references NCCL closes the library. Railhop ends its threads by then."},
    {kDevices, "NCCL_IB_DISABLE", T::kNcclInt, U::kApplied, &O::ib_disable, "0", "", "0 or 1", 0, 0, "NCCL 2.12", "",
     "1: do not use the RDMA devices; Railhop then refuses to start, as NCCL's IB transport does."},
    {kDevices, "NCCL_IB_HCA", T::kNcclText, U::kApplied, &O::ib_hca, "", "", "[^][=]name[:port[:rail[:plane]]],...", 0, 0,
     "NCCL 2.12", "",
     "Devices to use, by verbs name. Without `=` an item matches every name that begins with it; `^` in front of all means "
     "all but these; `=` before the `^` takes the `^` as part of a name. At most 32 items. Rail and plane come from lists "
     "without `^` only."},
    {kDevices, "NCCL_IB_DEVICE_PCI_ORDER", T::kNcclInt, U::kApplied, &O::ib_device_pci_order, "1", "", "0 or 1", 0, 0,
     "NCCL 2.29.7", "",
     "1: devices are numbered by PCI address, so that a number means the same rail on every node; devices without an "
     "address come last. 0: in the order of verbs."},
    {kDevices, "NCCL_IB_MERGE_VFS", T::kNcclInt, U::kApplied, &O::ib_merge_vfs, "1", "", "0 or 1", 0, 0, "NCCL 2.18", "",
     "1: virtual functions of one card count as one PCI device. 0: only the ports of one function do."},
    {kDevices, "NCCL_IB_MERGE_NICS", T::kNcclInt, U::kApplied, &O::ib_merge_nics, "1", "", "0 or 1", 0, 0, "NCCL 2.20", "",
     "0: devices are not fused into one."},
    {kDevices, "NCCL_IB_QUERY_PORT_SPEED", T::kNcclInt, U::kApplied, &O::ib_query_port_speed, "1", "", "0 or 1", 0, 0,
     "NCCL 2.30.7", "",
     "1: ask the device for its speed, where libibverbs can. 0: from width and speed code."},
    {kDevices, "NCCL_IB_WARN_RAIL_LOCAL", T::kNcclInt, U::kNotYet, &O::ib_warn_rail_local, "0", "", "0 or 1", 0, 0,
     "NCCL 2.24", "", "1: say so when the two ends of a connection use differently named devices."},
    {kDevices, "NCCL_IB_DATA_DIRECT", T::kNcclInt, U::kNotApplied, kShown, "1", "", "0, 1 or 2", 0, 0, "NCCL 2.27", "",
     "Railhop does not use mlx5's data-direct devices: such a card is driven through its ordinary device."},
    {kDevices, "NCCL_NET_MERGE_LEVEL", T::kNcclText, U::kCore, kShown, "PORT", "", "", 0, 0, "NCCL 2.24", "",
     "Distance up to which NCCL fuses devices."},
    {kDevices, "NCCL_NET_FORCE_MERGE", T::kNcclText, U::kCore, kShown, "", "", "a,b;c,d", 0, 0, "NCCL 2.24", "",
     "Devices that NCCL fuses, by exact name. Railhop's device names are those of verbs, so the lists stay valid."},
    {kDevices, "NCCL_NET_MERGE_POLICY", T::kNcclText, U::kCore, kShown, "ALL", "", "", 0, 0, "NCCL 2.30.7", "",
     "RAIL: fuse devices of one rail only (rails come from NCCL_IB_HCA)."},
    {kDevices, "NCCL_CROSS_NIC", T::kNcclInt, U::kCore, kShown, "2", "", "0, 1 or 2", 0, 0, "NCCL 2.12", "",
     "Whether rings may change NICs. 0 holds while nothing has failed: after a fault Railhop uses any NIC that works."},
    {kDevices, "NCCL_NETDEVS_POLICY", T::kNcclText, U::kCore, kShown, "AUTO", "", "", 0, 0, "NCCL 2.28", "",
     "How many devices a GPU uses."},
    {kDevices, "NCCL_IGNORE_NET_MISMATCH", T::kNcclInt, U::kCore, kShown, "1", "", "0 or 1", 0, 0, "NCCL 2.30.3", "",
     "Whether nodes may have different networks."},
    {kDevices, "NCCL_PXN_DISABLE", T::kNcclInt, U::kCore, kShown, "0", "", "0 or 1", 0, 0, "NCCL 2.12", "",
     "1: no relay through another GPU's NIC."},
    {kDevices, "NCCL_NET_GDR_LEVEL", T::kNcclText, U::kCore, kShown, "", "", "", 0, 0, "NCCL 2.12", "",
     "Distance up to which GPU memory is given to the NIC directly."},
    {kDevices, "NCCL_NET_GDR_READ", T::kNcclInt, U::kCore, kShown, "-2", "", "", 0, 0, "NCCL 2.12", "",
     "Whether sends read GPU memory directly."},
    {kDevices, "NCCL_NET_GDR_C2C", T::kNcclInt, U::kCore, kShown, "1", "", "0 or 1", 0, 0, "NCCL 2.26", "",
     "Whether direct access goes over the link between CPU and GPU."},
    {kDevices, "NCCL_DMABUF_ENABLE", T::kNcclInt, U::kCore, kShown, "1", "", "0 or 1", 0, 0, "NCCL 2.13", "",
     "Whether GPU memory is registered by DMA-BUF. Railhop offers it if the device can."},
    {kDevices, "NCCL_NET_FORCE_FLUSH", T::kNcclInt, U::kCore, kShown, "0", "", "0 or 1", 0, 0, "NCCL 2.15", "",
     "1: flush after receives also where it is not needed."},
    {kDevices, "NCCL_NET_SHARED_COMMS", T::kNcclInt, U::kCore, kShown, "1", "", "0 or 1", 0, 0, "NCCL 2.12", "",
     "Whether channels share connections."},

    {kAddressing, "NCCL_IB_GID_INDEX", T::kNcclInt, U::kApplied, &O::ib_gid_index, "-1", "", "-1, or an index", 0, 0,
     "NCCL 2.12", "",
     "RoCE. From 0 on: this index on every device, without a check. Below 0: chosen by family, range and RoCE version, "
     "link-local addresses last. No effect on InfiniBand ports."},
    {kAddressing, "NCCL_IB_ROUTABLE_FLID_GID_INDEX", T::kNcclInt, U::kApplied, &O::ib_routable_flid_gid_index, "1", "",
     "index", 0, 0, "NCCL 2.22", "",
     "InfiniBand. This GID is used if it carries a routing id (FLID), else that of index 0."},
    {kAddressing, "NCCL_IB_ROCE_VERSION_NUM", T::kNcclInt, U::kApplied, &O::ib_roce_version_num, "2", "", "1 or 2", 0, 0,
     "NCCL 2.21", "", "RoCE version that the choice of a GID wants."},
    {kAddressing, "NCCL_IB_ADDR_FAMILY", T::kNcclText, U::kApplied, &O::ib_addr_family, "", "", "AF_INET or AF_INET6", 0, 0,
     "NCCL 2.21", "",
     "Address family that the choice of a GID wants. Unset or any other text: AF_INET; on a fabric without an IPv4 "
     "address the best IPv6 one is then used."},
    {kAddressing, "NCCL_IB_ADDR_RANGE", T::kNcclText, U::kApplied, &O::ib_addr_range, "", "", "address/bits", 0, 0,
     "NCCL 2.21", "", "The choice of a GID takes addresses in this range only. Text without `/`, a bad address and too "
     "many bits are ignored, and said."},
    {kAddressing, "NCCL_IB_PKEY", T::kNcclInt, U::kApplied, &O::ib_pkey, "0", "", "index", 0, 0, "NCCL 2.12",
     "the same key at both ends", "Index into the P_Key table (not the key), the same on every device."},
    {kAddressing, "NCCL_IB_SUBNET_AWARE_ROUTING", T::kNcclInt, U::kNotApplied, &O::ib_subnet_aware_routing, "0", "", "0 or 1",
     0, 0, "NCCL 2.30.7", "",
     "Railhop proves each path by a probe before it uses it, and does not pick devices by subnet."},
    {kAddressing, "NCCL_IB_SUBNET_PREFIX_LEN", T::kNcclInt, U::kNotApplied, &O::ib_subnet_prefix_len, "24", "bits", "1 to 32",
     0, 0, "NCCL 2.30.7", "", "Goes with NCCL_IB_SUBNET_AWARE_ROUTING."},

    {kQos, "NCCL_IB_SL", T::kNcclInt, U::kApplied, &O::ib_sl, "-1", "", "0 to 15", 0, 0, "NCCL 2.12", "the sender's is used",
     "Service level. Below 0: the communicator's traffic class, else 0."},
    {kQos, "NCCL_IB_TC", T::kNcclInt, U::kApplied, &O::ib_tc, "-1", "", "0 to 255", 0, 0, "NCCL 2.12", "the sender's is used",
     "Traffic class, RoCE only. Below 0: the communicator's traffic class, else 0."},
    {kQos, "NCCL_IB_FIFO_TC", T::kNcclInt, U::kApplied, &O::ib_fifo_tc, "-1", "", "0 to 255", 0, 0, "NCCL 2.22", "",
     "Traffic class of the receiver's clear-to-send writes, RoCE only. Below 0: as NCCL_IB_TC."},

    {kReliability, "NCCL_IB_TIMEOUT", T::kNcclInt, U::kApplied, &O::ib_timeout, "20", "4.096 us x 2^n", "1 to 31; 0: none", 0,
     0, "NCCL 2.12", "", "How long a queue pair waits for an acknowledgement. 20 is about 4.3 s."},
    {kReliability, "NCCL_IB_RETRY_CNT", T::kNcclInt, U::kApplied, &O::ib_retry_cnt, "7", "", "0 to 7", 0, 0, "NCCL 2.12", "",
     "How often a queue pair tries again. Larger values are seen in the wild; the field has three bits, so 7 is used."},
    {kReliability, "NCCL_IB_MQP_RETRY_ALL", T::kNcclInt, U::kApplied, &O::ib_mqp_retry_all, "0", "", "0 or 1", 0, 0,
     "NCCL 2.24", "", "1: a change of a queue pair's state is tried again after any error. 0: after ETIMEDOUT."},
    {kReliability, "NCCL_IB_MQP_RETRY_CNT", T::kNcclInt, U::kApplied, &O::ib_mqp_retry_cnt, "34", "", "", 0, 0, "NCCL 2.24",
     "", "How often it is tried again."},
    {kReliability, "NCCL_IB_MQP_RETRY_SLEEP_MSEC", T::kNcclInt, U::kApplied, &O::ib_mqp_retry_sleep_msec, "100", "ms", "", 0,
     0, "NCCL 2.24", "", "Pause before the n-th retry: n times this."},
    {kReliability, "NCCL_IB_RETURN_ASYNC_EVENTS", T::kNcclInt, U::kApplied, &O::ib_return_async_events, "1", "", "0 or 1", 0, 0,
     "NCCL 2.23", "", "1: a fatal event of a device makes calls fail if nothing can take over. 0: it is logged."},

    {kData, "NCCL_IB_QPS_PER_CONNECTION", T::kNcclInt, U::kApplied, &O::ib_qps_per_connection, "1", "", "1 to 128", 0, 0,
     "NCCL 2.12", "the larger one is used", "Queue pairs of a connection on each physical device."},
    {kData, "NCCL_IB_SPLIT_DATA_ON_QPS", T::kNcclInt, U::kApplied, &O::ib_split_data_on_qps, "0", "", "0 or 1", 0, 0,
     "NCCL 2.18", "", "1: each message goes over all queue pairs. 0: over one for each device, in turn."},
    {kData, "NCCL_IB_ADAPTIVE_ROUTING", T::kNcclInt, U::kApplied, &O::ib_adaptive_routing, "-2", "", "-2, 0 or 1", 0, 0,
     "NCCL 2.16", "", "Whether packets may overtake each other. -2: on InfiniBand, not on RoCE."},
    {kData, "NCCL_IB_AR_THRESHOLD", T::kNcclInt, U::kApplied, &O::ib_ar_threshold, "-2", "bytes", "", 0, 0, "NCCL 2.12", "",
     "With adaptive routing a larger message is followed by a write of its own that tells of it. -2: 8192."},
    {kData, "NCCL_IB_OOO_RQ", T::kNcclInt, U::kNotApplied, kShown, "0", "", "0 or 1", 0, 0, "NCCL 2.30.3", "",
     "Railhop does not use mlx5's out-of-order receive queues."},
    {kData, "NCCL_IB_USE_INLINE", T::kNcclInt, U::kApplied, &O::ib_use_inline, "0", "", "0 or 1", 0, 0, "NCCL 2.12", "",
     "1: clear-to-send writes carry their bytes in the work request."},
    {kData, "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", T::kNcclInt, U::kNotApplied, kShown, "-2", "", "", 0, 0, "NCCL 2.29.7",
     "", "How Railhop posts receives is its own matter."},
    {kData, "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", T::kNcclInt, U::kNotApplied, kShown, "-2", "", "", 0, 0, "NCCL 2.29.7",
     "", "How Railhop matches sends to receives is its own matter."},
    {kData, "NCCL_IB_ECE_ENABLE", T::kNcclInt, U::kApplied, &O::ib_ece_enable, "1", "", "0 or 1", 0, 0, "NCCL 2.23", "",
     "1: the ends exchange their devices' extended connection options, on which congestion control rides."},
    {kData, "NCCL_IB_PCI_RELAXED_ORDERING", T::kNcclInt, U::kApplied, &O::ib_pci_relaxed_ordering, "2", "", "0, 1 or 2", 0, 0,
     "NCCL 2.12", "", "Relaxed PCI ordering for registered memory. 2: if the device can."},
    {kData, "NCCL_GDR_FLUSH_DISABLE", T::kNcclInt, U::kApplied, &O::gdr_flush_disable, "0", "", "0 or 1", 0, 0, "NCCL 2.12",
     "", "1: no flush of GPU memory after receives."},

    {kControl, "NCCL_SOCKET_IFNAME", T::kNcclText, U::kApplied, &O::socket_ifname, "", "", "[^][=]name,...", 0, 0, "NCCL 2.12",
     "", "Interface of the control channel: the first that matches; none: Railhop refuses to start. Syntax as NCCL_IB_HCA; "
     "text of one character is ignored. Unset: ib*, then the subnet of NCCL_COMM_ID, then any but docker, lo and virbr, "
     "then those."},
    {kControl, "NCCL_SOCKET_FAMILY", T::kNcclText, U::kApplied, &O::socket_family, "", "", "AF_INET or AF_INET6", 0, 0,
     "NCCL 2.12", "", "Address family of the control channel. Any other text: either."},
    {kControl, "NCCL_COMM_ID", T::kNcclText, U::kApplied, &O::comm_id, "", "", "address:port", 0, 0, "NCCL 2.12", "",
     "Only its subnet is looked at, to pick an interface."},
    {kControl, "NCCL_SOCKET_RETRY_CNT", T::kNcclInt, U::kApplied, &O::socket_retry_cnt, "34", "", "", 0, 0, "NCCL 2.24", "",
     "How often a refused or timed-out connect is tried again."},
    {kControl, "NCCL_SOCKET_RETRY_SLEEP_MSEC", T::kNcclInt, U::kApplied, &O::socket_retry_sleep_msec, "100", "ms", "", 0, 0,
     "NCCL 2.24", "", "Pause before the n-th retry: n times this."},
    {kControl, "NCCL_SOCKET_POLL_TIMEOUT_MSEC", T::kNcclInt, U::kNotApplied, &O::socket_poll_timeout_msec, "0", "ms", "", 0, 0,
     "NCCL 2.29.2", "", "Railhop's control channel never waits inside a call of NCCL."},
    {kControl, "NCCL_SOCKET_RCVBUF", T::kNcclInt, U::kApplied, &O::socket_rcvbuf, "-1", "bytes", "", 0, 0, "NCCL 2.27", "",
     "Receive buffer of a socket. Below 0: the system's."},
    {kControl, "NCCL_SOCKET_SNDBUF", T::kNcclInt, U::kApplied, &O::socket_sndbuf, "-1", "bytes", "", 0, 0, "NCCL 2.27", "",
     "Send buffer of a socket. Below 0: the system's."},
    {kControl, "NCCL_SOCKET_MAGIC", T::kNcclText, U::kNotApplied, &O::socket_magic, "", "", "64-bit number", 0, 0,
     "NCCL 2.30.7", "",
     "Railhop's handshake has a secret of its own for each connection, and needs no shared number."},

    {kResilience, "NCCL_IB_RESILIENCY_PORT_FAILOVER", T::kNcclInt, U::kNotApplied, kShown, "0", "", "0 or 1", 0, 0,
     "NCCL 2.29.7", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS", T::kNcclInt, U::kNotApplied, kShown, "1", "", "", 0, 0,
     "NCCL 2.29.7", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY", T::kNcclInt, U::kNotApplied, kShown, "10", "ms", "", 0, 0,
     "NCCL 2.29.7", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY", T::kNcclInt, U::kNotApplied, kShown, "0", "", "0 or 1", 0, 0,
     "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_START_DELAY", T::kNcclInt, U::kNotApplied, kShown, "200", "ms", "", 0, 0,
     "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL", T::kNcclInt, U::kNotApplied, kShown, "500", "ms",
     "", 0, 0, "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE", T::kNcclInt, U::kNotApplied, kShown, "5", "", "", 0,
     0, "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE", T::kNcclInt, U::kNotApplied, kShown, "5", "", "",
     0, 0, "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT", T::kNcclInt, U::kNotApplied, kShown, "4000", "ms", "",
     0, 0, "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT", T::kNcclInt, U::kNotApplied, kShown, "5000", "ms", "", 0, 0,
     "NCCL 2.30.3", "", kOwnFailover},
    {kResilience, "NCCL_IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX", T::kNcclInt, U::kNotApplied, kShown, "5", "", "", 0, 0,
     "NCCL 2.30.3", "", kOwnFailover},

    {kOurs, "RAILHOP_NET_NAME", T::kText, U::kApplied, &O::net_name, "Railhop", "", "1 to 31 printable characters", 0, 0,
     "Railhop 0.1", "",
     "The name that Railhop answers to. `IB` serves jobs whose image carries NCCL_NET=IB; they would pass Railhop by in "
     "silence."},
    {kOurs, "RAILHOP_VERBS_LIBRARY", T::kText, U::kApplied, &O::verbs_library, "libibverbs.so.1", "", "library name or path", 0,
     0, "Railhop 0.1", "", "The verbs library, found as dlopen finds it."},
    {kOurs, "RAILHOP_LOG", T::kChoice, U::kApplied, &O::log, "info", "", "trace|info|warn", 0, 0, "Railhop 0.1", "",
     "Lowest severity that is handed to NCCL's logger, which shows of it what NCCL_DEBUG allows."},
    {kOurs, "RAILHOP_FAILOVER", T::kFlag, U::kApplied, &O::failover, "1", "", "0 or 1", 0, 0, "Railhop 0.1",
     "0 at either end: off for the connection",
     "0: a fault of the network is an error, as with NCCL's own transport. For comparison."},
    {kOurs, "RAILHOP_CONFIRM_RECEIVES", T::kFlag, U::kApplied, &O::confirm_receives, "0", "", "0 or 1", 0, 0, "Railhop 0.1",
     "the sender's is used",
     "1: a send completes only after the receiver's own confirmation, so that a NIC that acknowledges and then loses data "
     "cannot end the job. Costs latency."},
    {kOurs, "RAILHOP_STALL_THRESHOLD", T::kDuration, U::kApplied, &O::stall_threshold_ns, "1s", "time", "10ms to 10min",
     10 * kMs, 600 * kS, "Railhop 0.1", "", "How long a lane with unacknowledged work may stand still before its path is "
     "given up, if a probe is not answered either."},
    {kOurs, "RAILHOP_PROBE_INTERVAL", T::kDuration, U::kApplied, &O::probe_interval_ns, "1s", "time", "10ms to 10min",
     10 * kMs, 600 * kS, "Railhop 0.1", "", "How often a port that is out of service is tried."},
    {kOurs, "RAILHOP_GIVE_UP_TIME", T::kDuration, U::kApplied, &O::give_up_time_ns, "5min", "time", "1s to 24h", kS,
     86400 * kS, "Railhop 0.1", "", "How long a connection without any working path waits for one before the job gets an error. "
     "Keep it below PyTorch's watchdog (10 minutes)."},
    {kOurs, "RAILHOP_HOLD_DOWN", T::kDuration, U::kApplied, &O::hold_down_ns, "1s", "time", "0s to 10min", 0, 600 * kS,
     "Railhop 0.1", "", "How long a repaired port must answer probes before traffic goes back to it; doubled with each flap."},
    {kOurs, "RAILHOP_HOLD_DOWN_MAX", T::kDuration, U::kApplied, &O::hold_down_max_ns, "1min", "time", "0s to 24h", 0,
     86400 * kS, "Railhop 0.1", "", "The longest that it grows to."},
    {kOurs, "RAILHOP_PORT_POLL_INTERVAL", T::kDuration, U::kApplied, &O::port_poll_interval_ns, "1s", "time", "10ms to 1min",
     10 * kMs, 60 * kS, "Railhop 0.1", "", "How often the state of every port is read, for events that were lost and for ports "
     "that come up late."},
    {kOurs, "RAILHOP_COVER", T::kChoice, U::kApplied, &O::cover, "all", "", "all|0|1|2|3|4|6|8", 0, 0, "Railhop 0.1", "",
     "On how many backups, the nearest first, the memory of a connection is registered ahead of need, for each of its "
     "devices. On the others it is registered when they are needed, which takes longer the more memory there is. Fewer "
     "save room in the NICs' translation tables."},
    {kOurs, "RAILHOP_ADMIN", T::kFlag, U::kApplied, &O::admin, "1", "", "0 or 1", 0, 0, "Railhop 0.1", "",
     "0: no unix socket, so that nobody outside the process can watch or steer it. See docs/operating/admin.md."},
    {kOurs, "RAILHOP_ADMIN_DIR", T::kText, U::kApplied, &O::admin_dir, "", "", "absolute path", 0, 0, "Railhop 0.1", "",
     "The folder of the admin socket; made if it is not there. It must belong to the user or root, and nobody else may "
     "write there. Unset: the first that can be had of $XDG_RUNTIME_DIR/railhop, /run/railhop (root) and "
     "/tmp/railhop-UID."},
    {kOurs, "RAILHOP_JOB_ID", T::kText, U::kApplied, &O::job_id, "", "", "a name", 0, 0, "Railhop 0.1", "",
     "By what name tools find the processes of a job. Unset: SLURM_JOB_ID, else torchrun's TORCHELASTIC_RUN_ID."},
    // clang-format on
};

// What the parts take while they run: the driver's times, and the log.
constexpr std::string_view kChangeable[] = {"RAILHOP_LOG",
                                            "RAILHOP_STALL_THRESHOLD",
                                            "RAILHOP_PROBE_INTERVAL",
                                            "RAILHOP_GIVE_UP_TIME",
                                            "RAILHOP_HOLD_DOWN",
                                            "RAILHOP_HOLD_DOWN_MAX",
                                            "RAILHOP_PORT_POLL_INTERVAL"};

}  // namespace

std::span<const OptionRow> OptionTable() { return kTable; }

const OptionRow* FindOption(std::string_view name) {
  for (const OptionRow& row : kTable) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

bool IsChangeable(std::string_view name) {
  return std::find(std::begin(kChangeable), std::end(kChangeable), name) != std::end(kChangeable);
}

std::vector<std::string> ChangeableOptions() {
  return {std::begin(kChangeable), std::end(kChangeable)};
}

}  // namespace railhop::config
