// Memory that the processes of a session share: handles on their way from listener to connector, a
// barrier, and how far everyone is. Made before the workers are forked.
#ifndef RAILHOP_CC_NETPERF_BOARD_H_
#define RAILHOP_CC_NETPERF_BOARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cc/netperf/net_plugin.h"

namespace railhop::netperf {

class Board {
 public:
  // Null and *error if there is no memory.
  static std::unique_ptr<Board> Make(int processes, int connections, uint64_t latencies,
                                     std::string* error);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Of connection `connection` that `listener` accepts; backward ones count behind the others.
  uint8_t* Handle(int listener, int connection);
  // Round trips of a kPingPong leg, in ns.
  uint32_t* latencies() { return latencies_; }

  // Waits until all workers are here; false if the session was given up.
  bool Barrier();

  // Every worker stops what it does.
  void GiveUp() { head_->given_up.store(1, std::memory_order_relaxed); }
  bool given_up() const { return head_->given_up.load(std::memory_order_relaxed) != 0; }

  // Messages received in the leg, over all workers: the number of this one.
  uint64_t CountReceived() { return head_->received.fetch_add(1, std::memory_order_relaxed) + 1; }
  uint64_t received() const { return head_->received.load(std::memory_order_relaxed); }

  // Before a leg; no worker is in one.
  void Reset();

  // An endless leg ends: each connection's ends agree in its Meeting how many groups it has.
  void Stop() { head_->stopping.store(1, std::memory_order_relaxed); }
  bool stopping() const { return head_->stopping.load(std::memory_order_relaxed) != 0; }
  // Numbers are one above what they count; 0: not said yet.
  struct Meeting {
    std::atomic<uint64_t> sent{0};  // groups that the sender has begun; it begins no more
    std::atomic<uint64_t> end{0};   // groups of the leg, said by the receiver
  };
  // `connection`: Link::number.
  Meeting& MeetingOf(int connection) { return meetings_[connection]; }

 private:
  // Each on a cache line of its own. Relaxed but for the barrier: what is handed over by it is
  // handed over by `arrived`.
  struct Head {
    alignas(64) std::atomic<uint32_t> arrived{0};
    alignas(64) std::atomic<uint32_t> given_up{0};
    alignas(64) std::atomic<uint64_t> received{0};
    alignas(64) std::atomic<uint32_t> stopping{0};
  };

  Board(int processes, int connections, void* memory, size_t size);

  const int processes_;
  const int connections_;
  void* const memory_;
  const size_t size_;
  Head* const head_;
  Meeting* const meetings_;
  uint8_t* const handles_;
  uint32_t* latencies_ = nullptr;
  uint32_t round_ = 0;  // of this process
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_BOARD_H_
