// Verbs devices in memory, for tests of what finds and describes devices: a verbs::Table whose
// functions answer from plain structs. Nothing can be sent over them.
#ifndef RAILHOP_CC_RUNTIME_FAKE_VERBS_H_
#define RAILHOP_CC_RUNTIME_FAKE_VERBS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cc/verbs/table.h"

namespace railhop::runtime {

struct FakeGid {
  std::string address;  // IPv4 or IPv6; "" is an empty entry, "unreadable" one that fails
  int roce_version = 2;
};

struct FakePort {
  bool up = true;
  int link_layer = IBV_LINK_LAYER_ETHERNET;
  uint8_t width = 2;                        // 4 lanes
  uint8_t speed = 64;                       // HDR: 200 Gb/s in all
  uint64_t queried_speed_hundred_mbps = 0;  // 0: ibv_query_port_speed fails
  std::vector<FakeGid> gids = {{"fe80::1", 1}, {"fe80::1", 2}, {"10.0.0.1", 1}, {"10.0.0.1", 2}};
  std::vector<uint16_t> pkeys = {0xffff};
  int query_errno = 0;
};

struct FakeDevice {
  std::string name;
  uint64_t guid = 0;
  std::vector<FakePort> ports = {FakePort{}};
  int max_qp = 1000;
  int open_errno = 0;
};

// One at a time in a process; tests of one thread, or with a thread that only polls while the test
// changes `up`.
class FakeVerbs {
 public:
  explicit FakeVerbs(std::vector<FakeDevice> devices);
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  // Its functions use this object. Optional functions may be set to null by the test.
  std::shared_ptr<verbs::Table> table() const { return table_; }
  FakeDevice& device(size_t index) { return devices_[index]; }
  void SetUp(size_t device, size_t port, bool up);

  bool dmabuf_works = true;
  bool iova2_works = true;
  int list_errno = 0;

  // How many contexts are open.
  int open_contexts() const { return open_contexts_; }

 private:
  friend struct FakeVerbsFunctions;

  std::vector<FakeDevice> devices_;
  std::deque<ibv_device> handles_;
  std::shared_ptr<verbs::Table> table_;
  int open_contexts_ = 0;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_FAKE_VERBS_H_
