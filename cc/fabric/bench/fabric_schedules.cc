// Random fault schedules over two processes, every byte checked.
//
// Each schedule is drawn from a seed: a workload of writes, writes with immediate, sends, reads and
// atomics on one RC queue pair, and faults of every kind that the fabric knows, put in by the same
// words that users type. The far process only receives. All memory that matters is shared with the
// parent, which judges when both have ended:
//
//   - what the requester was told is done lies at the responder, byte for byte, and was reported
//   once, in order;
//   - what failed is written in part or not at all, and never outside of its place;
//   - atomics took effect once each; reads returned what was there;
//   - every request completed in bounded time, unless a fault says that it never does (wedge,
//   kill).
//
// Schedules whose faults depend on counts and seeds alone are run twice now and then, and their
// event logs must be equal.
//
// Usage: fabric_schedules [--schedules N] [--seed S] [--verbose]; the library under LD_LIBRARY_PATH
// is used.
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/fabric/bench/verbs_pair.h"
#include "cc/fabric/control.h"
#include "cc/rdma_model/topology.h"

namespace railhop::fabric {
namespace {

constexpr int kMaxMessages = 48;
constexpr uint32_t kMaxBytes = 80 << 10;
constexpr size_t kGuard = 64;
constexpr size_t kStride = kMaxBytes + 2 * kGuard;
constexpr uint8_t kUntouched = 0xee;
constexpr auto kDeadline = std::chrono::seconds(40);

enum class Op : uint8_t { kWrite, kWriteImm, kSend, kRead, kAdd };

struct Message {
  Op op;
  uint32_t length;
};

// One schedule, from its seed alone.
struct Schedule {
  uint64_t seed = 0;
  std::vector<Message> messages;
  std::vector<std::string> faults;
  int window = 1;
  bool repeatable = true;  // no fault depends on time
  bool may_stall = false;  // a fault makes requests that never complete
  bool may_kill = false;
};

enum class Outcome : uint32_t { kPending = 0, kDone = 1, kFailed = 2 };

// Shared between parent, requester and responder; the two arenas are the registered memory.
struct Board {
  std::atomic<int> failed_setup, ready, stop, finished;
  Address address[2];
  std::atomic<uint32_t> outcome[kMaxMessages];   // Outcome, of the requester
  std::atomic<uint32_t> received[kMaxMessages];  // by the responder, in order of its completions
  std::atomic<uint32_t> received_length[kMaxMessages];
  std::atomic<uint32_t> receive_count;
  std::atomic<uint64_t> originals[kMaxMessages];  // of atomics
};

size_t Slot(int message) { return static_cast<size_t>(message) * kStride + kGuard; }
constexpr size_t kArena = kMaxMessages * kStride + 4096;
constexpr size_t kCounter = kMaxMessages * kStride + 1024;

uint8_t Pattern(uint64_t seed, int message, size_t i) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(message) * 0xbf58476d1ce4e5b9;
  return static_cast<uint8_t>((x >> 32) + i * 197 + (i >> 8) * 31);
}

std::string Draw(Prng& prng, const std::vector<std::string>& words) {
  return words[prng.Below(words.size())];
}

// A fault that depends on counts and seeds only.
std::string RepeatableFault(Prng& prng) {
  const std::string device = prng.Below(2) == 0 ? "soft0 " : "soft1 ";
  const std::string n = std::to_string(1 + prng.Below(40));
  const std::string few = std::to_string(1 + prng.Below(6));
  const std::string what = Draw(prng, {"", " data", " acks"});
  const std::string way = Draw(prng, {"", " tx", " rx"});
  const std::string seed = " seed " + std::to_string(prng.Below(1000));
  switch (prng.Below(8)) {
    case 0:
      return device + "loss" + way + what + " " + Draw(prng, {"1%", "5%", "20%"}) + seed;
    case 1:
      return device + "duplicate" + way + what + " " + Draw(prng, {"2%", "30%"}) + seed;
    case 2:
      return device + "loss" + way + what + " packet " + n;
    case 3:
      return device + "blackhole" + way + what + " after " + n + " packets count " + few;
    case 4:
      return device + "complete status " +
             Draw(prng, {"rem_op_err", "retry_exc_err", "loc_qp_op_err"}) + " after " + n +
             " messages";
    case 5:
      return device + "loss" + way + what + " count " + few;
    case 6:
      return device + "down after " + n + " messages";
    default:
      return device + "blackhole" + way + what + " after " + n + " messages";
  }
}

std::string TimedFault(Prng& prng) {
  const std::string device = prng.Below(2) == 0 ? "soft0 " : "soft1 ";
  const std::string n = std::to_string(1 + prng.Below(40));
  switch (prng.Below(9)) {
    case 0:
      return device + "delay 200us jitter 300us " + Draw(prng, {"10%", "100%"});
    case 1:
      return device + "reorder by " + std::to_string(1 + prng.Below(4)) + " 10%";
    case 2:
      return device + "hold packet " + n + " for 30ms";
    case 3:
      return device + "cap " + Draw(prng, {"200Mb/s", "2Gb/s"});
    case 4:
      return device + "down after " + n + " messages for 15ms";
    case 5:
      return device + "flap every 10ms for 50ms";
    case 6:
      return device + "gid linklocal after " + n + " messages for 10ms";
    case 7:
      return device + "blackhole for 10ms";
    default:
      return device + "remove after " + n + " messages";
  }
}

Schedule DrawSchedule(uint64_t seed) {
  Schedule s;
  s.seed = seed;
  Prng prng(seed);
  const auto count = static_cast<int>(4 + prng.Below(kMaxMessages - 3));
  for (int i = 0; i < count; ++i) {
    const auto op = static_cast<Op>(prng.Below(5));
    const auto length =
        static_cast<uint32_t>(prng.Below(4) == 0 ? prng.Below(kMaxBytes + 1) : prng.Below(9000));
    s.messages.push_back({op, op == Op::kAdd ? 8 : length});
  }
  s.repeatable = prng.Below(3) != 0;
  // What a program posts between two timeouts depends on time; all at once, or one by one, does
  // not.
  s.window = static_cast<int>(1 + prng.Below(8));
  if (s.repeatable) s.window = prng.Below(2) == 0 ? 1 : count;
  const auto faults = prng.Below(4);
  for (uint64_t i = 0; i < faults; ++i) {
    s.faults.push_back(s.repeatable || prng.Below(2) == 0 ? RepeatableFault(prng)
                                                          : TimedFault(prng));
  }
  if (prng.Below(20) == 0) {
    s.may_stall = true;
    s.faults.push_back("soft0 wedge after " + std::to_string(1 + prng.Below(20)) +
                       " messages sent");
  } else if (prng.Below(20) == 0) {
    s.may_kill = true;
    const std::string victim = prng.Below(2) == 0 ? "soft0 kill tx" : "soft1 kill rx";
    s.faults.push_back(victim + " after " + std::to_string(1 + prng.Below(20)) + " messages");
  }
  return s;
}

uint32_t AccessAll() {
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
         IBV_ACCESS_REMOTE_ATOMIC;
}

PairOptions Options(uint64_t seed) {
  PairOptions options;
  options.depth = kMaxMessages + 1;
  options.timeout = 11;  // 8.4 ms; three times that until an error
  options.retry_cnt = 2;
  uint64_t state = seed;
  options.start_psn = static_cast<uint32_t>(SplitMix64(&state) | 1);
  return options;
}

bool WaitFor(const std::atomic<int>& value, int at_least) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (value.load() < at_least) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(50);
  }
  return true;
}

