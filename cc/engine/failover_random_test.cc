// Two Failover machines against each other (testing/two_ends.h): suspects at both ends at any time,
// in an episode too, hand-overs, new lanes, fences that end in any order, breaks of the session.
// A run that fails prints its seed.
#include <cstdint>
#include <string>

#include "cc/base/prng.h"
#include "cc/engine/failover.h"
#include "cc/engine/testing/two_ends.h"
#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

class Chaos {
 public:
  // in_order: as sessions are. Else messages overtake each other, come twice, and outlive their
  // session, which costs repeats but must not break anything.
  Chaos(uint64_t seed, bool in_order)
      : prng_(seed),
        ends_(1 + static_cast<int>(prng_.Below(5))),
        steps_(1 + static_cast<int>(prng_.Below(160))),
        in_order_(in_order) {}

  // Empty: all was well.
  std::string Go() {
    for (int i = 0; i < steps_ && ends_.error().empty(); ++i) Step();
    if (ends_.error().empty()) ends_.Settle();
    return ends_.error();
  }

 private:
  bool Chance(uint32_t percent) { return prng_.Below(100) < percent; }
  Side& Any() { return Chance(50) ? ends_.sender() : ends_.receiver(); }
  LaneIds Some(const std::set<LaneId>& from, uint32_t percent) {
    LaneIds some;
    for (const LaneId& lane : from) {
      if (Chance(percent)) AddLane(&some, lane);
    }
    return some;
  }

  void Step() {
    Side& side = Any();
    switch (prng_.Below(16)) {
      case 0:
        ends_.Suspect(&side, Some(side.live, 30));
        break;
      case 1:
        if (Chance(30)) Break();
        break;
      case 2:
        ends_.Mend();
        break;
      case 3:
        ends_.Repeat(&side);
        break;
      case 4:
        if (Chance(50)) ends_.Retire(Some(ends_.sender().live, 30));
        break;
      case 5:
        ends_.Drained(&side, Some(side.draining, 60));
        break;
      case 6:
      case 7:
        ends_.Offer(static_cast<uint8_t>(prng_.Below(static_cast<uint64_t>(ends_.places()))));
        break;
      case 8:
      case 9:
      case 10:
        ends_.Fenced(&side, Some(side.fencing, 60));
        break;
      default:
        Deliver(&side);
        break;
    }
  }

  void Deliver(Side* side) {
    if (in_order_) {
      ends_.Deliver(side);
    } else {
      ends_.Deliver(side, prng_.Below(side->out.size() + 1), Chance(30));
    }
  }

  void Break() {
    const auto kept = ends_.sender().out;
    ends_.Break();
    if (!in_order_ && Chance(50)) ends_.sender().out = kept;
  }

  Prng prng_;
  TwoEnds ends_;
  const int steps_;
  const bool in_order_;
};

void RunAll(uint64_t first, uint64_t last, bool in_order) {
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string error = Chaos(seed, in_order).Go();
    ASSERT_EQ(error, "") << "seed " << seed;
  }
}

// A sanitizer is ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kRuns = 10'000;
#else
constexpr uint64_t kRuns = 100'000;
#endif

TEST(FailoverRandom, TwoEnds_AgreeWhenFaultsStop) { RunAll(1, kRuns, true); }

TEST(FailoverRandom, TwoEndsOutOfOrder_AgreeWhenFaultsStop) {
  RunAll(kRuns + 1, kRuns + kRuns / 4, false);
}

}  // namespace
}  // namespace railhop::engine
