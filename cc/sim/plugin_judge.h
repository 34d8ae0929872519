// A judge at the NICs: sees every write that is posted and every one that lands, and knows which
// buffers wait for data.
//
// - What lands outside a buffer that waits is wrong, also if the bytes are the right ones.
// - Fence before replay: once a part of a buffer is posted a second time over another queue pair,
//   nothing of the first one may land in it any more.
// - An announcement never lands over a newer one.
#ifndef RAILHOP_CC_SIM_PLUGIN_JUDGE_H_
#define RAILHOP_CC_SIM_PLUGIN_JUDGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/sim/nic.h"
#include "cc/sim/queue_pair.h"
#include "cc/sim/transfer.h"

namespace railhop::sim {

class WriteJudge final : public WriteObserver {
 public:
  explicit WriteJudge(Violations* violations) : violations_(violations) {}

  // A receiver's memory. Until Open nothing may land in it.
  void Add(const void* data, size_t size, const std::string& name);
  void Remove(const void* data);
  // A receive into it is announced, or over.
  void Open(const void* data);
  void Close(const void* data);
  // A sender's clear-to-send entries: `size` bytes of 64-byte entries.
  void AddFifo(const void* data, size_t size, const std::string& name);
  void RemoveFifo(const void* data);

  // Parts of buffers that were posted again.
  uint64_t resent() const { return resent_; }

  void OnPostWrite(const QueuePair& qp, uint64_t address, uint64_t length) override;
  void OnWrite(const QueuePair& qp, uint64_t address, const uint8_t* bytes,
               uint32_t length) override;

 private:
  struct Part {
    uint64_t begin = 0, end = 0;
    uint32_t source_qpn = 0, target_qpn = 0;
  };
  struct Place {
    uint64_t end = 0;
    std::string name;
    bool open = false;
    bool complained = false;
    std::vector<Part> posted;  // in this order
  };
  struct Fifo {
    uint64_t end = 0;
    std::string name;
  };
  Place* Find(uint64_t address);

  Violations* const violations_;
  std::map<uint64_t, Place> places_;  // by begin
  std::map<uint64_t, Fifo> fifos_;
  uint64_t resent_ = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_JUDGE_H_
