#include "cc/runtime/transport_options.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cc/config/nccl_values.h"

namespace railhop::runtime {
namespace {

// A field of a queue pair with few bits: what does not fit is cut to the nearest value, and said.
int Fit(const char* name, int64_t value, int64_t min, int64_t max,
        std::vector<std::string>* notes) {
  const int64_t used = std::clamp(value, min, max);
  if (used != value) {
    notes->push_back(absl::StrCat(name, "=", value, " does not fit its field; ", used, " is used"));
  }
  return static_cast<int>(used);
}

constexpr int64_t kAnyInt = INT32_MAX;
constexpr int64_t kArThresholdDefault = 8192;

}  // namespace

datapath::DatapathConfig MakeDatapathConfig(const config::Options& o,
                                            std::vector<std::string>* notes) {
  datapath::DatapathConfig config;
  config.ib_qps_per_connection =
      Fit("NCCL_IB_QPS_PER_CONNECTION", o.ib_qps_per_connection, 1, 128, notes);
  config.ib_split_data_on_qps = o.ib_split_data_on_qps != 0;
  config.ib_adaptive_routing = o.ib_adaptive_routing == -2 ? -2 : o.ib_adaptive_routing != 0;
  config.ib_ar_threshold = o.ib_ar_threshold == -2 ? kArThresholdDefault : o.ib_ar_threshold;
  config.ib_use_inline = o.ib_use_inline != 0;
  config.ib_pkey = Fit("NCCL_IB_PKEY", o.ib_pkey, 0, 65535, notes);
  config.ib_sl = Fit("NCCL_IB_SL", o.ib_sl, -1, 15, notes);
  config.ib_tc = Fit("NCCL_IB_TC", o.ib_tc, -1, 255, notes);
  config.ib_fifo_tc = Fit("NCCL_IB_FIFO_TC", o.ib_fifo_tc, -1, 255, notes);
  config.ib_ece_enable = o.ib_ece_enable != 0;
  // 32 and more are documented as endless by NCCL; the field has five bits, and 0 is endless.
  config.ib_timeout = o.ib_timeout >= 32 ? 0 : Fit("NCCL_IB_TIMEOUT", o.ib_timeout, 0, 31, notes);
  config.ib_retry_cnt = Fit("NCCL_IB_RETRY_CNT", o.ib_retry_cnt, 0, 7, notes);
  config.ib_mqp_retry_all = o.ib_mqp_retry_all != 0;
  config.ib_mqp_retry_cnt = Fit("NCCL_IB_MQP_RETRY_CNT", o.ib_mqp_retry_cnt, 0, kAnyInt, notes);
  config.ib_mqp_retry_sleep_msec =
      Fit("NCCL_IB_MQP_RETRY_SLEEP_MSEC", o.ib_mqp_retry_sleep_msec, 0, kAnyInt, notes);
  config.ib_pci_relaxed_ordering =
      Fit("NCCL_IB_PCI_RELAXED_ORDERING", o.ib_pci_relaxed_ordering, 0, 2, notes);
  config.gdr_flush_disable = o.gdr_flush_disable != 0;
  config.ib_return_async_events = o.ib_return_async_events != 0;
  config.failover = o.failover;
  return config;
}

control::SocketConfig MakeSocketConfig(const config::Options& o, std::vector<std::string>* notes) {
  control::SocketConfig config;
  // NCCL passes over a text of one character.
  if (o.socket_ifname.size() > 1) {
    config.socket_ifname = o.socket_ifname;
  } else if (!o.socket_ifname.empty()) {
    notes->push_back("NCCL_SOCKET_IFNAME has one character; as in NCCL it is ignored");
  }
  config.socket_family = config::ParseAddressFamily(o.socket_family, -1);
  if (config.socket_family == -1 && !o.socket_family.empty()) {
    notes->push_back(
        "NCCL_SOCKET_FAMILY is neither AF_INET nor AF_INET6; as in NCCL it means either");
  }
  if (o.comm_id.size() > 1) config.comm_id = o.comm_id;
  config.socket_retry_cnt = Fit("NCCL_SOCKET_RETRY_CNT", o.socket_retry_cnt, 0, kAnyInt, notes);
  config.socket_retry_sleep_msec =
      Fit("NCCL_SOCKET_RETRY_SLEEP_MSEC", o.socket_retry_sleep_msec, 0, kAnyInt, notes);
  config.socket_rcvbuf = Fit("NCCL_SOCKET_RCVBUF", o.socket_rcvbuf, -1, kAnyInt, notes);
  config.socket_sndbuf = Fit("NCCL_SOCKET_SNDBUF", o.socket_sndbuf, -1, kAnyInt, notes);
  return config;
}

FailoverConfig MakeFailoverConfig(const config::Options& o, std::vector<std::string>* notes) {
  FailoverConfig config;
  config.enabled = o.failover;
  config.confirm = o.confirm_receives;
  config.health.stall = o.stall_threshold_ns;
  config.health.probe_interval = o.probe_interval_ns;
  config.health.probe_interval_max =
      std::max(config.health.probe_interval_max, o.probe_interval_ns);
  config.health.hold_down = o.hold_down_ns;
  config.health.hold_down_max = std::max(o.hold_down_ns, o.hold_down_max_ns);
  if (o.hold_down_max_ns < o.hold_down_ns) {
    notes->push_back(
        "RAILHOP_HOLD_DOWN_MAX is less than RAILHOP_HOLD_DOWN, which is used for both");
  }
  config.give_up_ns = o.give_up_time_ns;
  config.port_poll_interval_ns = o.port_poll_interval_ns;
  // The option table lets only these through.
  if (o.cover.empty() || o.cover == "all" || !absl::SimpleAtoi(o.cover, &config.cover_backups)) {
    config.cover_backups = -1;
  }
  return config;
}

}  // namespace railhop::runtime
