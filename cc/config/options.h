// Every value that a person can set, ready to use; made once at start and passed as `const
// Options&`.
//
// What each field means, its unit, range and default: the row of that field in option_table.cc,
// from which docs/reference/environment.md is made. The NCCL_ fields keep NCCL's raw integers,
// unchecked as in NCCL; the RAILHOP_ fields are checked, in range, and durations are in ns.
#ifndef RAILHOP_CC_CONFIG_OPTIONS_H_
#define RAILHOP_CC_CONFIG_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/config/settings.h"

namespace railhop::config {

struct Options {
  // NCCL_IB_*: devices. Texts are empty if unset.
  int64_t ib_disable = 0;
  std::string ib_hca;
  int64_t ib_device_pci_order = 1;
  int64_t ib_merge_vfs = 1;
  int64_t ib_merge_nics = 1;
  int64_t ib_query_port_speed = 1;
  int64_t ib_warn_rail_local = 0;

  // NCCL_IB_*: addressing.
  int64_t ib_gid_index = -1;
  int64_t ib_routable_flid_gid_index = 1;
  int64_t ib_roce_version_num = 2;
  std::string ib_addr_family;
  std::string ib_addr_range;
  int64_t ib_pkey = 0;
  int64_t ib_subnet_aware_routing = 0;
  int64_t ib_subnet_prefix_len = 24;

  // NCCL_IB_*: quality of service.
  int64_t ib_sl = -1;
  int64_t ib_tc = -1;
  int64_t ib_fifo_tc = -1;

  // NCCL_IB_*: reliability and timing.
  int64_t ib_timeout = 20;
  int64_t ib_retry_cnt = 7;
  int64_t ib_mqp_retry_all = 0;
  int64_t ib_mqp_retry_cnt = 34;
  int64_t ib_mqp_retry_sleep_msec = 100;
  int64_t ib_return_async_events = 1;

  // NCCL_IB_*: data path.
  int64_t ib_qps_per_connection = 1;
  int64_t ib_split_data_on_qps = 0;
  int64_t ib_adaptive_routing = -2;
  int64_t ib_ar_threshold = -2;
  int64_t ib_use_inline = 0;
  int64_t ib_ece_enable = 1;
  int64_t ib_pci_relaxed_ordering = 2;
  int64_t gdr_flush_disable = 0;

  // NCCL_SOCKET_*: the control channel.
  std::string socket_ifname;
  std::string socket_family;
  int64_t socket_retry_cnt = 34;
  int64_t socket_retry_sleep_msec = 100;
  int64_t socket_poll_timeout_msec = 0;
  int64_t socket_rcvbuf = -1;
  int64_t socket_sndbuf = -1;
  std::string socket_magic;
  std::string comm_id;  // NCCL_COMM_ID: only its subnet is looked at

  // RAILHOP_*.
  std::string net_name;
  std::string verbs_library;
  std::string log;  // a word of option_table.cc's choices
  bool failover = true;
  bool confirm_receives = false;
  int64_t stall_threshold_ns = 0;
  int64_t probe_interval_ns = 0;
  int64_t give_up_time_ns = 0;
  int64_t hold_down_ns = 0;
  int64_t hold_down_max_ns = 0;
  int64_t port_poll_interval_ns = 0;
  std::string cover = "all";  // all, or a number
  bool admin = true;
  std::string admin_dir;
  std::string job_id;
};

struct OptionRow;  // option_table.h

// One row with what is in force.
struct EffectiveOption {
  const OptionRow* row = nullptr;
  std::string value;   // as printed; "(unset)" if there is none
  std::string source;  // "default", or as Setting::source
  bool set = false;    // somebody set it, if only to its default
};

// The options with where each came from, and all that a person should be told about them.
struct LoadedOptions {
  Options options;
  std::vector<EffectiveOption> effective;  // in the table's order
  // Mistakes, one sentence each: a bad value of ours (the default is used), an unknown RAILHOP_
  // name with the nearest known one, a bad line of a file. To be logged at WARN.
  std::vector<std::string> warnings;
  // What was set and does not take effect as written, one sentence each: a knob that Railhop does
  // not use, NCCL's text that is no number. To be logged at INFO.
  std::vector<std::string> notes;
};

// Never fails: a job must not die of a typing error.
LoadedOptions LoadOptions(const Settings& settings);

// Gives one row of ours another value while the job runs; `source` is who asked for it. Returns
// why it cannot be, with what is wanted, and nothing has changed then; "" = done. Only for rows
// that IsChangeable names.
std::string ChangeOption(const OptionRow& row, const std::string& value, const std::string& source,
                         LoadedOptions* loaded);

// The lines that are printed once at start at INFO: one for each option that was set, with its
// source, then one with the names that have their defaults.
std::vector<std::string> OptionReport(const LoadedOptions& loaded);

}  // namespace railhop::config

#endif  // RAILHOP_CC_CONFIG_OPTIONS_H_
