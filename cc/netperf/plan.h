// What a session of workers does, and what came of it.
//
// A session is a set of processes with one plugin and its connections. Legs are run in it, one
// after the other: each is one kind of traffic of one size.
#ifndef RAILHOP_CC_NETPERF_PLAN_H_
#define RAILHOP_CC_NETPERF_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace railhop::netperf {

inline constexpr int kProcessesMax = 64;
inline constexpr int kMarksMax = 64;  // messages of a leg at which the parent is told

struct SessionPlan {
  std::string plugin;              // path of the .so
  int api = 0;                     // version; 0: the newest that it has
  std::vector<int> devices = {0};  // NCCL's device numbers; connections take them in turn
  bool fuse = false;               // make one virtual device of `devices`
  int processes = 2;
  int connections = 1;         // from each process to the next
  bool backwards = false;      // with two processes: also from the second to the first
  uint64_t size_max = 65536;   // of the legs
  int in_flight_max = 8;       // of the legs
  int group_max = 1;           // of the legs
  bool touch_buffers = false;  // have their memory resident before connecting
  uint64_t latencies_max = 0;  // round trips of the longest leg
  double timeout_s = 60;       // for connecting, and without a message
  std::vector<std::pair<std::string, std::string>> environment;         // of the workers
  std::vector<std::pair<std::string, std::string>> second_environment;  // process 1: these, too
  std::vector<std::string> hosts;  // RAILHOP_FABRIC_HOST of the processes, in turn
  std::string gaps;                // file that long gaps are appended to; empty: none
  int children = 0;                // that each worker forks once it is connected
  bool outlive = false;            // a worker that is killed does not end what the others do
};

enum class Mode : uint32_t { kStream, kPingPong };

// One stretch of traffic. Plain data: it goes to the workers through a socket.
struct Leg {
  Mode mode = Mode::kStream;
  uint64_t size = 65536;   // bytes of a message
  uint64_t count = 1000;   // messages in all (kPingPong: round trips), rounded up to whole groups
  int in_flight = 8;       // requests under way on a connection
  int group = 1;           // receives in one irecv
  bool backwards = false;  // kStream: use these connections too
  bool check_all = true;   // every byte of every message; else the last ones and the guard zones
  bool ragged = false;     // some messages are shorter than their receive
  bool mixed = false;      // messages of all sizes from 0 to `size`, most of them odd
  bool endless = false;    // until Board::Stop; `count` is no bound then
  // Tell the parent when so many have been received; ascending, 0 behind the last.
  uint64_t marks[kMarksMax] = {};
  int64_t gap_min_ns = 0;  // gaps from here on are written to SessionPlan::gaps
  // After so many messages a worker stays away from the plugin for so long; 0: never.
  uint64_t pause_every = 0;
  int64_t pause_ns = 0;
  bool pause_sender = false;
  bool pause_receiver = false;
};

// Messages of a leg are numbered within their connection; some of a ragged leg are short.
constexpr uint64_t MessageSize(const Leg& leg, uint64_t message) {
  if (leg.mixed) {
    const uint64_t size = leg.size;
    const uint64_t some[] = {size, 0, size - size / 3, 1, size / 2 | 1, size / 5, size / 9 | 1};
    const uint64_t one = some[message % 7];
    return one < size ? one : size;
  }
  return leg.ragged && message % 4 == 1 ? leg.size - leg.size / 3 : leg.size;
}

// Plain data, as Leg. Of one worker or, added up, of a session.
struct Counts {
  uint64_t messages = 0;  // received
  uint64_t bytes = 0;
  uint64_t wrong_bytes = 0;    // in messages, behind short ones and in guard zones
  uint64_t wrong_sizes = 0;    // that test() gave
  uint64_t errors = 0;         // calls without success, processes lost, silence beyond the timeout
  int64_t longest_gap_ns = 0;  // between two messages received on one connection
  uint64_t longest_gap_after = 0;  // messages of that connection before it
  int64_t longest_turn_ns = 0;     // in the plugin's calls for one connection, in a row
  int64_t start_ns = 0;            // first and last moment; CLOCK_MONOTONIC
  int64_t end_ns = 0;

  void Add(const Counts& other);
  bool Good() const { return errors == 0 && wrong_bytes == 0 && wrong_sizes == 0; }
};

struct Outcome {
  Counts counts;
  std::string problem;                 // the first thing that went wrong; empty if none
  std::vector<double> round_trips_us;  // sorted; kPingPong only
  // SessionPlan::outlive: what the others said after a worker was killed, and how long after.
  std::string after_death;
  int64_t after_death_ns = 0;

  bool Good() const { return counts.Good() && problem.empty(); }
  double Seconds() const { return static_cast<double>(counts.end_ns - counts.start_ns) / 1e9; }
};

// What workers still had when all was closed, beyond what they had before they loaded the plugin.
struct Leftovers {
  int threads = 0;
  int descriptors = 0;
  char names[200] = {};  // of both, as far as they fit
};

// What the plugin says of itself.
struct PluginFacts {
  int api = 0;
  char name[32] = {};
  int devices = 0;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_PLAN_H_
