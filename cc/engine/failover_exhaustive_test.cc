// Every state that two Failover machines can reach within small bounds (testing/two_ends.h), and
// from each of them the way back when faults stop.
//
// What may happen at any time: a message arrives, a fence ends, a retired lane has drained; and, as
// often as the bounds say: an end suspects a lane, the sender retires one or offers a new one, the
// session breaks and loses what is under way, an end says again what has had no answer.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>

#include "cc/engine/failover.h"
#include "cc/engine/testing/two_ends.h"
#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

struct Bounds {
  int places = 2;
  int suspects = 0;
  int breaks = 0;
  int repeats = 0;
  int retires = 0;
  int offers = 0;
};

struct State {
  TwoEnds ends;
  Bounds left;
  std::string Key() const {
    return ends.Key() + "#" + std::to_string(left.suspects) + std::to_string(left.breaks) +
           std::to_string(left.repeats) + std::to_string(left.retires) +
           std::to_string(left.offers);
  }
};

class Search {
 public:
  explicit Search(const Bounds& bounds) { Add({TwoEnds(bounds.places), bounds}); }

  // The first error; empty if there is none.
  std::string Run() {
    while (!queue_.empty() && error_.empty()) {
      const State state = std::move(queue_.front());
      queue_.pop_front();
      Expand(state);
    }
    return error_;
  }
  size_t states() const { return seen_.size(); }

 private:
  void Add(State state) {
    if (!state.ends.error().empty()) {
      error_ = state.ends.error();
      return;
    }
    if (!seen_.insert(std::hash<std::string>()(state.Key())).second) return;
    TwoEnds rest = state.ends;
    rest.Settle();
    if (!rest.error().empty()) {
      error_ = "when faults stop: " + rest.error() + " from " + state.Key();
      return;
    }
    queue_.push_back(std::move(state));
  }

  template <typename Change>
  void Try(const State& from, int Bounds::*bound, Change change) {
    if (bound != nullptr && from.left.*bound == 0) return;
    State next = from;
    if (bound != nullptr) --(next.left.*bound);
    change(&next.ends);
    Add(std::move(next));
  }

  static Side& Of(TwoEnds* ends, int which) {
    return which == 0 ? ends->sender() : ends->receiver();
  }

  void Expand(const State& state) {
    State copy = state;
    for (int which = 0; which < 2; ++which) {
      Side& side = Of(&copy.ends, which);
      if (!side.out.empty()) {
        Try(state, nullptr, [&](TwoEnds* e) { e->Deliver(&Of(e, which)); });
      }
      for (const LaneId& lane : side.fencing) {
        Try(state, nullptr, [&](TwoEnds* e) { e->Fenced(&Of(e, which), {lane}); });
      }
      for (const LaneId& lane : side.draining) {
        Try(state, nullptr, [&](TwoEnds* e) { e->Drained(&Of(e, which), {lane}); });
      }
      for (const LaneId& lane : side.live) {
        if (side.fencing.count(lane) > 0) continue;
        Try(state, &Bounds::suspects, [&](TwoEnds* e) { e->Suspect(&Of(e, which), {lane}); });
      }
      Try(state, &Bounds::repeats, [&](TwoEnds* e) { e->Repeat(&Of(e, which)); });
    }
    for (const LaneId& lane : copy.ends.sender().live) {
      Try(state, &Bounds::retires, [&](TwoEnds* e) { e->Retire({lane}); });
    }
    for (int place = 0; place < state.left.places; ++place) {
      if (!copy.ends.IsFree(static_cast<uint8_t>(place))) continue;
      Try(state, &Bounds::offers, [&](TwoEnds* e) { e->Offer(static_cast<uint8_t>(place)); });
    }
    if (state.ends.is_up()) {
      Try(state, &Bounds::breaks, [](TwoEnds* e) { e->Break(); });
    } else {
      Try(state, nullptr, [](TwoEnds* e) { e->Mend(); });
    }
  }

  std::unordered_set<size_t> seen_;
  std::deque<State> queue_;
  std::string error_;
};

// A sanitizer is ten times slower: less deep.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDeep = 0;
#else
constexpr int kDeep = 1;
#endif

// states_at_least: a search that finds much less has lost a part of what may happen.
void RunAll(const Bounds& bounds, size_t states_at_least) {
  Search search(bounds);
  EXPECT_EQ(search.Run(), "");
  EXPECT_GE(search.states(), kDeep == 1 ? states_at_least : 1);
}

TEST(FailoverExhaustive, Suspects_Agree) { RunAll({.places = 3, .suspects = 2 + kDeep}, 50'000); }

TEST(FailoverExhaustive, SuspectsAndBreaks_Agree) {
  RunAll({.suspects = 2, .breaks = 1 + kDeep}, 10'000);
}

TEST(FailoverExhaustive, SuspectsAndHandOver_Agree) {
  RunAll({.suspects = 1, .breaks = 1, .retires = 1 + kDeep}, 30'000);
}

TEST(FailoverExhaustive, NewLanesInTheSamePlace_Agree) {
  RunAll({.places = 1, .suspects = 3 + kDeep, .breaks = 1, .retires = 1, .offers = 3}, 15'000);
}

TEST(FailoverExhaustive, NewLanesBesideOthers_Agree) {
  RunAll({.suspects = 2, .breaks = 1, .retires = kDeep, .offers = 1}, 30'000);
}

TEST(FailoverExhaustive, SuspectsAndRepeats_Agree) {
  RunAll({.suspects = 2, .breaks = 1, .repeats = kDeep}, 15'000);
}

}  // namespace
}  // namespace railhop::engine
