#include "cc/control/session_caller.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/units.h"

namespace railhop::control {
namespace {

constexpr int64_t kNever = INT64_MAX;
// From the first packet to ACCEPT: the first round is quick, in case the next address is better.
constexpr int64_t kPatienceFirstNs = 500 * kNsPerMs;
constexpr int64_t kPatienceNs = 3 * kNsPerSecond;
// Between rounds; doubled with each up to the largest, half of it drawn.
constexpr int64_t kPauseFirstNs = 20 * kNsPerMs;
constexpr int64_t kPauseMostNs = 2 * kNsPerSecond;
// Connections that an address is asked about in one turn.
constexpr int kConnectionsInTurn = 4;
constexpr size_t kReadBudget = 4096;

// Somebody says that nobody listens there. All else may be a fault on the way.
bool IsRefusal(int error_number) {
  return error_number == ECONNREFUSED || error_number == ECONNRESET || error_number == EPIPE ||
         error_number == 0;
}

std::string Say(int error_number) {
  return error_number == 0 ? "closed" : std::generic_category().message(error_number);
}

}  // namespace

void SessionCaller::SetAddresses(const std::vector<SocketAddress>& addresses) {
  std::vector<Target> targets;
  for (const SocketAddress& address : addresses) {
    const auto known = std::find_if(targets_.begin(), targets_.end(),
                                    [&](const Target& t) { return t.address == address; });
    targets.push_back(known != targets_.end() ? *known : Target{.address = address, .text = ""});
  }
  if (OverLane()) target_ = targets.size();
  targets_ = std::move(targets);
  // A call that is under way goes on; what comes of it is put down to some address that was tried.
  target_ = std::min(target_, targets_.size());
}

void SessionCaller::Reached(const SocketAddress& address) {
  for (Target& target : targets_) {
    if (SameHost(target.address, address)) target.reached = true;
  }
}

void SessionCaller::Start(int64_t at_ns, bool fresh, bool eager) {
  link_ = nullptr;
  state_ = State::kPausing;
  due_ = at_ns;
  target_ = 0;
  same_target_ = 0;
  if (eager) round_ = 0;
  if (!fresh) return;
  for (Target& target : targets_) {
    target.outcome = Outcome::kUntried;
    target.text.clear();
  }
}

void SessionCaller::Hurry(int64_t now_ns) {
  if (state_ != State::kPausing) return;
  round_ = 0;
  due_ = std::min(due_, now_ns + setup_.prng->Between(1, kPauseFirstNs));
}

void SessionCaller::Stop() {
  link_ = nullptr;
  state_ = State::kStopped;
}

int64_t SessionCaller::next_due() const { return state_ == State::kStopped ? kNever : due_; }

int64_t SessionCaller::Patience() const { return round_ == 0 ? kPatienceFirstNs : kPatienceNs; }

std::unique_ptr<SessionLink> SessionCaller::Step(int64_t now_ns,
                                                 const SharedConnections& connections) {
  if (connections.empty()) return nullptr;
  if (state_ == State::kPausing && now_ns >= due_) Begin(now_ns);
  if (state_ == State::kConnecting) Connecting(now_ns, connections);
  if (state_ == State::kCalling) return Calling(now_ns);
  return nullptr;
}

void SessionCaller::Begin(int64_t now_ns) {
  if (OverLane()) {
    BeginOverLane(now_ns);
    return;
  }
  const SocketAddress& address = targets_[target_].address;
  absl::StatusOr<TcpSocket> socket = TcpSocket::Connect(address, setup_.sockets);
  if (!socket.ok()) {
    Failed(now_ns, Outcome::kSilent, std::string(socket.status().message()));
    return;
  }
  link_ = std::make_unique<SessionLink>(std::make_unique<TcpStream>(*std::move(socket), address),
                                        setup_.polls);
  link_->peer = peer_;
  link_->AwaitConnect();
  state_ = State::kConnecting;
  due_ = now_ns + Patience();
}

// Only after all addresses have come to nothing in this round.
void SessionCaller::BeginOverLane(int64_t now_ns) {
  // The smaller instance alone: a lane carries one stream, and two calls that meet on it are no
  // answer to each other.
  const bool calls = setup_.lanes != nullptr && !avoid_lanes_ && setup_.self < peer_;
  std::unique_ptr<LaneStream> stream;
  if (calls) stream = setup_.lanes->Open(peer_);
  if (stream == nullptr) {
    Pause(now_ns);
    return;
  }
  link_ = std::make_unique<SessionLink>(std::move(stream), setup_.polls);
  link_->peer = peer_;
  state_ = State::kConnecting;
  due_ = now_ns + Patience();
}

void SessionCaller::Connecting(int64_t now_ns, const SharedConnections& connections) {
  switch (link_->stream().FinishConnect()) {
    case ByteStream::Progress::kMore:
      SendCall(now_ns, connections);
      break;
    case ByteStream::Progress::kBlocked:
      if (now_ns >= due_) Failed(now_ns, Outcome::kSilent, "does not answer");
      break;
    case ByteStream::Progress::kClosed: {
      const int error = link_->stream().error();
      Failed(now_ns, IsRefusal(error) ? Outcome::kRefused : Outcome::kSilent, Say(error));
      break;
    }
  }
}

void SessionCaller::SendCall(int64_t now_ns, const SharedConnections& connections) {
  auto next = connections.upper_bound(last_connection_);
  if (next == connections.end()) next = connections.begin();
  last_connection_ = next->first;
  secret_ = next->second.secret;
  call_ = {.caller = setup_.self, .callee = peer_, .connection = next->first, .nonce = {}};
  FillRandom(call_.nonce.data(), call_.nonce.size());
  link_->Queue(EncodeCall(call_, secret_));
  link_->Flush();
  state_ = State::kCalling;
  due_ = now_ns + Patience();
}

std::unique_ptr<SessionLink> SessionCaller::Calling(int64_t now_ns) {
  link_->Flush();  // that it is broken is found when receiving
  link_->SetBudget(kReadBudget);
  switch (link_->Receive()) {
    case SessionLink::Event::kNothing:
      if (now_ns >= due_) Failed(now_ns, Outcome::kSilent, "does not answer");
      return nullptr;
    case SessionLink::Event::kClosed: {
      const int error = link_->stream().error();
      Failed(now_ns, IsRefusal(error) ? Outcome::kRefused : Outcome::kSilent, Say(error));
      return nullptr;
    }
    case SessionLink::Event::kJunk:
      Failed(now_ns, Outcome::kRefused, "another program listens there");
      return nullptr;
    case SessionLink::Event::kFrame:
      return TakeAnswer(now_ns);
  }
  return nullptr;
}

std::unique_ptr<SessionLink> SessionCaller::TakeAnswer(int64_t now_ns) {
  const SessionFrame& frame = link_->frame();
  if (frame.IsAuthenticAccept(call_, secret_)) {
    if (!OverLane()) {
      targets_[target_].outcome = Outcome::kThere;
      targets_[target_].reached = true;
    }
    link_->Secure(DeriveSessionKey(secret_, call_, *frame.AsAccept()), /*is_caller=*/true,
                  kBatchBytesMax);
    std::unique_ptr<SessionLink> link = std::move(link_);
    Stop();
    return link;
  }
  const std::optional<RefusePayload> refuse = frame.AsRefuse();
  if (!refuse.has_value() || refuse->caller_nonce != call_.nonce) {
    Failed(now_ns, Outcome::kRefused, "an answer that is not authentic");
  } else if (refuse->instance != peer_) {
    Failed(now_ns, Outcome::kRefused,
           absl::StrCat("another process (instance ", absl::Hex(refuse->instance), ") is there"));
  } else if (++same_target_ < kConnectionsInTurn) {
    // The peer is there; only this connection it has closed, or not made yet.
    if (!OverLane()) targets_[target_].outcome = Outcome::kThere;
    link_ = nullptr;
    state_ = State::kPausing;
    due_ = now_ns + setup_.prng->Between(1, kPauseFirstNs / 4);
  } else {
    Failed(now_ns, Outcome::kThere, "knows none of the connections that it was asked about");
  }
  return nullptr;
}

void SessionCaller::Failed(int64_t now_ns, Outcome outcome, const std::string& text) {
  link_ = nullptr;
  same_target_ = 0;
  if (OverLane()) {
    Pause(now_ns);
    return;
  }
  targets_[target_].outcome = outcome;
  targets_[target_].text = text;
  ++target_;
  state_ = State::kPausing;
  due_ = now_ns;
}

void SessionCaller::Pause(int64_t now_ns) {
  const int64_t longest = kPauseFirstNs << std::min(round_, 10);
  const int64_t pause = std::min(longest, kPauseMostNs);
  ++round_;
  target_ = 0;
  state_ = State::kPausing;
  due_ = now_ns + setup_.prng->Between(pause / 2, pause);
}

bool SessionCaller::AllRefused() const {
  bool any_reached = false;
  for (const Target& target : targets_) any_reached = any_reached || target.reached;
  for (const Target& target : targets_) {
    if (target.outcome == Outcome::kRefused) continue;
    const bool may_be_unreachable =
        any_reached && !target.reached && target.outcome == Outcome::kSilent;
    if (!may_be_unreachable) return false;
  }
  return !targets_.empty();
}

std::string SessionCaller::Evidence() const {
  return absl::StrJoin(targets_, "; ", [](std::string* out, const Target& target) {
    absl::StrAppend(out, FormatAddress(target.address), ": ",
                    target.text.empty() ? "not tried" : target.text);
  });
}

}  // namespace railhop::control
