// Tagged messages between the processes of a group, over every device of a net plugin.
//
// Each pair of processes has one connection of the plugin for each lane and direction; a message is
// cut into parts, which go over all lanes (message.h). Receives are always posted, so a message may
// come before anyone asked for it, and no order of sends and receives can hang two processes on
// each other. One thread drives the plugin; it sleeps while nothing is under way, since a plugin
// that survives faults has threads of its own for that.
//
// The hard case is the end: a process that has all it wants may not close while a peer's last bytes
// are still under way, or be resent after a fault. So each says goodbye and waits a little for the
// others' goodbye.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_MESSENGER_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_MESSENGER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "cc/netperf/net_plugin.h"
#include "python/railhop/_transport/inbox.h"
#include "python/railhop/_transport/lane.h"
#include "python/railhop/_transport/operation.h"

namespace railhop::transport {

// What a lane of a peer has carried.
struct LaneReport {
  int peer = 0;
  int lane = 0;
  int device = 0;
  LaneCounts sent;
  LaneCounts received;
};

// While bytes were under way nothing moved from `begin` to `end`: a fault, or a network that is
// held up. A peer that does not ask for its messages makes none, since receives are always posted.
struct Dip {
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;
};

class Messenger {
 public:
  // Shorter ones are not kept: the processor may have been busy.
  static constexpr int64_t kDipMinNs = 50'000'000;

  // `lanes` >= 1 connections for each peer and direction, over the plugin's devices in turn.
  // `kinds` are names of what callers do, for messages: both ends of a message must name the same.
  Messenger(std::unique_ptr<netperf::NetPlugin> plugin, int rank, int size, int lanes,
            std::vector<std::string> kinds);
  ~Messenger();

  // ---- Before any message; one thread. Failure (kPlugin, kTimeout, kMismatch).

  // What `peer` needs for Connect: a handle of kHandleBytes for each lane.
  std::string Listen(int peer);
  // Starts connecting to all others, whose handles for this rank these are (own place empty), and
  // goes on for at most `seconds`. True once all is connected: then messages may go. To be called
  // again otherwise.
  bool Connect(const std::vector<std::string>& handles, double seconds);

  // ---- Any thread, once connected. `data` has to stay until the operation is done or cancelled.

  std::shared_ptr<Operation> Send(int peer, uint32_t kind, uint64_t tag, const void* data,
                                  size_t size);
  // From `peer`, or from anyone if it is -1. The sizes of both ends must be equal.
  std::shared_ptr<Operation> Receive(int peer, uint32_t kind, uint64_t tag, void* data,
                                     size_t size);
  // Whether it is over within `seconds`. Failure if it went wrong.
  bool Wait(const Operation& operation, double seconds);
  // Ends it, whatever has become of it; its memory is free afterwards.
  void Cancel(const std::shared_ptr<Operation>& operation);
  // Says goodbye, waits for the others' at most `seconds`, and gives everything back. What is still
  // under way fails. May be repeated.
  void Close(double seconds);
  bool closed() const;

  std::vector<LaneReport> Report() const;
  // Of the last ones, oldest first.
  std::vector<Dip> Dips() const;

 private:
  struct Peer {
    std::vector<std::unique_ptr<SendLane>> sends;
    std::vector<std::unique_ptr<RecvLane>> recvs;
    std::vector<std::string> handles;  // the plugin may keep its state in them
    std::deque<std::shared_ptr<Operation>> queue;
    uint64_t serial = 0;
    size_t next_lane = 0;
    std::unique_ptr<Inbox> inbox;
    std::string problem;  // not empty: no new operation with it
    bool broken = false;  // no call of the plugin for it either
    std::shared_ptr<Operation> goodbye;
  };
  struct Submission {
    std::shared_ptr<Operation> operation;
    bool cancels = false;
  };

  std::shared_ptr<Operation> Submit(std::shared_ptr<Operation> operation);
  std::string Name(const char* call, int peer) const;
  std::string KindName(uint32_t kind) const;
  void RegisterAll();

  // The progress thread.
  void Run();
  bool TakeSubmissions();
  void Take(const std::shared_ptr<Operation>& operation);
  void TakeCancel(const std::shared_ptr<Operation>& operation);
  bool Advance(int rank, Peer* peer);
  bool Fill(Peer* peer);
  bool AdvanceSends(int rank, Peer* peer, bool* moved);
  bool AdvanceReceives(int rank, Peer* peer, bool* moved);
  void FinishMatched(const Inbox::Matched& complete);
  void Finish(const std::shared_ptr<Operation>& operation, FailureKind kind, std::string problem);
  void FailPeer(int rank, Peer* peer, bool broken, const std::string& problem);
  void SayGoodbye();
  bool EveryoneLeft() const;
  void EndAll();
  void Idle(int* rounds);
  void NoteDip(bool moved);

  const int rank_;
  const int lanes_;
  const std::vector<std::string> kinds_;
  std::unique_ptr<netperf::NetPlugin> plugin_;
  int devices_ = 0;
  std::vector<Peer> peers_;  // own place unused
  bool connected_ = false;

  // The progress thread's.
  WaitingReceives waiting_;
  std::unordered_set<std::shared_ptr<Operation>> active_;
  int64_t still_since_unix_ns_ = 0;  // 0: nothing is under way
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  std::deque<Submission> submissions_;
  bool closing_ = false;
  double goodbye_s_ = 0;
  bool ended_ = false;  // the thread takes nothing any more
  std::vector<LaneReport> reports_;
  std::deque<Dip> dips_;

  std::mutex done_mutex_;
  std::condition_variable done_;
};

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_MESSENGER_H_
