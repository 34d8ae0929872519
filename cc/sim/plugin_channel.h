// control::Channel between simulated hosts: sessions over a network that delays, loses and ends
// them.
//
// Every message goes through the codec. Within a session the order is kept and nothing is lost; a
// session ends with all that is under way, at one end earlier than at the other, and a new one
// comes after a while. TCP may stand still without ending, or have no way at all.
#ifndef RAILHOP_CC_SIM_PLUGIN_CHANNEL_H_
#define RAILHOP_CC_SIM_PLUGIN_CHANNEL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/prng.h"
#include "cc/control/channel.h"
#include "cc/sim/plugin_plan.h"
#include "cc/sim/plugin_world.h"

namespace railhop::sim {

struct ControlNetOptions {
  uint64_t delay_ns = 20'000;  // of a message, at least
  // Nothing heard for so long: kSilent, and a session that stands still is given up.
  uint64_t silent_ns = 3'000'000'000;
  uint64_t dead_after_ns = 2'000'000'000;  // refused for so long: kDead
};

class SimChannel;

// What lies between all hosts.
class ControlNet final : public Actor {
 public:
  ControlNet(PluginWorld* world, const ControlNetOptions& options, uint64_t seed);
  ~ControlNet() override;

  // The host's end. `wake` is called when Poll has something.
  SimChannel* Open(PluginHost* host, std::function<void()> wake);
  void Start(const ChannelFault& fault);
  // All faults end.
  void Heal();
  // A process dies; its kernel says so, or (silently) the whole host is gone.
  void Kill(PluginHost* host, bool silently);

  // Whether these two ever had a session.
  bool EverUp(size_t a, size_t b);
  uint64_t messages() const { return messages_; }

  void OnEvent(uint64_t arg) override;

 private:
  friend class SimChannel;
  struct Pair;
  struct Step;

  Pair* PairOf(size_t a, size_t b);
  void After(uint64_t ns, std::function<void()> what);
  bool IsWanted(const Pair& pair) const;
  void Consider(Pair* pair);
  void Establish(Pair* pair);
  void Break(Pair* pair, const char* why);
  void Tell(size_t host, size_t peer, control::ChannelEvent::Kind kind, std::string text);
  bool Carry(size_t from, size_t to, const engine::Message& message);
  void JudgeEpoch(size_t from, const engine::Message& message);
  void WatchSilence(Pair* pair);
  void WatchDeath(Pair* pair);
  size_t IndexOf(engine::InstanceId id) const;

  PluginWorld* const world_;
  const ControlNetOptions options_;
  Prng prng_;
  std::vector<std::unique_ptr<SimChannel>> channels_;  // by host
  std::map<std::pair<size_t, size_t>, std::unique_ptr<Pair>> pairs_;
  std::vector<std::function<void()>> steps_;
  uint64_t messages_ = 0;
  // The last epochs that an end was sent, by kind of message.
  std::map<std::pair<engine::EndId, size_t>, uint32_t> epochs_;
};

class SimChannel final : public control::Channel {
 public:
  SimChannel(ControlNet* net, size_t host, std::function<void()> wake)
      : net_(net), host_(host), wake_(std::move(wake)) {}

  void Add(engine::InstanceId peer, engine::ConnectionId connection, const control::Secret& secret,
           const std::vector<control::SocketAddress>& addresses) override;
  void Remove(engine::InstanceId peer, engine::ConnectionId connection) override;
  bool Send(engine::InstanceId peer, const engine::Message& message) override;
  bool IsUp(engine::InstanceId peer) const override;
  std::vector<control::ChannelEvent> Poll(int64_t now_ns) override;
  int64_t next_due() const override { return INT64_MAX; }
  int wait_fd() const override { return -1; }

 private:
  friend class ControlNet;

  ControlNet* const net_;
  const size_t host_;
  const std::function<void()> wake_;
  std::map<engine::InstanceId, std::multiset<engine::ConnectionId>> wanted_;
  std::deque<control::ChannelEvent> inbox_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_CHANNEL_H_
