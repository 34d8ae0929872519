// Many processes, many queue pairs, every byte checked, processes killed at random.
//
// Each process has queue pairs to every other one and to itself. A sender writes messages of random
// length with an immediate into slots of its peer and then waits for a credit that the peer writes
// back after it has checked every byte and the guard zones around the slot. The parent kills some
// processes in the middle. What must hold: a reported message is whole and right, no byte outside
// of a slot changes, every posted request completes in bounded time (with an error if its peer
// died), and nobody hangs.
//
// Usage: fabric_stress [processes [queue pairs [seconds [kills [seed]]]]], inside `railhop-fabric
// run`.
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/fabric/bench/verbs_pair.h"

namespace railhop::fabric {
namespace {

constexpr int kMaxProcesses = 64;
constexpr int kMaxQps = 256;
constexpr int kWindow = 4;  // slots of a queue pair
constexpr size_t kLargeSlot = 48 << 10;
constexpr size_t kSmallSlot = 4 << 10;  // with very many queue pairs, so that they fit
constexpr int kManyQps = 4096;
constexpr size_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xa5;
constexpr auto kDeadline = std::chrono::seconds(60);  // for everything that must not hang; generous

// A queue pair's buffer: credits from the peer, our credit word to send, source slots, target
// slots.
constexpr size_t kCreditOffset = 0;
constexpr size_t kCreditSource = 64;
constexpr size_t kSourceOffset = 4096;

// Where the slots of a queue pair lie in its buffer.
struct Layout {
  explicit Layout(size_t bytes) : slot(bytes) {}
  size_t slot;
  size_t stride() const { return slot + 2 * kGuardBytes; }
  size_t source(uint64_t n) const { return kSourceOffset + kGuardBytes + n % kWindow * stride(); }
  size_t target(uint64_t n) const { return source(n) + kWindow * stride(); }
  size_t bytes() const { return kSourceOffset + 2 * kWindow * stride(); }
};

// What all processes see.
struct Board {
  std::atomic<int> ready;
  std::atomic<int> connected;
  std::atomic<int> stop;
  std::atomic<int> idle;  // survivors whose requests have all ended
  std::atomic<uint64_t> messages, bytes, wrong, errors_seen;
  std::atomic<int> dead[kMaxProcesses];
  Address address[kMaxProcesses][kMaxQps];
};

struct Plan {
  int processes = 16;
  int qps = 64;
  int seconds = 5;
  int kills = 4;
  uint64_t seed = 1;
  Layout layout() const { return Layout(processes * qps > kManyQps ? kSmallSlot : kLargeSlot); }
};

struct Partner {
  int process;
  int qp;
};

// Who queue pair `k` of process `p` talks to. Rounds of a tournament: in round r everybody has one
// partner, so the pairing is symmetric; with an odd man out, or in the last round, a process talks
// to itself.
Partner PartnerOf(const Plan& plan, int p, int k) {
  const int n = plan.processes;
  const int round = k % n;
  const int q = ((round - p) % n + n) % n;
  if (q != p) return {q, k};
  // Alone in this round: with itself, over this and its next lonely queue pair, or this one alone.
  return {p, k};
}

uint8_t PatternByte(uint64_t key, size_t i) {
  return static_cast<uint8_t>((key * 0x9e3779b97f4a7c15u >> 24) + i * 131 + (i >> 8) * 7);
}

uint64_t Key(int p, int k, uint64_t sequence) {
  return (static_cast<uint64_t>(p) << 48) ^ (static_cast<uint64_t>(k) << 36) ^ sequence;
}

// One queue pair of a worker, both directions.
class Link {
 public:
  Link(const OpenDevice& device, int process, int index, Partner partner, Layout layout,
       const PairOptions& options)
      : layout_(layout),
        end_(device, layout.bytes(), options),
        process_(process),
        index_(index),
        partner_(partner) {
    memset(end_.buffer() + kSourceOffset, kGuard, layout.bytes() - kSourceOffset);
  }
  Endpoint& end() { return end_; }
  Partner partner() const { return partner_; }
  bool failed() const { return failed_; }
  bool Idle() const { return failed_ || outstanding_ == 0; }

  void PostReceives() {
    for (int i = 0; i < 2 * kWindow; ++i) (void)end_.PostReceive(static_cast<uint64_t>(i), 0, 0);
  }