// Registers the shared arena next to the endpoint's own (unused) buffer.
struct Node {
  Node(const std::string& device_name, uint8_t* memory, uint64_t seed)
      : device(device_name), end(device, 4096, Options(seed)), arena(memory) {
    mr = ibv_reg_mr(device.pd(), arena, kArena, static_cast<int>(AccessAll()));
  }
  ~Node() { ibv_dereg_mr(mr); }
  Address address() const {
    Address a = end.address();
    a.addr = reinterpret_cast<uint64_t>(arena);
    a.rkey = mr->rkey;
    return a;
  }
  OpenDevice device;
  Endpoint end;
  uint8_t* arena;
  ibv_mr* mr = nullptr;
};

int Respond(const Schedule& schedule, Board& board, uint8_t* arena) {
  Node node("soft1", arena, schedule.seed);
  board.address[1] = node.address();
  board.ready.fetch_add(1);
  if (!WaitFor(board.ready, 2) || node.end.Connect(board.address[0]) != 0) return 3;
  for (size_t i = 0; i < schedule.messages.size(); ++i) {
    const Op op = schedule.messages[i].op;
    if (op != Op::kSend && op != Op::kWriteImm) continue;
    ibv_sge sge = {reinterpret_cast<uint64_t>(arena + Slot(static_cast<int>(i))), kMaxBytes,
                   node.mr->lkey};
    ibv_recv_wr wr = {};
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = op == Op::kSend ? 1 : 0;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(node.end.qp(), &wr, &bad) != 0) return 4;
  }
  board.ready.fetch_add(1);
  while (true) {
    const bool last = board.stop.load() != 0;
    ibv_wc wc[8];
    int n = 0;
    while ((n = ibv_poll_cq(node.end.cq(), 8, wc)) > 0) {
      for (int i = 0; i < n; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) continue;
        const uint32_t at = board.receive_count.load();
        if (at >= kMaxMessages) return 5;
        board.received[at].store(static_cast<uint32_t>(wc[i].wr_id));
        board.received_length[at].store(wc[i].byte_len);
        board.receive_count.store(at + 1);
      }
    }
    if (last) return 0;
    usleep(100);
  }
}

