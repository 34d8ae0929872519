#include "cc/sim/seed_runner.h"

#include <memory>

#include "cc/sim/conversation.h"
#include "cc/sim/event_loop.h"
#include "cc/sim/world.h"

namespace railhop::sim {
namespace {

// More events than any plan needs: a run that gets here goes in circles.
constexpr uint64_t kEventsMax = 20'000'000;

// How long after the heal a program waits for a NIC that retries without end: its peer's queue pair
// may be dead, or have another address.
constexpr uint64_t kPatienceNs = 20'000'000'000;

// Sets the plan's faults when their time comes.
class FaultPlayer final : public Actor {
 public:
  FaultPlayer(World* world, const SeedPlan& plan, Violations* violations)
      : world_(world), plan_(plan), violations_(violations) {
    for (size_t i = 0; i < plan.faults.size(); ++i) {
      world->loop().At(kStartNs + plan.faults[i].at_ns, this, i);
    }
    if (plan.heal_ns != 0) world->loop().At(kStartNs + plan.heal_ns, this, plan.faults.size());
  }

  void OnEvent(uint64_t arg) override {
    if (arg == plan_.faults.size()) return Heal();
    std::string error;
    if (!world_->Fault(plan_.faults[arg].text, &error)) {
      violations_->Add("fault '" + plan_.faults[arg].text + "': " + error);
    }
  }

 private:
  void Heal() {
    world_->faults().ClearAll();
    rdma::FaultSpec up;
    up.kind = rdma::FaultKind::kUp;
    for (Port* port : world_->ports()) world_->faults().Apply(port, up);
  }

  World* const world_;
  const SeedPlan& plan_;
  Violations* const violations_;
};

}  // namespace

SeedResult SeedRunner::Run(const SeedPlan& plan, bool keep_record) {
  memory_.Reset();
  Violations violations;
  World world(plan.topology, plan.options);
  if (keep_record) world.recorder().Keep();
  FaultPlayer player(&world, plan, &violations);
  std::vector<std::unique_ptr<Conversation>> conversations;
  for (const ConversationPlan& c : plan.conversations) {
    conversations.push_back(std::make_unique<Conversation>(&world, &memory_, c, &violations));
    (void)conversations.back()->Start();
  }
  EventLoop& loop = world.loop();
  const uint64_t until = plan.retries_forever ? kStartNs + plan.heal_ns + kPatienceNs : kNeverNs;
  while (loop.events() < kEventsMax && loop.next_ns() <= until && loop.Step()) {
  }
  if (loop.next_ns() <= until && loop.next_ns() != kNeverNs) {
    violations.Add("goes in circles: events without end");
  }

  SeedResult result;
  for (const auto& c : conversations) c->CheckForHang();
  for (const auto& c : conversations) c->Finish();
  while (loop.events() < 2 * kEventsMax && loop.Step()) {
  }
  if (loop.next_ns() != kNeverNs && violations.count() == 0) {
    violations.Add("goes in circles after all queue pairs have ended");
  }
  for (const auto& c : conversations) {
    result.transfers += c->completed();
    result.failed += c->failed();
    result.bytes += c->bytes();
  }
  for (const Buffer& buffer : memory_.Damaged()) {
    violations.Add("bytes were written outside a buffer of " + std::to_string(buffer.size()));
  }
  result.seed = plan.seed;
  result.faults = plan.faults.size();
  result.conversations = conversations.size();
  result.events = loop.events();
  result.virtual_ns = loop.now_ns() - kStartNs;
  result.record_hash = world.recorder().hash();
  result.violations = violations.count();
  result.texts = violations.texts();
  if (keep_record) result.record = world.RecordText();
  return result;
}

}  // namespace railhop::sim