  void MaybeSend(Prng& prng) {
    const auto credit = *reinterpret_cast<volatile uint64_t*>(end_.buffer() + kCreditOffset);
    if (failed_ || sent_ - credit >= kWindow || outstanding_ >= 2 * kWindow) return;
    const auto length = static_cast<uint32_t>(
        prng.Next() % 8 == 0 ? prng.Next() % (layout_.slot + 1) : prng.Next() % 2048);
    uint8_t* source = end_.buffer() + layout_.source(sent_);
    for (size_t i = 0; i < length; ++i) source[i] = PatternByte(Key(process_, index_, sent_), i);
    // The immediate carries the length's low bits: the receiver knows what must have come.
    const int rc = end_.PostWrite(sent_, layout_.source(sent_), length, layout_.target(sent_), true,
                                  IBV_WR_RDMA_WRITE_WITH_IMM, length);
    if (rc != 0) {
      Fail();
      return;
    }
    ++sent_;
    ++outstanding_;
  }

  // Takes completions; true if there were any.
  bool Poll(Board& board) {
    ibv_wc wc[16];
    const int n = ibv_poll_cq(end_.cq(), 16, wc);
    for (int i = 0; i < n; ++i) Take(wc[i], board);
    return n > 0;
  }

 private:
  void Take(const ibv_wc& wc, Board& board) {
    if (wc.status != IBV_WC_SUCCESS) {
      board.errors_seen.fetch_add(1, std::memory_order_relaxed);
      if (board.dead[partner_.process].load() == 0) {
        fprintf(stderr, "stress: %d/%d: status %d though its peer %d lives\n", process_, index_,
                wc.status, partner_.process);
        board.wrong.fetch_add(1);
      }
      Fail();
      return;
    }
    if ((wc.opcode & IBV_WC_RECV) == 0) {
      --outstanding_;
      return;
    }
    Check(wc, board);
    ++received_;
    (void)end_.PostReceive(wc.wr_id, 0, 0);
    ReturnCredit();
  }

  void Check(const ibv_wc& wc, Board& board) {
    const uint32_t length = ntohl(wc.imm_data);
    uint8_t* target = end_.buffer() + layout_.target(received_);
    const uint64_t key = Key(partner_.process, partner_.qp, received_);
    size_t wrong = length != wc.byte_len || length > layout_.slot ? 1 : 0;
    for (size_t i = 0; wrong == 0 && i < length; ++i) wrong += target[i] != PatternByte(key, i);
    for (size_t i = 0; i < kGuardBytes; ++i) {
      wrong += target[i - kGuardBytes] != kGuard;
      wrong += target[layout_.slot + i] != kGuard;
    }
    if (wrong != 0) {
      fprintf(stderr, "stress: %d/%d: message %lu from %d/%d of %u bytes is wrong\n", process_,
              index_, static_cast<unsigned long>(received_), partner_.process, partner_.qp, length);
      board.wrong.fetch_add(1);
    }
    board.messages.fetch_add(1, std::memory_order_relaxed);
    board.bytes.fetch_add(length, std::memory_order_relaxed);
  }

  void ReturnCredit() {
    if (failed_) return;
    *reinterpret_cast<volatile uint64_t*>(end_.buffer() + kCreditSource) = received_;
    // Unsignalled: its completion is not looked at; an error comes all the same.
    if (end_.PostWrite(0, kCreditSource, 8, kCreditOffset, false) != 0) Fail();
  }

  void Fail() { failed_ = true; }

  const Layout layout_;
  Endpoint end_;
  const int process_;
  const int index_;
  const Partner partner_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  int outstanding_ = 0;
  bool failed_ = false;
};

bool Await(const std::atomic<int>& value, int at_least) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (value.load() < at_least) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(1000);
  }
  return true;
}