// The work request of message `i`; `sge` must live as long as it.
ibv_send_wr RequestOf(const Node& node, const Schedule& schedule, const Address& peer, int i,
                      ibv_sge* sge) {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_SEND, IBV_WR_RDMA_READ,
                                               IBV_WR_ATOMIC_FETCH_AND_ADD};
  const Message& m = schedule.messages[static_cast<size_t>(i)];
  *sge = {reinterpret_cast<uint64_t>(node.arena + Slot(i)), m.length, node.mr->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = static_cast<uint64_t>(i);
  wr.sg_list = sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.opcode = kOpcodes[static_cast<int>(m.op)];
  wr.imm_data = htonl(static_cast<uint32_t>(i));
  if (m.op == Op::kAdd) {
    wr.wr.atomic.remote_addr = peer.addr + kCounter;
    wr.wr.atomic.compare_add = 1;
    wr.wr.atomic.rkey = peer.rkey;
  } else {
    wr.wr.rdma.remote_addr = peer.addr + Slot(i);
    wr.wr.rdma.rkey = peer.rkey;
  }
  return wr;
}

// Posts messages [first, first + count) in one call.
int PostMessages(Node& node, const Schedule& schedule, const Address& peer, int first, int count) {
  std::vector<ibv_sge> sges(static_cast<size_t>(count));
  std::vector<ibv_send_wr> wrs;
  for (int i = 0; i < count; ++i) {
    wrs.push_back(RequestOf(node, schedule, peer, first + i, &sges[static_cast<size_t>(i)]));
  }
  for (size_t i = 0; i + 1 < wrs.size(); ++i) wrs[i].next = &wrs[i + 1];
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(node.end.qp(), wrs.data(), &bad);
}

