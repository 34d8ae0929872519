// Random traffic over lanes that fail at random, both ends in one thread: whatever happens, each
// byte lands once, no byte beside it, sizes are true, and everything completes once faults stop.
//
// The test is the driver and the wire. Packets of one queue pair stay in order, all else is free;
// an end learns of a fault by an error, or only from the other end; several lanes fail in one
// episode, and more of them during it; records are exchanged late; new lanes take the places.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/prng.h"
#include "cc/datapath/testing/two_ends.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

using Fate = TwoEnds::Fate;
using Status = ResumeResult::Status;

constexpr size_t kRegion = 24 << 10;  // of each receive
constexpr size_t kRegions = kSlots * 2;

TwoEnds::Shape Draw(Prng* prng) {
  TwoEnds::Shape shape;
  shape.devices = static_cast<int>(prng->Between(1, 3));
  shape.lanes = shape.devices * static_cast<int>(prng->Between(1, 3));
  shape.spare = static_cast<int>(prng->Between(1, 2));
  shape.rules.failover = true;
  shape.rules.lanes_per_send =
      static_cast<uint32_t>(prng->Below(2) == 0 ? shape.devices : shape.lanes);
  shape.rules.adaptive_routing = prng->Below(3) == 0;
  shape.rules.ar_threshold = 3000;
  shape.rules.inline_cts = prng->Below(2) == 0;
  shape.rules.confirm = prng->Below(4) == 0;
  return shape;
}

class World {
 public:
  explicit World(uint64_t seed)
      : prng_(seed), shape_(Draw(&prng_)), t_(shape_, kRegion * kRegions) {
    for (size_t i = 0; i < kRegions; ++i) free_.push_back(i);
    for (int i = 0; i < shape_.lanes; ++i) {
      live_.push_back({static_cast<uint8_t>(i), 1});
    }
    // A dying NIC that acknowledges what it does not write ends in rule 4's error unless receives
    // are confirmed: then nothing is lost.
    may_lie_ = shape_.rules.confirm;
  }

  // "" or what went wrong.
  std::string Run(int steps, int faults) {
    faults_left_ = faults;
    for (int i = 0; i < steps && error_.empty(); ++i) Step();
    faults_left_ = 0;
    stopping_ = true;
    for (int i = 0; i < 200000 && error_.empty() && !IsFinished(); ++i) Step();
    if (!error_.empty()) return error_;
    if (!IsFinished()) {
      return absl::StrCat("not finished: ", receives_.size(), " receives, ", sends_.size(),
                          " sends, ", to_send_.size(), " to be sent, ", t_.send->waiting(), " and ",
                          t_.recv->waiting(), " wait");
    }
    if (!t_.error.empty()) return t_.error;
    return t_.Check();
  }
  uint64_t resent() const { return resent_; }
  uint64_t episodes() const { return episodes_; }

 private:
  struct Piece {
    size_t region;
    size_t size;
    int tag;
  };
  struct OpenReceive {
    Transfer* request;
    std::vector<size_t> regions;
    std::vector<int> sizes;
  };
  struct OpenSend {
    SendRequest* request;
  };
  enum class Phase { kNone, kFencing, kRecords, kResume };

  bool IsFinished() const {
    return receives_.empty() && sends_.empty() && to_send_.empty() && phase_ == Phase::kNone;
  }
  void Fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  bool Chance(uint64_t one_in) { return prng_.Below(one_in) == 0; }

  void Step() {
    switch (prng_.Below(16)) {
      case 0:
        if (!stopping_) PostReceive();
        break;
      case 1:
      case 2:
        PostSend();
        break;
      case 3:
        TestReceives();
        break;
      case 4:
        TestSends();
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        t_.StepRandom(&prng_);
        break;
      case 9:
      case 10:
      case 11:
        t_.AcknowledgeRandom(&prng_);
        break;
      case 12:
        if (faults_left_ > 0 && Chance(12)) Break();
        break;
      case 13:
        Notice();
        break;
      default:
        Advance();
    }
  }

  // ---- NCCL.