int Work(const Plan& plan, Board& board, int process) {
  Prng prng(plan.seed * 1000003 + static_cast<uint64_t>(process));
  const OpenDevice device("soft" + std::to_string(process % 4));
  std::vector<std::unique_ptr<Link>> links;
  PairOptions options;
  options.depth = 64;
  options.timeout = 12;  // 16.8 ms: a dead peer is noticed within 0.13 s
  for (int k = 0; k < plan.qps; ++k) {
    links.push_back(std::make_unique<Link>(device, process, k, PartnerOf(plan, process, k),
                                           plan.layout(), options));
    board.address[process][k] = links.back()->end().address();
  }
  board.ready.fetch_add(1);
  if (!Await(board.ready, plan.processes)) return 2;
  for (auto& link : links) {
    const Partner partner = link->partner();
    if (link->end().Connect(board.address[partner.process][partner.qp]) != 0) return 3;
    link->PostReceives();
  }
  board.connected.fetch_add(1);
  if (!Await(board.connected, plan.processes)) return 4;
  while (board.stop.load(std::memory_order_relaxed) == 0) {
    bool any = false;
    for (auto& link : links) {
      link->MaybeSend(prng);
      any |= link->Poll(board);
    }
    if (!any) sched_yield();
  }
  // Nothing new; what was posted must end.
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  bool told = false;
  for (;;) {
    bool idle = true;
    for (auto& link : links) {
      (void)link->Poll(board);
      idle &= link->Idle();
    }
    if (idle && !told) board.idle.fetch_add(1);
    told |= idle;
    // Nobody leaves while others may still be waiting for its answers.
    if (told && board.idle.load() >= plan.processes - plan.kills) break;
    if (std::chrono::steady_clock::now() > end) {
      fprintf(stderr, "stress: process %d hangs with requests that do not complete\n", process);
      return 5;
    }
    usleep(100);
  }
  return 0;
}

int Main(int argc, char** argv) {
  Plan plan;
  if (argc > 1) plan.processes = atoi(argv[1]);
  if (argc > 2) plan.qps = atoi(argv[2]);
  if (argc > 3) plan.seconds = atoi(argv[3]);
  if (argc > 4) plan.kills = atoi(argv[4]);
  if (argc > 5) plan.seed = strtoull(argv[5], nullptr, 0);
  if (plan.processes < 1 || plan.processes > kMaxProcesses || plan.qps < 1 || plan.qps > kMaxQps ||
      plan.seconds < 1 || plan.kills < 0 || plan.kills >= plan.processes) {
    fprintf(stderr,
            "fabric_stress: allowed: 1-%d processes, 1-%d queue pairs, 1 or more seconds, kills "
            "below the "
            "number of processes\n",
            kMaxProcesses, kMaxQps);
    return 2;
  }
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Board& board = *new (memory) Board{};
  Prng prng(plan.seed);
  std::vector<pid_t> workers;
  for (int p = 0; p < plan.processes; ++p) {
    const pid_t pid = fork();
    if (pid == 0) _exit(Work(plan, board, p));
    workers.push_back(pid);
  }
  if (!Await(board.connected, plan.processes))
    fprintf(stderr, "stress: not all processes connected\n");
  for (int i = 0; i < plan.kills + 1; ++i) {
    usleep(static_cast<useconds_t>(plan.seconds * 1'000'000 / (plan.kills + 1)));
    if (i == plan.kills) break;
    int victim = 0;
    do {
      victim = static_cast<int>(prng.Next() % static_cast<uint64_t>(plan.processes));
    } while (board.dead[victim].load() != 0);
    board.dead[victim].store(1);
    kill(workers[static_cast<size_t>(victim)], SIGKILL);
  }
  board.stop.store(1);
  int bad = 0;
  const auto end = std::chrono::steady_clock::now() + 2 * kDeadline;
  for (int p = 0; p < plan.processes; ++p) {
    int status = 0;
    pid_t done = 0;
    while ((done = waitpid(workers[static_cast<size_t>(p)], &status, WNOHANG)) == 0 &&
           std::chrono::steady_clock::now() < end) {
      usleep(1000);
    }
    if (done == 0) {
      fprintf(stderr, "stress: process %d hangs\n", p);
      kill(workers[static_cast<size_t>(p)], SIGKILL);
      waitpid(workers[static_cast<size_t>(p)], &status, 0);
      ++bad;
    } else if (board.dead[p].load() == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
      fprintf(stderr, "stress: process %d ended with status %x\n", p, status);
      ++bad;
    }
  }
  printf(
      "processes %d, queue pairs %d, killed %d: %lu messages, %lu bytes checked, %lu wrong, %d bad "
      "exits\n",
      plan.processes, plan.processes * plan.qps, plan.kills,
      static_cast<unsigned long>(board.messages.load()),
      static_cast<unsigned long>(board.bytes.load()),
      static_cast<unsigned long>(board.wrong.load()), bad);
  return bad == 0 && board.wrong.load() == 0 && board.messages.load() > 0 ? 0 : 1;
}

}  // namespace
}  // namespace railhop::fabric

int main(int argc, char** argv) { return railhop::fabric::Main(argc, argv); }
