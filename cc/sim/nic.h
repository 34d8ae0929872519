// A simulated NIC as its firmware sees it: ports, memory keys, queue pair numbers.
//
// Plain state that the other parts share: Network looks up who gets a packet, FaultDriver changes
// links and addresses, Context makes the objects that programs hold. A NIC that is removed keeps
// its state, for it may come back; whoever had it open does not get it back. One thread.
#ifndef RAILHOP_CC_SIM_NIC_H_
#define RAILHOP_CC_SIM_NIC_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/rdma_model/fault_table.h"
#include "cc/rdma_model/memory_region.h"
#include "cc/rdma_model/topology.h"
#include "cc/sim/event_loop.h"
#include "cc/sim/recorder.h"

namespace railhop::sim {

class Nic;
class QueuePair;

struct Options {
  uint64_t seed = 1;
  uint64_t latency_ns = 1000;   // from port to port
  uint32_t train_packets = 16;  // most packets that travel as one
  uint64_t window_ns = 4000;    // a queue pair sends ahead of its port by so much
};

// Hears of calls that hang, instead of letting virtual time pass inside them.
class HangListener {
 public:
  virtual ~HangListener() = default;
  // The call is carried out at once; whoever made it is held up for so long.
  virtual void OnHang(Nic* nic, rdma::VerbCall call, uint64_t ns) = 0;
};

// Sees what is written into memory.
class WriteObserver {
 public:
  virtual ~WriteObserver() = default;
  // A WRITE is posted to `qp`.
  virtual void OnPostWrite(const QueuePair& qp, uint64_t address, uint64_t length) = 0;
  // Bytes are about to land over `qp`, which is their receiver.
  virtual void OnWrite(const QueuePair& qp, uint64_t address, const uint8_t* bytes,
                       uint32_t length) = 0;
};

// What all parts of one world share.
struct Shared {
  explicit Shared(const Options& chosen)
      : options(chosen), loop(chosen.seed), chance(Prng(chosen.seed).Fork(7)) {}
  const Options options;
  EventLoop loop;
  Recorder recorder;
  Prng chance;  // for what is left open by all specifications: junk fields, keys, numbers
  uint64_t address_generation = 1;  // counts changes of addresses and links of the world
  uint32_t next_qp = 0;             // queue pairs made so far
  WriteObserver* writes = nullptr;
  HangListener* hangs = nullptr;  // null: calls that hang let time pass

  void Note(RecordKind kind, uint8_t detail, uint32_t port_plus_1, uint32_t qp_plus_1,
            uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
    recorder.Add(
        {loop.now_ns(), kind, detail, static_cast<uint16_t>(port_plus_1), qp_plus_1, a, b, c});
  }
};

// A port as it is now. `now` starts as the topology has it and is changed by faults.
struct Port {
  Nic* nic = nullptr;
  uint32_t index = 0;   // in the world
  uint32_t number = 1;  // on its NIC
  rdma::TopologyPort now;
  rdma::PortLinkState link = rdma::PortLinkState::kActive;
  uint64_t first_down_ns = 0;  // 0: never was
  uint32_t hidden_gids = 0;    // bit n: entry n is not there for a while
  rdma::FaultTable faults{};
  uint64_t tx_free_ns = 0;      // when the wire is free
  uint64_t tx_capped_ns = 0;    // when a capped sender is free
  uint64_t rx_capped_ns = 0;    // when a capped receiver is free
  uint64_t fault_timer_ns = 0;  // when FaultDriver looks next; 0: no timer

  bool Up() const { return link == rdma::PortLinkState::kActive; }
  uint32_t id() const { return index + 1; }  // as in records
  // The entry of the GID table; empty when there is none.
  rdma::TopologyGid GidAt(uint32_t entry) const;
};

struct Host {
  std::string name;
  uint32_t index = 0;
  bool alive = true;
  std::vector<Nic*> nics;
};

// Hears what happens to a NIC. Context does.
class NicListener {
 public:
  virtual ~NicListener() = default;
  // `port` from 1; 0: the device. `qp` null: of the port or device.
  virtual void OnNicEvent(rdma::AsyncEvent event, uint32_t port, QueuePair* qp) = 0;
  virtual void OnNicRemoved() = 0;
};

class Nic {
 public:
  Nic(Shared* shared, Host* host, const rdma::TopologyDevice& config, uint32_t index,
      uint32_t first_port);

  const rdma::TopologyDevice& config() const { return config_; }
  Host* host() const { return host_; }
  uint32_t index() const { return index_; }  // in the world
  std::string Name() const { return host_->name + "/" + config_.name; }
  // `number` from 1; null: none.
  Port* port(uint32_t number);
  size_t port_count() const { return ports_.size(); }

  bool removed() const { return removed_; }
  void SetRemoved(bool removed);
  uint64_t quirks() const { return quirks_; }
  void set_quirks(uint64_t quirks) { quirks_ = quirks; }
  bool Has(rdma::Quirk quirk) const { return (quirks_ & quirk) != 0; }

  // Memory keys. `region.key` is chosen; 0: the table is full.
  uint32_t AddRegion(rdma::MemoryRegion region);
  void RemoveRegion(uint32_t key);
  // Null: no such key. Valid until the next change.
  const rdma::MemoryRegion* FindRegion(uint32_t key) const;
  size_t region_count() const { return region_count_; }

  uint32_t NewQpn();
  uint32_t NewQpOrder() { return next_order_++; }
  void AddQp(uint32_t qpn, QueuePair* qp) { qps_[qpn] = qp; }
  void RemoveQp(uint32_t qpn) { qps_.erase(qpn); }
  QueuePair* FindQp(uint32_t qpn) const;
  const std::map<uint32_t, QueuePair*>& qps() const { return qps_; }

  void AddListener(NicListener* listener) { listeners_.push_back(listener); }
  void RemoveListener(NicListener* listener);
  const std::vector<NicListener*>& listeners() const { return listeners_; }

  std::shared_ptr<void> user;  // what a layer above keeps with it

 private:
  Shared* const shared_;
  Host* const host_;
  const rdma::TopologyDevice config_;
  const uint32_t index_;
  std::vector<std::unique_ptr<Port>> ports_;
  bool removed_ = false;
  uint64_t quirks_ = 0;
  uint32_t next_order_ = 0;
  uint32_t next_qpn_ = 0;
  uint32_t key_tag_ = 0;
  size_t region_count_ = 0;
  std::vector<rdma::MemoryRegion> regions_;  // a key is index << 8 | tag
  std::vector<uint32_t> free_regions_;
  std::map<uint32_t, QueuePair*> qps_;
  std::vector<NicListener*> listeners_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_NIC_H_
