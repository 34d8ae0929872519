// NCCL over one connection: what its two progress threads ask of the plugin, and the judge of it.
//
// The threads come by now and then, test what they wait for, send and receive what they may, and
// use their buffers for something else as soon as a request is done. So a byte that lands late,
// twice, outside or too early is a wrong byte, and the judge needs no look inside. One thread.
#ifndef RAILHOP_CC_SIM_PLUGIN_TRAFFIC_H_
#define RAILHOP_CC_SIM_PLUGIN_TRAFFIC_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/sim/memory.h"
#include "cc/sim/plugin_world.h"

namespace railhop::sim {

struct MessagePlan {
  uint32_t size = 0;
  uint32_t room = 0;  // of the receive; at least the size
  int tag = 0;
  uint8_t misalign = 0;
};

// A grouped receive: the messages in the order of its receives, and the order in which they are
// sent (those of one tag in the order of the receives).
struct GroupPlan {
  std::vector<MessagePlan> messages;  // 1..8
  std::vector<uint8_t> send_order;
};

// How a thread of NCCL comes by.
struct PacePlan {
  uint64_t pause_ns = 500;         // when something has happened
  uint64_t pause_max_ns = 100000;  // pauses double up to this while nothing does
  uint32_t outstanding = 8;        // requests at most, 1..32
  double idle = 0;                 // chance, after a group, to compute for idle_ns
  uint64_t idle_ns = 0;
};

struct TrafficPlan {
  std::string sender, receiver;             // hosts
  std::vector<int> send_parts, recv_parts;  // NICs of the net devices
  std::vector<GroupPlan> groups;
  PacePlan send_pace, recv_pace;
  uint64_t seed = 0;
  uint64_t start_ns = 0;          // since the world's start
  uint64_t close_ns = 0;          // from being done to the close
  bool deregister_first = false;  // before the close, as NCCL does
  bool close_alone = false;       // an end closes without knowing that the other is done
};

enum class EndState : uint8_t {
  kRunning,
  kDone,    // all that it wanted is done
  kFailed,  // a call has returned an error
  kClosed,
  kDead,  // its process is
};

class PluginTraffic;

// One end's progress thread.
class TrafficEnd : public Actor {
 public:
  EndState state() const { return state_; }
  uint64_t ended_ns() const { return ended_ns_; }        // when it was done or failed
  uint64_t progress_ns() const { return progress_ns_; }  // when last a request was done
  uint64_t requests() const { return requests_; }
  bool closed() const { return closed_; }
  datapath::Outcome outcome() const { return outcome_; }  // kFailed: the first error
  const std::string& what() const { return what_; }       // and of which call
  bool refused() const { return refused_; }

  void OnEvent(uint64_t arg) override;
  // Wakes it soon: something has happened that its thread would find at its next look.
  void Nudge();

 protected:
  TrafficEnd(PluginTraffic* traffic, PluginHost* host, engine::End end, const PacePlan& pace,
             uint64_t seed);

  // One visit. Whether anything has moved.
  virtual bool Visit() = 0;
  virtual bool Finished() const = 0;
  virtual datapath::Outcome Again() = 0;  // any call, after an error
  virtual absl::Status Close() = 0;
  // The connection has just ended in an error.
  virtual void OnFailed() {}

  void Fail(datapath::Outcome outcome, const std::string& what);
  absl::Status CloseInBound(runtime::ConnectionComm* comm,
                            const std::function<absl::Status()>& close);
  void Heed(datapath::Outcome outcome);
  void Violation(const std::string& text);

  PluginTraffic* const traffic_;
  PluginHost* const host_;
  const engine::End end_;
  const PacePlan pace_;
  Prng prng_;
  EndState state_ = EndState::kRunning;
  uint64_t progress_ns_ = 0;
  uint64_t requests_ = 0;
  uint64_t idle_until_ns_ = 0;

 private:
  void Schedule(uint64_t after_ns);
  void AfterEnd();

  datapath::Outcome outcome_ = datapath::Outcome::kOk;
  struct Closing {
    bool ended = false;
    absl::Status status;
  };
  std::shared_ptr<Closing> closing_;  // under way
  std::string what_;
  bool refused_ = false;  // memory was not registered; the connection is none the worse
  uint64_t ended_ns_ = 0;
  uint64_t pause_ns_;
  uint64_t vain_ = 0;  // visits since something moved
  uint64_t next_ns_ = 0;
  uint64_t close_at_ns_ = 0;
  bool closed_ = false;
};

class SendEnd;
class RecvEnd;

// A connection with its traffic and its judge.
class PluginTraffic final : public Actor {
 public:
  // `plan` outlives it.
  PluginTraffic(PluginWorld* world, Memory* memory, const TrafficPlan& plan, size_t index);
  ~PluginTraffic() override;

  // Makes the connection at the plan's time, then starts both ends.
  void Start();
  void OnEvent(uint64_t arg) override;

  PluginWorld* world() const { return world_; }
  Memory* memory() const { return memory_; }
  const TrafficPlan& plan() const { return plan_; }
  PluginConnection* connection() const { return connection_.get(); }
  // Null before it is made.
  TrafficEnd* send() const;
  TrafficEnd* recv() const;
  size_t index() const { return index_; }
  std::string Name() const;
  // It could not be made; why.
  const std::string& refused() const { return refused_; }
  // Both ends have ended, or it was not made.
  bool Ended() const;
  bool Closed() const;
  // Its peer has closed for reasons of its own.
  bool IsLeftAlone(engine::End end) const;
  uint64_t bytes() const { return bytes_; }

  // At the end of a run: buffers that were written after their time.
  void CheckBuffers();

  uint64_t PatternOf(size_t group, size_t message) const;

 private:
  friend class RecvEnd;

  PluginWorld* const world_;
  Memory* const memory_;
  const TrafficPlan& plan_;
  const size_t index_;
  std::unique_ptr<PluginConnection> connection_;
  std::unique_ptr<SendEnd> send_;
  std::unique_ptr<RecvEnd> recv_;
  std::string refused_;
  uint64_t bytes_ = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_TRAFFIC_H_