int Request(const Schedule& schedule, Board& board, uint8_t* arena) {
  Node node("soft0", arena, schedule.seed);
  board.address[0] = node.address();
  board.ready.fetch_add(1);
  if (!WaitFor(board.ready, 2) || node.end.Connect(board.address[1]) != 0) return 3;
  if (!WaitFor(board.ready, 4)) return 3;  // the responder's receives, and the faults
  const auto count = static_cast<int>(schedule.messages.size());
  const auto end =
      std::chrono::steady_clock::now() + (schedule.may_stall ? std::chrono::seconds(1) : kDeadline);
  int posted = 0;
  int done = 0;
  bool failed = false;
  while (done < posted || (posted < count && !failed)) {
    const int room = std::min(count - posted, schedule.window - (posted - done));
    if (room > 0 && !failed) {
      failed = PostMessages(node, schedule, board.address[1], posted, room) != 0;
      if (!failed) posted += room;
    }
    ibv_wc wc[8];
    const int n = ibv_poll_cq(node.end.cq(), 8, wc);
    if (n < 0) return 6;
    for (int i = 0; i < n; ++i) {
      const bool good = wc[i].status == IBV_WC_SUCCESS;
      auto& outcome = board.outcome[wc[i].wr_id];
      if (outcome.load() != static_cast<uint32_t>(Outcome::kPending)) return 7;  // completed twice
      if (schedule.messages[wc[i].wr_id].op == Op::kAdd && good) {
        uint64_t original = 0;
        memcpy(&original, node.arena + Slot(static_cast<int>(wc[i].wr_id)), 8);
        board.originals[wc[i].wr_id].store(original);
      }
      outcome.store(static_cast<uint32_t>(good ? Outcome::kDone : Outcome::kFailed));
      failed |= !good;
      ++done;
    }
    if (n == 0 && std::chrono::steady_clock::now() > end) return schedule.may_stall ? 0 : 8;
  }
  return 0;
}

class Run {
 public:
  explicit Run(const Schedule& schedule) : schedule_(schedule) {}

  // Runs the schedule on a fresh fabric; empty, or what is wrong.
  std::string Go();
  const std::string& log() const { return log_; }
  int completed() const { return completed_; }

 private:
  std::string Judge(Board& board, const uint8_t* near, const uint8_t* far) const;
  std::string JudgeReceives(const Board& board) const;
  std::string JudgeBytes(const Board& board, const uint8_t* near, const uint8_t* far, int i) const;
  void KeepLog(const DirectoryHandle& directory);

  const Schedule& schedule_;
  std::string log_;
  int completed_ = 0;
};

void Fill(const Schedule& schedule, uint8_t* near, uint8_t* far) {
  memset(near, kUntouched, kArena);
  memset(far, kUntouched, kArena);
  memset(far + kCounter, 0, 8);
  for (int i = 0; i < static_cast<int>(schedule.messages.size()); ++i) {
    const Message& m = schedule.messages[static_cast<size_t>(i)];
    if (m.op == Op::kAdd) continue;
    uint8_t* source = m.op == Op::kRead ? far : near;
    for (size_t k = 0; k < m.length; ++k) source[Slot(i) + k] = Pattern(schedule.seed, i, k);
  }
}