  void PostReceive() {
    const size_t n = Chance(3) ? prng_.Between(1, 8) : 1;
    if (free_.size() < n || receives_.size() >= kSlots) return;
    OpenReceive open;
    std::vector<std::pair<size_t, size_t>> buffers;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < n; ++i) {
      const size_t region = free_[i];
      const size_t room = prng_.Below(kRegion + 1);
      // Sizes of all kinds: nothing, odd, some packets, all.
      size_t size = Chance(6) ? 0 : prng_.Below(room + 1);
      if (Chance(4)) size = room;
      buffers.push_back({region * kRegion, room});
      pieces.push_back({region, size, static_cast<int>(i) + 1});
      open.regions.push_back(region);
      open.sizes.push_back(static_cast<int>(size));
    }
    open.request = t_.ReceiveGroup(buffers);
    if (open.request == nullptr) return;
    free_.erase(free_.begin(), free_.begin() + static_cast<ptrdiff_t>(n));
    for (const Piece& piece : pieces) t_.Forget(piece.region * kRegion, kRegion);
    for (size_t i = n - 1; i > 0; --i) std::swap(pieces[i], pieces[prng_.Below(i + 1)]);
    for (const Piece& piece : pieces) to_send_.push_back({piece});
    receives_.push_back(std::move(open));
  }
  void PostSend() {
    if (to_send_.empty()) return;
    const Piece piece = to_send_.front();
    SendRequest* const request = t_.Send(piece.region * kRegion, piece.size, piece.tag);
    if (request == nullptr) return;
    to_send_.pop_front();
    t_.Expect(piece.region * kRegion, piece.region * kRegion, piece.size);
    sends_.push_back({request});
  }
  void TestReceives() {
    if (receives_.empty()) return;
    const size_t i = prng_.Below(receives_.size());
    const std::vector<int> sizes = t_.Received(receives_[i].request);
    if (sizes.empty()) return;
    if (sizes != receives_[i].sizes) Fail("a receive has another size than its send");
    for (const size_t region : receives_[i].regions) {
      CheckRegion(region);
      free_.push_back(region);
    }
    receives_.erase(receives_.begin() + static_cast<ptrdiff_t>(i));
  }
  void CheckRegion(size_t region) {
    // When NCCL is told, the bytes are there; what is around is looked at at the end.
    const std::string wrong = t_.CheckRange(region * kRegion, kRegion);
    if (!wrong.empty()) Fail(absl::StrCat("told before it is there: ", wrong));
  }
  void TestSends() {
    if (sends_.empty()) return;
    const size_t i = prng_.Below(sends_.size());
    if (t_.IsSent(sends_[i].request)) sends_.erase(sends_.begin() + static_cast<ptrdiff_t>(i));
  }

  // ---- Faults.

  void Break() {
    std::vector<LaneRef> healthy;
    for (const LaneRef& lane : live_) {
      if (!Contains(suspects_, lane)) healthy.push_back(lane);
    }
    if (healthy.empty()) return;
    --faults_left_;
    const LaneRef lane = healthy[prng_.Below(healthy.size())];
    // Some of what is under way arrives, some is lost, some is only acknowledged.
    for (const bool side : {true, false}) {
      while (!t_.PostedOn(side, lane.index).empty() && Chance(2)) {
        const bool lies = may_lie_ && Chance(3);
        t_.Step(side, lane.index, Fate::kArrives);
        if (lies) break;
      }
      if (may_lie_ && Chance(2)) {
        while (t_.Acknowledge(side, lane.index)) {
        }
        if (t_.Step(side, lane.index, Fate::kOnlyConfirmed)) lied_ = true;
      }
      // From here nothing of this lane arrives any more.
      while (t_.Step(side, lane.index, Fate::kLost)) {
      }
    }
    // One end sees an error, or both, or (a black hole) none: the driver's timer finds it.
    const uint64_t how = prng_.Below(4);
    if (how != 1) t_.Break(true, lane.index);
    if (how != 0) t_.Break(false, lane.index);
    dead_.push_back(lane);
  }

  // The driver takes faults, and what its timer and the peer tell it.
  void Notice() {
    for (const bool side : {true, false}) {
      Connection* const end = side ? static_cast<Connection*>(t_.send.get()) : t_.recv.get();
      for (const Fault& fault : end->TakeFaults()) {
        if (fault.fatal) return Fail(absl::StrCat("a fatal fault of kind ", int(fault.kind)));
        if (fault.lane < 0) continue;
        Suspect({static_cast<uint8_t>(fault.lane), fault.epoch});
      }
    }
    for (const LaneRef& lane : dead_) {
      if (Chance(8)) Suspect(lane);
    }
  }
  static bool Contains(const std::vector<LaneRef>& lanes, LaneRef lane) {
    return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
  }
  void Suspect(LaneRef lane) {
    if (!Contains(live_, lane) || Contains(suspects_, lane)) return;
    suspects_.push_back(lane);
    // A fault in the middle of an episode: it starts over, under a new epoch, with all lanes.
    phase_ = Phase::kFencing;
    epoch_ += 1;
    sender_fenced_ = receiver_fenced_ = 0;
    of_sender_.reset();
    of_receiver_.reset();
    t_.send->StopPosting({&lane, 1});
    if (Chance(2)) t_.recv->StopPosting({&lane, 1});
  }

  // One step of what the driver has to do.
  void Advance() {
    switch (phase_) {
      case Phase::kFencing:
        return FenceStep();
      case Phase::kRecords:
        // In any order, and late.
        if (Chance(2) && !of_sender_) of_sender_ = t_.send->Record();
        if (Chance(2) && !of_receiver_) of_receiver_ = t_.recv->Record();
        if (of_sender_ && of_receiver_) phase_ = Phase::kResume;
        return;
      case Phase::kResume:
        return ResumeStep();
      case Phase::kNone:
        if (live_.size() < static_cast<size_t>(shape_.lanes) && Chance(3)) NewLane();
        if (Chance(20)) Look();
        if (live_.size() > 1 && faults_left_ > 0 && Chance(60)) Retire();
    }
  }
  void FenceStep() {
    const bool side = Chance(2);
    size_t& fenced = side ? sender_fenced_ : receiver_fenced_;
    if (fenced < suspects_.size()) {
      const FenceProgress progress = t_.Fence(side, suspects_[fenced], Chance(10));
      if (progress != FenceProgress::kFenced) return Fail("a fence that does not end");
      ++fenced;
    }
    if (sender_fenced_ == suspects_.size() && receiver_fenced_ == suspects_.size()) {
      phase_ = Phase::kRecords;
    }
  }
  void ResumeStep() {
    const ResumeResult back = t_.recv->Resume(*of_sender_, suspects_, epoch_);
    if (back.status != Status::kResumed) {
      return Fail(absl::StrCat("receiver: ", int(back.status), " at ", back.sequence));
    }
    const ResumeResult result = t_.send->Resume(*of_receiver_, suspects_);
    if (result.status != Status::kResumed) {
      std::string why =
          absl::StrCat("sender: ", int(result.status), " at ", result.sequence, ", confirm ",
                       shape_.rules.confirm, ", record from ", of_receiver_->complete_below, " to ",
                       of_receiver_->next_sequence, ", epoch ", epoch_);
      for (const auto& lane : suspects_) absl::StrAppend(&why, " ", lane.index, ":", lane.epoch);
      return Fail(why);
    }
    resent_ += result.stripes;
    ++episodes_;
    for (const LaneRef& lane : suspects_) {
      live_.erase(std::remove(live_.begin(), live_.end(), lane), live_.end());
      dead_.erase(std::remove(dead_.begin(), dead_.end(), lane), dead_.end());
      places_.push_back(lane.index);
    }
    suspects_.clear();
    phase_ = Phase::kNone;
    of_sender_.reset();
    of_receiver_.reset();
  }
  void NewLane() {
    // A place that was used before, or a new one.
    uint8_t place = static_cast<uint8_t>(t_.send->lane_count());
    if (!places_.empty() && (Chance(2) || place >= kLanesMax)) {
      const size_t i = prng_.Below(places_.size());
      place = places_[i];
      places_.erase(places_.begin() + static_cast<ptrdiff_t>(i));
    }
    if (place >= kLanesMax) return;
    ++epoch_;
    const int nics = shape_.devices + shape_.spare;
    t_.AddLane(place, static_cast<int>(prng_.Below(nics)), static_cast<int>(prng_.Below(nics)),
               epoch_);
    live_.push_back({place, epoch_});
    std::vector<uint8_t> route;
    for (const LaneRef& lane : live_) {
      for (uint64_t i = prng_.Between(1, 3); i > 0; --i) route.push_back(lane.index);
    }
    if (Chance(2)) t_.Up(epoch_);
    t_.SetRoutes(route);
    t_.Up(epoch_);
  }
  void Look() {
    std::vector<LaneView> views;
    t_.send->Observe(&views);
    t_.recv->Observe(&views);
  }
  // In order: no posts, drained at both ends, then an episode over it. Here only the first and the
  // last, which must be right too.
  void Retire() {
    const LaneRef lane = live_[prng_.Below(live_.size())];
    t_.send->Retire({&lane, 1});
    t_.recv->Retire({&lane, 1});
    dead_.push_back(lane);
  }

  Prng prng_;
  const TwoEnds::Shape shape_;
  TwoEnds t_;
  std::vector<size_t> free_;
  std::vector<OpenReceive> receives_;
  std::vector<OpenSend> sends_;
  std::deque<Piece> to_send_;
  std::vector<LaneRef> live_, suspects_, dead_;
  std::vector<uint8_t> places_;
  Phase phase_ = Phase::kNone;
  size_t sender_fenced_ = 0, receiver_fenced_ = 0;
  std::optional<SenderRecord> of_sender_;
  std::optional<ReceiverRecord> of_receiver_;
  uint32_t epoch_ = 1;
  int faults_left_ = 0;
  bool stopping_ = false;
  bool may_lie_ = false;
  bool lied_ = false;
  uint64_t resent_ = 0;
  uint64_t episodes_ = 0;
  std::string error_;
};

TEST(RandomFaults, ManySeeds_EveryByteOnceAndAllCompletes) {
  uint64_t resent = 0;
  uint64_t episodes = 0;
  const char* const one = getenv("RAILHOP_TEST_SEED");
  const uint64_t first = one != nullptr ? strtoull(one, nullptr, 10) : 1;
  const char* const count = getenv("RAILHOP_TEST_SEEDS");
  const uint64_t seeds = count != nullptr ? strtoull(count, nullptr, 10) : one != nullptr ? 1 : 150;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    World world(seed);
    ASSERT_EQ(world.Run(6000, 12), "") << "RAILHOP_TEST_SEED=" << seed;
    resent += world.resent();
    episodes += world.episodes();
  }
  if (one == nullptr) {
    // It has tested something.
    EXPECT_GT(episodes, 500u);
    EXPECT_GT(resent, 500u);
  }
}

}  // namespace
}  // namespace railhop::datapath
