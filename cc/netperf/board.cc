#include "cc/netperf/board.h"

#include <sched.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace railhop::netperf {

std::unique_ptr<Board> Board::Make(int processes, int connections, uint64_t latencies,
                                   std::string* error) {
  const size_t handles = static_cast<size_t>(processes) * static_cast<size_t>(connections) * 2;
  const size_t size =
      sizeof(Head) + handles * (kHandleBytes + sizeof(Meeting)) + latencies * sizeof(uint32_t);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    *error = "no " + std::to_string(size) + " bytes of shared memory: " + strerror(errno);
    return nullptr;
  }
  std::unique_ptr<Board> board(new Board(processes, connections, memory, size));
  board->latencies_ = reinterpret_cast<uint32_t*>(board->handles_ + handles * kHandleBytes);
  return board;
}

Board::Board(int processes, int connections, void* memory, size_t size)
    : processes_(processes),
      connections_(connections),
      memory_(memory),
      size_(size),
      head_(new (memory) Head),
      meetings_(reinterpret_cast<Meeting*>(static_cast<uint8_t*>(memory) + sizeof(Head))),
      handles_(static_cast<uint8_t*>(memory) + sizeof(Head) +
               static_cast<size_t>(processes) * static_cast<size_t>(connections) * 2 *
                   sizeof(Meeting)) {
  Reset();
}

Board::~Board() { munmap(memory_, size_); }

uint8_t* Board::Handle(int listener, int connection) {
  const auto index = static_cast<size_t>(listener) * static_cast<size_t>(connections_) * 2 +
                     static_cast<size_t>(connection);
  return handles_ + index * kHandleBytes;
}

void Board::Reset() {
  head_->received.store(0, std::memory_order_relaxed);
  head_->stopping.store(0, std::memory_order_relaxed);
  for (int i = 0; i < processes_ * connections_ * 2; ++i) new (&meetings_[i]) Meeting;
}

bool Board::Barrier() {
  const uint32_t all = static_cast<uint32_t>(processes_) * ++round_;
  head_->arrived.fetch_add(1, std::memory_order_acq_rel);
  while (head_->arrived.load(std::memory_order_acquire) < all) {
    if (given_up()) return false;
    sched_yield();
  }
  return true;
}

}  // namespace railhop::netperf
