#include "cc/control/session_hub.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/log.h"
#include "cc/control/codec.h"

namespace railhop::control {
namespace {

// The process with the larger instance id calls only after this long without a session.
constexpr int64_t kLargerWaitsNs = kNsPerSecond;
// No session for so long, and refusals everywhere: dead.
constexpr int64_t kDeadNs = 2 * kNsPerSecond;
// A Goodbye that has not gone out by then is lost.
constexpr int64_t kFarewellNs = kNsPerSecond;
// For one peer in one Poll, so that none keeps the others waiting.
constexpr size_t kReadBudget = 256 * 1024;
constexpr int64_t kLineEveryNs = 10 * kNsPerSecond;
// What comes over a lane is looked for so often.
constexpr int64_t kLaneLookNs = 5 * kNsPerMs;
constexpr int kRankLane = 0;
constexpr int kRankByLarger = 1;
constexpr int kRankBySmaller = 2;

SocketAddress Wildcard(int family) {
  SocketAddress address = {};
  if (family == AF_INET) {
    address.ipv4.sin_family = AF_INET;
  } else {
    address.ipv6.sin6_family = AF_INET6;
  }
  return address;
}

bool IsLoopback(const SocketAddress& address) {
  return address.generic.sa_family == AF_INET ? ntohl(address.ipv4.sin_addr.s_addr) >> 24 == 127
                                              : IN6_IS_ADDR_LOOPBACK(&address.ipv6.sin6_addr) != 0;
}

absl::Span<const uint8_t> BytesOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

SessionHub::SessionHub(const SessionHubOptions& options)
    : options_(options),
      owner_(getpid()),
      prng_(options.seed),
      lanes_(options.carrier != nullptr ? std::make_unique<LaneStreams>(options.carrier) : nullptr),
      setup_({.self = options.self,
              .sockets = options.sockets,
              .polls = &polls_,
              .lanes = lanes_.get(),
              .prng = &prng_}),
      door_(options.self, options.sockets, &polls_) {}

SessionHub::~SessionHub() {
  if (getpid() != owner_) return;
  for (auto& [id, peer] : peers_) SayGoodbye(&peer);
  StepFarewells(now_ns_);
}

absl::StatusOr<std::vector<SocketAddress>> SessionHub::Addresses() {
  if (!door_.open()) {
    const bool local = !options_.addresses.empty() &&
                       std::all_of(options_.addresses.begin(), options_.addresses.end(),
                                   [](const SocketAddress& a) { return IsLoopback(a); });
    const bool ipv4_only =
        std::all_of(options_.addresses.begin(), options_.addresses.end(),
                    [](const SocketAddress& a) { return a.generic.sa_family == AF_INET; });
    absl::Status opened = door_.Open(local       ? options_.addresses.front()
                                     : ipv4_only ? Wildcard(AF_INET)
                                                 : Wildcard(AF_INET6));
    // A system without IPv6 lists no such addresses, but let it be odd.
    if (!opened.ok() && !local && !ipv4_only) opened = door_.Open(Wildcard(AF_INET));
    if (!opened.ok()) return opened;
  }
  std::vector<SocketAddress> addresses = options_.addresses;
  for (SocketAddress& address : addresses) {
    if (address.generic.sa_family == AF_INET) {
      address.ipv4.sin_port = door_.port();
    } else {
      address.ipv6.sin6_port = door_.port();
    }
  }
  return addresses;
}

// ---- What the owner says.

void SessionHub::Add(engine::InstanceId peer, engine::ConnectionId connection, const Secret& secret,
                     const std::vector<SocketAddress>& addresses) {
  due_ = INT64_MIN;
  SharedConnections* connections = &self_connections_;
  if (!IsSelf(peer)) {
    Peer& state = peers_.try_emplace(peer, setup_, peer).first->second;
    if (!addresses.empty()) state.caller.SetAddresses(addresses);
    // It may be the one that the peer knows. The larger one keeps to its wait.
    if (!state.is_new && options_.self < peer) state.caller.Hurry(now_ns_);
    connections = &state.connections;
  }
  SharedConnection& shared = (*connections)[connection];
  shared.secret = secret;
  ++shared.ends;
}

void SessionHub::Remove(engine::InstanceId peer, engine::ConnectionId connection) {
  const auto found = peers_.find(peer);
  if (!IsSelf(peer) && found == peers_.end()) return;
  SharedConnections* const connections =
      IsSelf(peer) ? &self_connections_ : &found->second.connections;
  const auto shared = connections->find(connection);
  if (shared == connections->end()) return;
  if (--shared->second.ends == 0) connections->erase(shared);
  if (!connections->empty()) return;
  due_ = INT64_MIN;
  if (IsSelf(peer)) {
    self_told_ = false;
    self_queue_.clear();
    return;
  }
  SayGoodbye(&found->second);
  peers_.erase(found);
  StepFarewells(now_ns_);
}

bool SessionHub::Send(engine::InstanceId peer, const engine::Message& message) {
  if (!IsUp(peer)) return false;
  absl::StatusOr<std::string> bytes = EncodeMessage(message);
  if (!bytes.ok()) {
    RAILHOP_LOG(kWarning, "cannot be sent: %s", std::string(bytes.status().message()).c_str());
    return false;
  }
  due_ = INT64_MIN;
  if (IsSelf(peer)) {
    self_queue_.push_back(message);
    return true;
  }
  Peer& state = peers_.find(peer)->second;
  if (state.pending.size() + state.session->queued_bytes() + bytes->size() >
      options_.queue_bytes_max) {
    state.overrun = true;  // Poll ends the session
    return false;
  }
  if (state.pending.size() + bytes->size() > kBatchBytesMax) FrameUp(&state);
  state.pending += *bytes;
  return true;
}

bool SessionHub::IsUp(engine::InstanceId peer) const {
  if (IsSelf(peer)) return self_told_;
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.session != nullptr && !found->second.overrun;
}

void SessionHub::FrameUp(Peer* state) {
  if (state->pending.empty()) return;
  state->session->QueueMessages(BytesOf(state->pending));
  state->pending.clear();
}

SessionHubCounters SessionHub::counters() const {
  SessionHubCounters counters = counters_;
  counters.door = door_.counters();
  return counters;
}

// ---- The round.

std::vector<ChannelEvent> SessionHub::Poll(int64_t now_ns) {
  now_ns_ = now_ns;
  Events events;
  const bool all = now_ns >= due_;
  std::set<engine::InstanceId> ready;
  bool knocked = false;
  for (SessionLink* const link : polls_.Ready(&knocked)) {
    link->ready = true;
    if (link->peer != 0) ready.insert(link->peer);
  }
  if (knocked) door_.Knocked();
  if (lanes_ != nullptr) {
    std::set<engine::InstanceId> strangers;
    lanes_->Pump(&ready, &strangers);
    for (const engine::InstanceId peer : strangers) {
      std::unique_ptr<LaneStream> stream = lanes_->Open(peer);
      if (stream != nullptr) door_.Receive(std::move(stream), now_ns);
    }
  }
  PollSelf(&events);
  TakeConfirmed(now_ns, &events);
  for (auto& [peer, state] : peers_) {
    if (all || ready.contains(peer)) StepPeer(peer, &state, now_ns, &events);
  }
  StepFarewells(now_ns);
  UpdateDue();
  return events;
}

// Both ends of such connections are here: what one sends the other gets, and nothing is lost.
void SessionHub::PollSelf(Events* events) {
  if (self_connections_.empty()) return;
  if (!self_told_) {
    self_told_ = true;
    events->push_back({.kind = ChannelEvent::Kind::kUp,
                       .peer = options_.self,
                       .message = {},
                       .text = "within this process"});
  }
  for (engine::Message& message : std::exchange(self_queue_, {})) {
    events->push_back({.kind = ChannelEvent::Kind::kMessage,
                       .peer = options_.self,
                       .message = std::move(message),
                       .text = ""});
  }
}

void SessionHub::TakeConfirmed(int64_t now_ns, Events* events) {
  const auto find = [this](engine::InstanceId peer,
                           engine::ConnectionId connection) -> const Secret* {
    const auto state = peers_.find(peer);
    if (state == peers_.end()) return nullptr;
    const auto shared = state->second.connections.find(connection);
    return shared == state->second.connections.end() ? nullptr : &shared->second.secret;
  };
  for (std::unique_ptr<SessionLink>& link : door_.Step(now_ns, find)) {
    const engine::InstanceId peer = link->peer;
    const auto state = peers_.find(peer);
    if (state == peers_.end()) continue;  // its last connection has gone meanwhile
    const bool mine_counts = options_.self < peer && state->second.session != nullptr &&
                             state->second.rank > RankOf(peer, *link);
    if (mine_counts) continue;
    Greet(peer, &state->second, now_ns);
    if (link->stream().address() != nullptr) {
      state->second.caller.Reached(*link->stream().address());
    }
    Install(peer, &state->second, std::move(link), now_ns, events);
  }
  const std::string forger = door_.TakeForger();
  if (!forger.empty() && now_ns >= next_line_ns_) {
    next_line_ns_ = now_ns + kLineEveryNs;
    RAILHOP_LOG(kWarning, "control channel: a caller at %s could not prove who it is; dropped",
                forger.c_str());
  }
}

int SessionHub::RankOf(engine::InstanceId peer, const SessionLink& link) const {
  if (link.stream().fd() < 0) return kRankLane;
  const engine::InstanceId caller = link.is_caller() ? options_.self : peer;
  return caller == std::min(options_.self, peer) ? kRankBySmaller : kRankByLarger;
}

// Times begin when Poll first sees a peer: Add knows none.
void SessionHub::Greet(engine::InstanceId peer, Peer* state, int64_t now_ns) {
  if (!state->is_new) return;
  state->is_new = false;
  state->down_at_ns = now_ns;
  state->last_heard_at_ns = now_ns;
  state->caller.Start(now_ns + (options_.self < peer ? 0 : kLargerWaitsNs), /*fresh=*/true,
                      /*eager=*/true);
}

void SessionHub::StepPeer(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events) {
  Greet(peer, state, now_ns);
  if (state->session != nullptr && ReadSession(peer, state, now_ns, events)) {
    WriteSession(peer, state, now_ns, events);
  }
  std::unique_ptr<SessionLink> link = state->caller.Step(now_ns, state->connections);
  if (link != nullptr) Install(peer, state, std::move(link), now_ns, events);
  CheckPeer(peer, state, now_ns, events);
}

void SessionHub::Install(engine::InstanceId peer, Peer* state, std::unique_ptr<SessionLink> link,
                         int64_t now_ns, Events* events) {
  const std::string where = link->stream().Where();
  if (state->session != nullptr) {
    events->push_back({.kind = ChannelEvent::Kind::kDown,
                       .peer = peer,
                       .message = {},
                       .text = absl::StrCat("a new one over ", where, " takes its place")});
  }
  link->peer = peer;
  state->session = std::move(link);
  state->rank = RankOf(peer, *state->session);
  state->pending.clear();
  state->overrun = false;
  state->up_at_ns = state->heard_at_ns = state->last_heard_at_ns = now_ns;
  state->told_dead = state->told_silent = false;
  ++counters_.sessions;
  const bool over_lane = state->rank == kRankLane;
  state->caller.AvoidLanes(over_lane);
  if (over_lane) {
    // TCP is better: it is looked for all the time, with the pauses that have grown.
    state->caller.Start(now_ns + kLargerWaitsNs, /*fresh=*/false, /*eager=*/false);
  } else {
    state->caller.Stop();
  }
  // The callee waits for the caller's first frame; to the caller it is a sign of life.
  state->session->QueueMessages({});
  state->sent_at_ns = now_ns;
  events->push_back({.kind = ChannelEvent::Kind::kUp, .peer = peer, .message = {}, .text = where});
  if (ReadSession(peer, state, now_ns, events)) WriteSession(peer, state, now_ns, events);
}

bool SessionHub::ReadSession(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events) {
  SessionLink* const link = state->session.get();
  link->SetBudget(kReadBudget);
  while (true) {
    switch (link->Receive()) {
      case SessionLink::Event::kNothing:
        return true;
      case SessionLink::Event::kFrame:
        if (!TakeFrame(peer, state, now_ns, events)) return false;
        break;
      case SessionLink::Event::kJunk:
        ++counters_.rejected;
        Lose(peer, state, "what came is no frame", now_ns, events);
        return false;
      case SessionLink::Event::kClosed: {
        const int error = link->stream().error();
        Lose(peer, state,
             error == 0 ? "the other end closed it" : absl::StrCat("it broke (errno ", error, ")"),
             now_ns, events);
        return false;
      }
    }
  }
}

bool SessionHub::TakeFrame(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events) {
  const char* rejected = state->session->Reject();
  std::string why = rejected == nullptr ? "" : rejected;
  if (rejected == nullptr) {
    absl::StatusOr<std::vector<engine::Message>> messages =
        DecodeBatch(state->session->frame().payload);
    if (messages.ok()) {
      state->heard_at_ns = state->last_heard_at_ns = now_ns;
      state->told_silent = false;
      for (engine::Message& message : *messages) {
        events->push_back({.kind = ChannelEvent::Kind::kMessage,
                           .peer = peer,
                           .message = std::move(message),
                           .text = ""});
      }
      return true;
    }
    why = std::string(messages.status().message());
  }
  ++counters_.rejected;
  if (now_ns >= next_line_ns_) {
    next_line_ns_ = now_ns + kLineEveryNs;
    RAILHOP_LOG(kWarning, "control channel with %s: %s; the session is made anew",
                state->session->stream().Where().c_str(), why.c_str());
  }
  Lose(peer, state, why, now_ns, events);
  return false;
}

bool SessionHub::WriteSession(engine::InstanceId peer, Peer* state, int64_t now_ns,
                              Events* events) {
  if (state->overrun) {
    ++counters_.overruns;
    Lose(peer, state,
         absl::StrCat("the other end does not read: ",
                      state->pending.size() + state->session->queued_bytes(), " bytes wait for it"),
         now_ns, events);
    return false;
  }
  if (!state->pending.empty()) {
    FrameUp(state);
    state->sent_at_ns = now_ns;
  } else if (now_ns - state->sent_at_ns >= options_.silence_ns / 4 &&
             state->session->queued_bytes() == 0) {
    state->session->QueueMessages({});
    state->sent_at_ns = now_ns;
  }
  if (state->session->Flush()) return true;
  Lose(peer, state, absl::StrCat("it broke (errno ", state->session->stream().error(), ")"), now_ns,
       events);
  return false;
}

void SessionHub::Lose(engine::InstanceId peer, Peer* state, const std::string& why, int64_t now_ns,
                      Events* events) {
  events->push_back({.kind = ChannelEvent::Kind::kDown,
                     .peer = peer,
                     .message = {},
                     .text = absl::StrCat(state->session->stream().Where(), ": ", why)});
  // What breaks at once breaks again: pauses grow until a session has lasted.
  const bool lasted = now_ns - state->up_at_ns >= options_.silence_ns;
  state->session = nullptr;
  state->pending.clear();
  state->overrun = false;
  state->down_at_ns = now_ns;
  state->told_dead = false;
  state->caller.AvoidLanes(false);
  const int64_t wait = options_.self < peer ? 0 : kLargerWaitsNs;
  const int64_t pause = lasted ? 0 : prng_.Between(5 * kNsPerMs, 50 * kNsPerMs);
  state->caller.Start(now_ns + wait + pause, /*fresh=*/true, lasted);
}

void SessionHub::CheckPeer(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events) {
  if (state->session != nullptr && now_ns - state->heard_at_ns >= options_.silence_ns) {
    ++counters_.silences;
    Lose(peer, state, absl::StrCat("nothing was heard for ", options_.silence_ns / kNsPerMs, " ms"),
         now_ns, events);
  }
  if (!state->told_silent && now_ns - state->last_heard_at_ns >= options_.silence_ns) {
    state->told_silent = true;
    events->push_back({.kind = ChannelEvent::Kind::kSilent,
                       .peer = peer,
                       .message = {},
                       .text = state->caller.Evidence()});
  }
  if (state->session == nullptr && !state->told_dead && now_ns - state->down_at_ns >= kDeadNs &&
      state->caller.AllRefused()) {
    state->told_dead = true;
    events->push_back({.kind = ChannelEvent::Kind::kDead,
                       .peer = peer,
                       .message = {},
                       .text = state->caller.Evidence()});
  }
}

// ---- Farewells.

void SessionHub::SayGoodbye(Peer* state) {
  if (state->session == nullptr) return;
  if (!state->overrun) {
    const absl::StatusOr<std::string> bytes =
        EncodeMessage(engine::Goodbye{.reason = "the last connection is closed"});
    if (state->pending.size() + bytes->size() > kBatchBytesMax) FrameUp(state);
    state->pending += *bytes;
    FrameUp(state);
  }
  state->session->peer = 0;
  farewells_.push_back(
      {.link = std::move(state->session), .until_ns = now_ns_ + kFarewellNs, .said = false});
}

// What has come unread is read first: closing over it would reset the stream, and the Goodbye with
// it.
void SessionHub::StepFarewells(int64_t now_ns) {
  std::erase_if(farewells_, [now_ns](Farewell& farewell) {
    if (!farewell.link->Flush() || now_ns >= farewell.until_ns) return true;
    if (farewell.link->queued_bytes() == 0 && !farewell.said) {
      farewell.link->stream().ShutdownWrite();
      farewell.said = true;
    }
    farewell.link->SetBudget(kReadBudget);
    while (true) {
      switch (farewell.link->Receive()) {
        case SessionLink::Event::kNothing:
          // A lane has no end of its own: said is done.
          return farewell.said && farewell.link->stream().fd() < 0;
        case SessionLink::Event::kFrame:
          break;
        case SessionLink::Event::kJunk:
        case SessionLink::Event::kClosed:
          return true;
      }
    }
  });
}

// ---- When next.

int64_t SessionHub::DueOf(const Peer& state) const {
  if (state.is_new || state.overrun || !state.pending.empty()) return INT64_MIN;
  int64_t due = state.caller.next_due();
  if (state.session != nullptr) {
    due = std::min(due, state.heard_at_ns + options_.silence_ns);
    if (state.session->queued_bytes() == 0) {
      due = std::min(due, state.sent_at_ns + options_.silence_ns / 4);
    }
  } else if (!state.told_dead && now_ns_ < state.down_at_ns + kDeadNs) {
    due = std::min(due, state.down_at_ns + kDeadNs);
  }
  if (!state.told_silent) due = std::min(due, state.last_heard_at_ns + options_.silence_ns);
  return due;
}

void SessionHub::UpdateDue() {
  due_ = door_.next_due();
  if (!self_queue_.empty() || (!self_connections_.empty() && !self_told_)) due_ = INT64_MIN;
  for (const auto& [id, peer] : peers_) due_ = std::min(due_, DueOf(peer));
  for (const Farewell& farewell : farewells_) due_ = std::min(due_, farewell.until_ns);
  if (lanes_ != nullptr && lanes_->any_open()) due_ = std::min(due_, now_ns_ + kLaneLookNs);
}

// ---- Addresses.

std::vector<SocketAddress> ControlAddresses(const std::vector<Interface>& interfaces,
                                            const Interface& chosen, const SocketConfig& config) {
  std::vector<SocketAddress> addresses = {chosen.address};
  const bool excludes = absl::StartsWith(config.socket_ifname, "^");
  for (const Interface& interface : interfaces) {
    if (addresses.size() == kControlAddressesMax) break;
    const SocketAddress& address = interface.address;
    const bool local = IsLoopback(address) || (address.generic.sa_family == AF_INET6 &&
                                               IN6_IS_ADDR_LINKLOCAL(&address.ipv6.sin6_addr) != 0);
    const bool virtual_bridge = absl::StartsWith(interface.name, "docker") ||
                                absl::StartsWith(interface.name, "virbr") || interface.name == "lo";
    if (local || virtual_bridge) continue;
    if (excludes && !MatchesInterfaceFilter(interface.name, config.socket_ifname)) continue;
    const bool known = std::any_of(addresses.begin(), addresses.end(),
                                   [&](const SocketAddress& a) { return SameHost(a, address); });
    if (!known) addresses.push_back(address);
  }
  return addresses;
}

}  // namespace railhop::control
