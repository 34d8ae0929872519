// Two programs that talk over one queue pair each, and start over when something breaks.
//
// When one side breaks, both are fenced, each at a time of its own; when both are, they connect
// anew with other packet numbers (unreliable ones with new queue pairs) and go on with what was not
// posted yet. So packets of the old incarnation arrive in the middle of the new one.
#ifndef RAILHOP_CC_SIM_CONVERSATION_H_
#define RAILHOP_CC_SIM_CONVERSATION_H_

#include <cstdint>
#include <string>

#include "cc/base/prng.h"
#include "cc/sim/endpoint.h"
#include "cc/sim/side.h"
#include "cc/sim/transfer.h"

namespace railhop::sim {

struct ConversationPlan {
  std::string first_nic, second_nic;
  SidePlan first, second;
  ConnectOptions connect;
  EndpointOptions endpoint;
  uint32_t reconnects = 0;  // at most
  uint64_t seed = 0;
};

class Conversation final : public Actor {
 public:
  Conversation(World* world, Memory* memory, const ConversationPlan& plan, Violations* violations);

  // Opens, connects and starts. False: a fault was in the way, and there is no conversation.
  bool Start();
  // Once nothing moves any more: what is still open is a hang, unless a fault explains it.
  void CheckForHang();
  // Fences what runs and makes the last checks.
  void Finish();

  uint64_t completed() const { return first_.completed() + second_.completed(); }
  uint64_t failed() const { return first_.failed() + second_.failed(); }
  uint64_t bytes() const { return first_.bytes() + second_.bytes(); }
  uint32_t incarnations() const { return incarnations_; }

  void OnEvent(uint64_t arg) override;

 private:
  enum class Phase : uint8_t { kIdle, kRunning, kFencing, kConnecting, kOver };
  void OnBroken();
  void OnFenced();
  void TryConnect();
  bool ConnectBoth();
  bool Prepare(Side* side);

  World* const world_;
  const ConversationPlan plan_;
  Violations* const violations_;
  Prng prng_;
  Side first_, second_;
  Phase phase_ = Phase::kIdle;
  uint32_t psn_first_, psn_second_;
  uint32_t incarnations_ = 0;
  uint32_t attempts_ = 0;
  uint32_t fenced_ = 0;  // bit 0: first, bit 1: second
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_CONVERSATION_H_
