#include "cc/runtime/transport_options.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>

namespace railhop::runtime {
namespace {

using config::Options;
using datapath::DatapathConfig;

// The options' field, a value for it, and what of the data path's settings it becomes.
struct Row {
  const char* name;
  int64_t Options::*field;
  int64_t value;
  std::function<int64_t(const DatapathConfig&)> read;
  int64_t expected;
  bool noted;
};

template <typename T>
std::function<int64_t(const DatapathConfig&)> Read(T DatapathConfig::*field) {
  return [field](const DatapathConfig& config) { return static_cast<int64_t>(config.*field); };
}

TEST(TransportOptions, EveryKnobOfTheDataPath_ReachesItsField) {
  using O = Options;
  using D = DatapathConfig;
  const Row rows[] = {
      {"NCCL_IB_QPS_PER_CONNECTION", &O::ib_qps_per_connection, 4, Read(&D::ib_qps_per_connection),
       4, false},
      {"NCCL_IB_QPS_PER_CONNECTION", &O::ib_qps_per_connection, 0, Read(&D::ib_qps_per_connection),
       1, true},
      {"NCCL_IB_QPS_PER_CONNECTION", &O::ib_qps_per_connection, 1000,
       Read(&D::ib_qps_per_connection), 128, true},
      {"NCCL_IB_SPLIT_DATA_ON_QPS", &O::ib_split_data_on_qps, 1, Read(&D::ib_split_data_on_qps), 1,
       false},
      {"NCCL_IB_SPLIT_DATA_ON_QPS", &O::ib_split_data_on_qps, 5, Read(&D::ib_split_data_on_qps), 1,
       false},
      {"NCCL_IB_ADAPTIVE_ROUTING", &O::ib_adaptive_routing, 0, Read(&D::ib_adaptive_routing), 0,
       false},
      {"NCCL_IB_ADAPTIVE_ROUTING", &O::ib_adaptive_routing, 1, Read(&D::ib_adaptive_routing), 1,
       false},
      {"NCCL_IB_ADAPTIVE_ROUTING", &O::ib_adaptive_routing, -2, Read(&D::ib_adaptive_routing), -2,
       false},
      {"NCCL_IB_ADAPTIVE_ROUTING", &O::ib_adaptive_routing, 7, Read(&D::ib_adaptive_routing), 1,
       false},
      {"NCCL_IB_AR_THRESHOLD", &O::ib_ar_threshold, 100, Read(&D::ib_ar_threshold), 100, false},
      {"NCCL_IB_AR_THRESHOLD", &O::ib_ar_threshold, -2, Read(&D::ib_ar_threshold), 8192, false},
      {"NCCL_IB_USE_INLINE", &O::ib_use_inline, 1, Read(&D::ib_use_inline), 1, false},
      {"NCCL_IB_PKEY", &O::ib_pkey, 3, Read(&D::ib_pkey), 3, false},
      {"NCCL_IB_SL", &O::ib_sl, 5, Read(&D::ib_sl), 5, false},
      {"NCCL_IB_SL", &O::ib_sl, 16, Read(&D::ib_sl), 15, true},
      {"NCCL_IB_TC", &O::ib_tc, 106, Read(&D::ib_tc), 106, false},
      {"NCCL_IB_TC", &O::ib_tc, 256, Read(&D::ib_tc), 255, true},
      {"NCCL_IB_FIFO_TC", &O::ib_fifo_tc, 84, Read(&D::ib_fifo_tc), 84, false},
      {"NCCL_IB_ECE_ENABLE", &O::ib_ece_enable, 0, Read(&D::ib_ece_enable), 0, false},
      {"NCCL_IB_TIMEOUT", &O::ib_timeout, 22, Read(&D::ib_timeout), 22, false},
      {"NCCL_IB_TIMEOUT", &O::ib_timeout, 0, Read(&D::ib_timeout), 0, false},
      {"NCCL_IB_TIMEOUT", &O::ib_timeout, 32, Read(&D::ib_timeout), 0, false},
      {"NCCL_IB_TIMEOUT", &O::ib_timeout, -1, Read(&D::ib_timeout), 0, true},
      {"NCCL_IB_RETRY_CNT", &O::ib_retry_cnt, 3, Read(&D::ib_retry_cnt), 3, false},
      {"NCCL_IB_RETRY_CNT", &O::ib_retry_cnt, 15, Read(&D::ib_retry_cnt), 7, true},
      {"NCCL_IB_MQP_RETRY_ALL", &O::ib_mqp_retry_all, 1, Read(&D::ib_mqp_retry_all), 1, false},
      {"NCCL_IB_MQP_RETRY_CNT", &O::ib_mqp_retry_cnt, 2, Read(&D::ib_mqp_retry_cnt), 2, false},
      {"NCCL_IB_MQP_RETRY_SLEEP_MSEC", &O::ib_mqp_retry_sleep_msec, 9,
       Read(&D::ib_mqp_retry_sleep_msec), 9, false},
      {"NCCL_IB_PCI_RELAXED_ORDERING", &O::ib_pci_relaxed_ordering, 0,
       Read(&D::ib_pci_relaxed_ordering), 0, false},
      {"NCCL_GDR_FLUSH_DISABLE", &O::gdr_flush_disable, 1, Read(&D::gdr_flush_disable), 1, false},
      {"NCCL_IB_RETURN_ASYNC_EVENTS", &O::ib_return_async_events, 0,
       Read(&D::ib_return_async_events), 0, false},
  };
  for (const Row& row : rows) {
    Options options;
    options.*row.field = row.value;
    std::vector<std::string> notes;
    EXPECT_EQ(row.read(MakeDatapathConfig(options, &notes)), row.expected)
        << row.name << "=" << row.value;
    EXPECT_EQ(!notes.empty(), row.noted) << row.name << "=" << row.value;
    if (row.noted) {
      EXPECT_EQ(notes[0].find(row.name), 0u) << notes[0];
    }
  }
  Options options;
  std::vector<std::string> notes;
  EXPECT_TRUE(MakeDatapathConfig(options, &notes).failover);
  options.failover = false;
  EXPECT_FALSE(MakeDatapathConfig(options, &notes).failover);
}

TEST(TransportOptions, Defaults_AreTheDataPathsOwn) {
  std::vector<std::string> notes;
  const DatapathConfig made = MakeDatapathConfig({}, &notes);
  const DatapathConfig own;
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(made.ib_qps_per_connection, own.ib_qps_per_connection);
  EXPECT_EQ(made.ib_split_data_on_qps, own.ib_split_data_on_qps);
  EXPECT_EQ(made.ib_adaptive_routing, own.ib_adaptive_routing);
  EXPECT_EQ(made.ib_ar_threshold, own.ib_ar_threshold);
  EXPECT_EQ(made.ib_use_inline, own.ib_use_inline);
  EXPECT_EQ(made.ib_pkey, own.ib_pkey);
  EXPECT_EQ(made.ib_sl, own.ib_sl);
  EXPECT_EQ(made.ib_tc, own.ib_tc);
  EXPECT_EQ(made.ib_fifo_tc, own.ib_fifo_tc);
  EXPECT_EQ(made.ib_ece_enable, own.ib_ece_enable);
  EXPECT_EQ(made.ib_timeout, own.ib_timeout);
  EXPECT_EQ(made.ib_retry_cnt, own.ib_retry_cnt);
  EXPECT_EQ(made.ib_mqp_retry_all, own.ib_mqp_retry_all);
  EXPECT_EQ(made.ib_mqp_retry_cnt, own.ib_mqp_retry_cnt);
  EXPECT_EQ(made.ib_mqp_retry_sleep_msec, own.ib_mqp_retry_sleep_msec);
  EXPECT_EQ(made.ib_pci_relaxed_ordering, own.ib_pci_relaxed_ordering);
  EXPECT_EQ(made.gdr_flush_disable, own.gdr_flush_disable);
  EXPECT_EQ(made.ib_return_async_events, own.ib_return_async_events);
}

TEST(TransportOptions, EveryKnobOfTheSockets_ReachesItsField) {
  Options options;
  options.socket_ifname = "=eth0";
  options.socket_family = "AF_INET6";
  options.comm_id = "10.0.0.1:5";
  options.socket_retry_cnt = 3;
  options.socket_retry_sleep_msec = 4;
  options.socket_rcvbuf = 5;
  options.socket_sndbuf = 6;
  std::vector<std::string> notes;
  const control::SocketConfig config = MakeSocketConfig(options, &notes);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(config.socket_ifname, "=eth0");
  EXPECT_EQ(config.socket_family, AF_INET6);
  EXPECT_EQ(config.comm_id, "10.0.0.1:5");
  EXPECT_EQ(config.socket_retry_cnt, 3);
  EXPECT_EQ(config.socket_retry_sleep_msec, 4);
  EXPECT_EQ(config.socket_rcvbuf, 5);
  EXPECT_EQ(config.socket_sndbuf, 6);
}

TEST(TransportOptions, IfnameOfOneCharacter_IgnoredAndNamed) {
  Options options;
  options.socket_ifname = "e";
  options.socket_family = "ipv4";
  options.comm_id = "x";
  std::vector<std::string> notes;
  const control::SocketConfig config = MakeSocketConfig(options, &notes);
  EXPECT_EQ(config.socket_ifname, "");
  EXPECT_EQ(config.socket_family, -1);
  EXPECT_EQ(config.comm_id, "");
  EXPECT_EQ(notes.size(), 2u);
}

TEST(FailoverOptions, Cover_AllOrANumber) {
  std::vector<std::string> notes;
  config::Options options;
  EXPECT_EQ(MakeFailoverConfig(options, &notes).cover_backups, -1);
  options.cover = "0";
  EXPECT_EQ(MakeFailoverConfig(options, &notes).cover_backups, 0);
  options.cover = "4";
  EXPECT_EQ(MakeFailoverConfig(options, &notes).cover_backups, 4);
}

}  // namespace
}  // namespace railhop::runtime
