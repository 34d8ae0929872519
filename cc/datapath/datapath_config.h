// The settings that connections follow, as plain numbers, named as NCCL names its knobs.
//
// Filled from the option table at the boundary (cc/runtime), so that the data path and its tests
// know no environment. Defaults are NCCL 2.30.7's.
#ifndef RAILHOP_CC_DATAPATH_DATAPATH_CONFIG_H_
#define RAILHOP_CC_DATAPATH_DATAPATH_CONFIG_H_

#include <cstdint>

namespace railhop::datapath {

struct DatapathConfig {
  // Queue pairs for each physical device of the net device; the larger end wins. 1..128.
  int ib_qps_per_connection = 1;
  // Each message over all queue pairs, instead of one for each device in turn.
  bool ib_split_data_on_qps = false;
  // Adaptive routing: -2 = on for InfiniBand, off for Ethernet; 0 = off; 1 = on.
  int ib_adaptive_routing = -2;
  // With adaptive routing, larger messages announce themselves by a write of their own. Bytes.
  int64_t ib_ar_threshold = 8192;
  // Clear-to-send entries go inline in the work request.
  bool ib_use_inline = false;

  // Index into the P_Key table, not the key.
  int ib_pkey = 0;
  // -1 = the communicator's traffic class, else 0.
  int ib_sl = -1;
  int ib_tc = -1;
  // Class of the clear-to-send writes, Ethernet only; -1 = as ib_tc.
  int ib_fifo_tc = -1;
  // Extended connection establishment: congestion control options ride on it.
  bool ib_ece_enable = true;

  // Exponent: 4.096 us * 2^n for each attempt. 0..31.
  int ib_timeout = 20;
  // 0..7.
  int ib_retry_cnt = 7;
  // modify_qp is tried again on ETIMEDOUT (on every error with _all), this often, after a pause
  // that grows by this much each time.
  bool ib_mqp_retry_all = false;
  int ib_mqp_retry_cnt = 34;
  int ib_mqp_retry_sleep_msec = 100;

  // 2 = where the library can, 1 = on, 0 = off.
  int ib_pci_relaxed_ordering = 2;
  // No flush after receives into GPU memory.
  bool gdr_flush_disable = false;
  // Fatal asynchronous events of a device make the calls of its connections fail.
  bool ib_return_async_events = true;

  // Lanes are fenced and replaced instead of ending their connection. Not yet acted upon.
  bool failover = true;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_DATAPATH_CONFIG_H_