std::string Run::Go() {
  std::string error;
  FabricOptions options;
  options.name = "schedule" + std::to_string(getpid());
  options.topology = rdma::DefaultTopology();
  options.seed = schedule_.seed;
  const auto control = Control::Create(options, &error);
  if (control == nullptr) return error;
  setenv("RAILHOP_FABRIC", control->directory().Reference().c_str(), 1);
  const size_t bytes = sizeof(Board) + 2 * kArena + 8192;
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) return "mmap failed";
  auto* near = memory;
  auto* far = memory + kArena;
  Board& board = *new (memory + (2 * kArena + 63) / 64 * 64) Board{};
  Fill(schedule_, near, far);
  pid_t pids[2];
  for (int i = 0; i < 2; ++i) {
    pids[i] = fork();
    if (pids[i] == 0)
      _exit(i == 0 ? Request(schedule_, board, near) : Respond(schedule_, board, far));
  }
  std::string wrong;
  if (!WaitFor(board.ready, 3)) wrong = "the processes did not get ready";
  for (const std::string& fault : schedule_.faults) {
    if (!control->Fault(fault, &error)) wrong = "fault '" + fault + "': " + error;
  }
  board.ready.fetch_add(1);
  bool ended[2] = {false, false};
  int status[2] = {0, 0};
  const auto end = std::chrono::steady_clock::now() + 2 * kDeadline;
  while (!ended[0] || !ended[1]) {
    for (int i = 0; i < 2; ++i) {
      if (!ended[i]) ended[i] = waitpid(pids[i], &status[i], WNOHANG) == pids[i];
    }
    if (ended[0]) board.stop.store(1);
    (void)control->RunDue();
    if (std::chrono::steady_clock::now() > end) {
      wrong = "it hangs";
      for (int i = 0; i < 2; ++i) {
        if (!ended[i]) kill(pids[i], SIGKILL);
      }
    }
    usleep(200);
  }
  for (int i = 0; i < 2 && wrong.empty(); ++i) {
    const bool killed =
        WIFSIGNALED(status[i]) && WTERMSIG(status[i]) == SIGKILL && schedule_.may_kill;
    if (!killed && (!WIFEXITED(status[i]) || WEXITSTATUS(status[i]) != 0)) {
      wrong = std::string(i == 0 ? "requester" : "responder") + " ended with status " +
              std::to_string(status[i]);
    }
  }
  if (wrong.empty()) wrong = Judge(board, near, far);
  for (const auto& outcome : board.outcome)
    completed_ += outcome.load() == static_cast<uint32_t>(Outcome::kDone);
  KeepLog(control->directory());
  munmap(memory, bytes);
  return wrong;
}

// What must be the same in every run: not the times.
void Run::KeepLog(const DirectoryHandle& directory) {
  uint64_t cursor = 0;
  while (const auto record = directory.ReadLog(&cursor)) {
    // Who carries out a port's fall, the process that hit it or the fabric's owner, is a race; only
    // its place in the log depends on it.
    const auto kind = static_cast<rdma::LogKind>(record->kind);
    if (kind == rdma::LogKind::kPortState || kind == rdma::LogKind::kEvent) continue;
    log_ += std::to_string(record->device) + " " + std::to_string(record->port) + " " +
            std::to_string(record->qp_order) + " " + std::to_string(record->kind) + " " +
            std::to_string(record->psn) + " " + std::to_string(record->count) + " " +
            std::to_string(record->message) + " " + std::to_string(record->arg) + "\n";
  }
}

std::string Run::Judge(Board& board, const uint8_t* near, const uint8_t* far) const {
  uint64_t added = 0;
  uint64_t tried = 0;
  uint64_t next_original = 0;
  for (int i = 0; i < static_cast<int>(schedule_.messages.size()); ++i) {
    if (std::string wrong = JudgeBytes(board, near, far, i); !wrong.empty()) return wrong;
    if (schedule_.messages[static_cast<size_t>(i)].op != Op::kAdd) continue;
    const auto outcome = static_cast<Outcome>(board.outcome[i].load());
    ++tried;
    if (outcome != Outcome::kDone) continue;
    ++added;
    if (board.originals[i].load() != next_original++)
      return "atomic " + std::to_string(i) + " returned a wrong value";
  }
  uint64_t counter = 0;
  memcpy(&counter, far + kCounter, 8);
  if (counter < added || counter > tried) return "the counter is " + std::to_string(counter);
  return JudgeReceives(board);
}

std::string Run::JudgeBytes(const Board& board, const uint8_t* near, const uint8_t* far,
                            int i) const {
  const Message& m = schedule_.messages[static_cast<size_t>(i)];
  if (m.op == Op::kAdd) return "";
  const uint8_t* target = (m.op == Op::kRead ? near : far) + Slot(i);
  const bool done = board.outcome[i].load() == static_cast<uint32_t>(Outcome::kDone);
  for (size_t k = 0; k < m.length; ++k) {
    const bool right = target[k] == Pattern(schedule_.seed, i, k);
    if (!right && (done || target[k] != kUntouched)) {
      return "message " + std::to_string(i) + " is wrong at byte " + std::to_string(k);
    }
  }
  for (size_t k = 0; k < kGuard; ++k) {
    if (target[-1 - static_cast<ptrdiff_t>(k)] != kUntouched)
      return "bytes in front of message " + std::to_string(i);
  }
  for (size_t k = m.length; k < kMaxBytes + kGuard; ++k) {
    if (target[k] != kUntouched) return "bytes behind message " + std::to_string(i);
  }
  return "";
}

