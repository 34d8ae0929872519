#include "cc/control/session_door.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cc/base/units.h"

namespace railhop::control {
namespace {

constexpr int64_t kGreetingNs = 10 * kNsPerSecond;
// The system has no more descriptors: look again after this.
constexpr int64_t kDeafNs = kNsPerSecond;
constexpr size_t kCallersMax = 256;
constexpr size_t kReadBudget = 4096;

}  // namespace

SessionDoor::~SessionDoor() {
  if (listener_.open() && deaf_until_ns_ == 0) polls_->Remove(listener_.fd());
}

absl::Status SessionDoor::Open(const SocketAddress& address) {
  absl::StatusOr<TcpSocket> listener = TcpSocket::Listen(address, sockets_);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  polls_->Add(listener_.fd(), nullptr);
  return absl::OkStatus();
}

uint16_t SessionDoor::port() const {
  const SocketAddress address = listener_.LocalAddress();
  return address.generic.sa_family == AF_INET ? address.ipv4.sin_port : address.ipv6.sin6_port;
}

void SessionDoor::Receive(std::unique_ptr<ByteStream> stream, int64_t now_ns) {
  Caller& caller = callers_.emplace_back();
  caller.link = std::make_unique<SessionLink>(std::move(stream), polls_);
  caller.until_ns = now_ns + kGreetingNs;
  if (callers_.size() > kCallersMax) {
    callers_.pop_front();
    ++counters_.crowded_out;
  }
}

void SessionDoor::AcceptAll(int64_t now_ns) {
  knocked_ = false;
  while (true) {
    errno = 0;
    TcpSocket socket = listener_.Accept(sockets_);
    if (socket.open()) {
      const SocketAddress from = socket.PeerAddress();
      Receive(std::make_unique<TcpStream>(std::move(socket), from), now_ns);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // Else it would be readable for as long as that lasts.
      polls_->Remove(listener_.fd());
      deaf_until_ns_ = now_ns + kDeafNs;
    }
    return;
  }
}

std::vector<std::unique_ptr<SessionLink>> SessionDoor::Step(int64_t now_ns,
                                                            const FindSecret& find) {
  if (deaf_until_ns_ != 0 && now_ns >= deaf_until_ns_) {
    deaf_until_ns_ = 0;
    polls_->Add(listener_.fd(), nullptr);
    knocked_ = true;
  }
  if (knocked_) AcceptAll(now_ns);
  std::vector<std::unique_ptr<SessionLink>> confirmed;
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    const Verdict verdict = StepCaller(&*caller, now_ns, find);
    if (verdict == Verdict::kWait) {
      ++caller;
      continue;
    }
    if (verdict == Verdict::kConfirmed) {
      caller->link->peer = caller->peer;
      confirmed.push_back(std::move(caller->link));
    }
    caller = callers_.erase(caller);
  }
  return confirmed;
}

int64_t SessionDoor::next_due() const {
  int64_t due = deaf_until_ns_ != 0 ? deaf_until_ns_ : INT64_MAX;
  // Oldest first, all with the same patience.
  if (!callers_.empty()) due = std::min(due, callers_.front().until_ns);
  return due;
}

std::string SessionDoor::TakeForger() { return std::exchange(forger_, ""); }

SessionDoor::Verdict SessionDoor::StepCaller(Caller* caller, int64_t now_ns,
                                             const FindSecret& find) {
  SessionLink* const link = caller->link.get();
  if (!link->ready && now_ns < caller->until_ns) return Verdict::kWait;
  link->ready = link->stream().fd() < 0;
  link->SetBudget(kReadBudget);
  while (true) {
    switch (link->Receive()) {
      case SessionLink::Event::kNothing:
        if (now_ns < caller->until_ns) return Verdict::kWait;
        ++counters_.silent;
        return Verdict::kDrop;
      case SessionLink::Event::kClosed:
        ++counters_.gone;
        return Verdict::kDrop;
      case SessionLink::Event::kJunk:
        ++counters_.junk;
        return Verdict::kDrop;
      case SessionLink::Event::kFrame: {
        const Verdict verdict = caller->peer == 0 ? TakeCall(caller, find) : TakeConfirm(caller);
        if (verdict != Verdict::kWait) return verdict;
        break;
      }
    }
  }
}

SessionDoor::Verdict SessionDoor::TakeCall(Caller* caller, const FindSecret& find) {
  SessionLink* const link = caller->link.get();
  const std::optional<CallPayload> call = link->frame().AsCall();
  if (!call.has_value() || call->caller == 0 || call->caller == self_) {
    ++counters_.junk;
    return Verdict::kDrop;
  }
  if (call->callee != self_) return Refuse(caller, *call, RefuseReason::kOtherInstance);
  const Secret* const secret = find(call->caller, call->connection);
  if (secret == nullptr) return Refuse(caller, *call, RefuseReason::kUnknownConnection);
  if (!link->frame().IsAuthenticCall(*secret)) return Forged(*caller);
  Nonce nonce;
  FillRandom(nonce.data(), nonce.size());
  const AcceptPayload accept = {.callee = call->callee,
                                .caller = call->caller,
                                .connection = call->connection,
                                .caller_nonce = call->nonce,
                                .nonce = nonce};
  link->Queue(EncodeAccept(*call, nonce, *secret));
  // The caller's first frame is an empty one: until then it may be a recording.
  link->Secure(DeriveSessionKey(*secret, *call, accept), /*is_caller=*/false, 0);
  caller->peer = call->caller;
  // Into an empty buffer: if it does not go, nothing does.
  return link->Flush() ? Verdict::kWait : Verdict::kDrop;
}

SessionDoor::Verdict SessionDoor::TakeConfirm(Caller* caller) {
  if (caller->link->Reject() != nullptr) return Forged(*caller);
  caller->link->Trust();
  return Verdict::kConfirmed;
}

SessionDoor::Verdict SessionDoor::Refuse(Caller* caller, const CallPayload& call,
                                         RefuseReason reason) {
  ++counters_.refused;
  caller->link->Queue(
      EncodeRefuse({.instance = self_, .caller_nonce = call.nonce, .reason = reason}));
  caller->link->Flush();
  return Verdict::kDrop;
}

SessionDoor::Verdict SessionDoor::Forged(const Caller& caller) {
  ++counters_.forged;
  forger_ = caller.link->stream().Where();
  return Verdict::kDrop;
}

}  // namespace railhop::control
