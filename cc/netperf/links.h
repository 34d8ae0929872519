// A worker's plugin, its devices and its connections to the other workers.
//
// Process p sends to p + 1, the last one to the first (with two processes only if asked). All
// connections are made at once: neither end may wait for one while the peer waits for another.
#ifndef RAILHOP_CC_NETPERF_LINKS_H_
#define RAILHOP_CC_NETPERF_LINKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/netperf/board.h"
#include "cc/netperf/buffers.h"
#include "cc/netperf/net_plugin.h"
#include "cc/netperf/plan.h"
#include "cc/netperf/resident.h"

namespace railhop::netperf {

// One end of a connection.
struct Link {
  Link(int number_in, bool backward_in, Buffers buffers_in)
      : number(number_in), backward(backward_in), buffers(std::move(buffers_in)) {}

  int number;                // the same at both ends, unique in the session
  bool backward;             // from process 1 to 0
  void* comm = nullptr;      // the plugin's
  void* memory = nullptr;    // registration of `buffers`
  uint64_t sent_before = 0;  // groups of all earlier legs: patterns never come again
  Buffers buffers;
};

class Links {
 public:
  Links(const SessionPlan& plan, int process, Board* board);
  ~Links();

  // Loads, initialises, connects and registers. False and *error on failure.
  bool Open(std::string* error);
  // Closes all that is open and ends the plugin. False and *error for the first refusal.
  bool Close(std::string* error);

  NetPlugin& plugin() { return *plugin_; }
  const PluginFacts& facts() const { return facts_; }
  // Before the connections were made: plugin ready, buffers there.
  const Resident& resident_before() const { return resident_before_; }
  std::vector<Link>& sends() { return sends_; }
  std::vector<Link>& recvs() { return recvs_; }

 private:
  bool Start(std::string* error);
  bool ChooseDevices(int count, std::string* error);
  bool Listen(std::string* error);
  bool Connect(std::string* error);
  bool Register(std::string* error);
  void AddLinks();
  int DeviceOf(const Link& link) const;
  // Steps each connection that is still missing; false on failure.
  bool Step(int* missing, std::string* error);

  const SessionPlan plan_;
  const int process_;
  Board* const board_;
  std::unique_ptr<NetPlugin> plugin_;
  bool initialized_ = false;
  PluginFacts facts_;
  Resident resident_before_;
  std::vector<int> devices_;
  std::vector<Link> sends_;
  std::vector<Link> recvs_;
  std::vector<void*> listeners_;  // of recvs_
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_LINKS_H_