std::string Run::JudgeReceives(const Board& board) const {
  std::vector<int> expected;
  for (int i = 0; i < static_cast<int>(schedule_.messages.size()); ++i) {
    const Op op = schedule_.messages[static_cast<size_t>(i)].op;
    if (op == Op::kSend || op == Op::kWriteImm) expected.push_back(i);
  }
  const uint32_t count = board.receive_count.load();
  if (count > expected.size()) return "more receives than sends";
  for (uint32_t at = 0; at < count; ++at) {
    const int i = expected[at];
    if (board.received[at].load() != static_cast<uint32_t>(i))
      return "receive " + std::to_string(at) + " out of order";
    if (board.received_length[at].load() != schedule_.messages[static_cast<size_t>(i)].length) {
      return "receive " + std::to_string(at) + " has a wrong length";
    }
  }
  if (schedule_.may_kill) return "";  // a dead responder reports nothing
  for (uint32_t at = count; at < expected.size(); ++at) {
    if (board.outcome[expected[at]].load() == static_cast<uint32_t>(Outcome::kDone)) {
      return "message " + std::to_string(expected[at]) + " was done and never received";
    }
  }
  return "";
}

int Main(int argc, char** argv) {
  uint64_t schedules = 100;
  uint64_t first = 1;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--schedules" && i + 1 < argc) {
      schedules = strtoull(argv[++i], nullptr, 0);
    } else if (word == "--seed" && i + 1 < argc) {
      first = strtoull(argv[++i], nullptr, 0);
    } else if (word == "--verbose") {
      verbose = true;
    } else {
      fprintf(stderr, "fabric_schedules: '%s'; allowed: --schedules N, --seed S, --verbose\n",
              word.c_str());
      return 2;
    }
  }
  uint64_t violations = 0;
  uint64_t faults = 0;
  uint64_t completed = 0;
  uint64_t repeated = 0;
  for (uint64_t seed = first; seed < first + schedules; ++seed) {
    const Schedule schedule = DrawSchedule(seed);
    faults += schedule.faults.size();
    Run run(schedule);
    std::string wrong = run.Go();
    completed += static_cast<uint64_t>(run.completed());
    if (wrong.empty() && schedule.repeatable && !schedule.faults.empty() && seed % 4 == 0) {
      Run again(schedule);
      wrong = again.Go();
      if (wrong.empty() && again.log() != run.log()) {
        wrong = "another run of the seed has another log:\n--- first\n" + run.log() +
                "--- second\n" + again.log();
      }
      ++repeated;
    }
    if (verbose || !wrong.empty()) {
      printf("seed %lu: %zu messages", static_cast<unsigned long>(seed), schedule.messages.size());
      for (const std::string& fault : schedule.faults) printf("; %s", fault.c_str());
      printf(": %s\n", wrong.empty() ? "good" : wrong.c_str());
    }
    if (!wrong.empty()) {
      ++violations;
      printf("repeat with: fabric_schedules --schedules 1 --verbose --seed %lu\n",
             static_cast<unsigned long>(seed));
    }
    fflush(stdout);
  }
  printf("%lu schedules, %lu faults, %lu messages done, %lu run twice, %lu violations\n",
         static_cast<unsigned long>(schedules), static_cast<unsigned long>(faults),
         static_cast<unsigned long>(completed), static_cast<unsigned long>(repeated),
         static_cast<unsigned long>(violations));
  return violations == 0 && completed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace railhop::fabric

int main(int argc, char** argv) { return railhop::fabric::Main(argc, argv); }
