// Hubs under one clock, and peers that misbehave. Testonly.
//
// Time stands still while anything moves: it is set to what is due next only when no hub has work
// and no socket has become readable for a while. So pauses, bounds and deadlines take no real time.
#ifndef RAILHOP_CC_CONTROL_TESTING_SESSION_WORLD_H_
#define RAILHOP_CC_CONTROL_TESTING_SESSION_WORLD_H_

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/units.h"
#include "cc/control/session_hub.h"
#include "cc/control/session_wire.h"
#include "gtest/gtest.h"

namespace railhop::control::testing {

inline SocketAddress Loopback(uint16_t port_in_network_order = 0) {
  SocketAddress address = {};
  address.ipv4.sin_family = AF_INET;
  address.ipv4.sin_port = port_in_network_order;
  address.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline Secret SecretOf(uint64_t connection) {
  Secret secret = {};
  secret[0] = static_cast<uint8_t>(connection);
  secret[1] = 0xa5;
  return secret;
}

// A hub, and what it has told.
class Host {
 public:
  explicit Host(engine::InstanceId id, LaneCarrier* carrier = nullptr) : id_(id) {
    SessionHubOptions options;
    options.self = id;
    options.addresses = {Loopback()};
    options.seed = id;
    options.carrier = carrier;
    options.queue_bytes_max = 1 << 20;
    hub_ = std::make_unique<SessionHub>(options);
  }
  SessionHub& hub() { return *hub_; }
  engine::InstanceId id() const { return id_; }
  void End() { hub_ = nullptr; }
  bool ended() const { return hub_ == nullptr; }
  std::vector<SocketAddress> Addresses() { return hub_->Addresses().value(); }
  SocketAddress Address() { return Addresses()[0]; }

  void Poll(int64_t now_ns) {
    for (ChannelEvent& event : hub_->Poll(now_ns)) {
      if (event.kind == ChannelEvent::Kind::kMessage) {
        messages.push_back(std::move(event));
      } else {
        news.push_back(std::move(event));
      }
    }
  }
  size_t Count(ChannelEvent::Kind kind, engine::InstanceId peer) const {
    return static_cast<size_t>(std::count_if(
        news.begin(), news.end(),
        [&](const ChannelEvent& event) { return event.kind == kind && event.peer == peer; }));
  }
  size_t Ups(engine::InstanceId peer) const { return Count(ChannelEvent::Kind::kUp, peer); }
  size_t Downs(engine::InstanceId peer) const { return Count(ChannelEvent::Kind::kDown, peer); }
  size_t Deaths(engine::InstanceId peer) const { return Count(ChannelEvent::Kind::kDead, peer); }
  size_t Silences(engine::InstanceId peer) const {
    return Count(ChannelEvent::Kind::kSilent, peer);
  }
  // Of the last event that is no message.
  std::string LastText() const { return news.empty() ? "" : news.back().text; }
  // Serials of the inquiries that have come from a peer.
  std::vector<uint32_t> Serials(engine::InstanceId peer) const {
    std::vector<uint32_t> serials;
    for (const ChannelEvent& event : messages) {
      const auto* const inquiry = std::get_if<engine::Inquiry>(&event.message);
      if (event.peer == peer && inquiry != nullptr) serials.push_back(inquiry->serial);
    }
    return serials;
  }

  std::vector<ChannelEvent> messages;
  std::vector<ChannelEvent> news;

 private:
  const engine::InstanceId id_;
  std::unique_ptr<SessionHub> hub_;
};

class World {
 public:
  Host* Add(engine::InstanceId id, LaneCarrier* carrier = nullptr) {
    hosts_.push_back(std::make_unique<Host>(id, carrier));
    return hosts_.back().get();
  }
  int64_t now() const { return now_ns_; }
  // Hosts that are not polled: stopped processes.
  void Stop(Host* host) { stopped_.push_back(host); }
  void Continue(Host* host) { std::erase(stopped_, host); }

  // Runs until `done`, or until nothing is left to do, or for too long.
  bool Run(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(50);
    while (true) {
      for (const auto& host : hosts_) {
        if (IsRunning(*host)) host->Poll(now_ns_);
      }
      if (done()) return true;
      if (std::chrono::steady_clock::now() > give_up) return false;
      const int64_t due = Due();
      if (due <= now_ns_) continue;
      if (SomethingCame()) continue;
      if (due == INT64_MAX) return false;
      now_ns_ = due;
    }
  }
  void RunFor(int64_t ns) {
    const int64_t end = now_ns_ + ns;
    limit_ns_ = end;
    EXPECT_TRUE(Run([&] { return now_ns_ >= end; }));
    limit_ns_ = INT64_MAX;
  }

 private:
  bool IsRunning(const Host& host) const {
    return !host.ended() && std::find(stopped_.begin(), stopped_.end(), &host) == stopped_.end();
  }
  int64_t Due() const {
    int64_t due = limit_ns_;
    for (const auto& host : hosts_) {
      if (IsRunning(*host)) due = std::min(due, host->hub().next_due());
    }
    return due;
  }
  bool SomethingCame() const {
    std::vector<pollfd> fds;
    for (const auto& host : hosts_) {
      if (IsRunning(*host)) {
        fds.push_back({.fd = host->hub().wait_fd(), .events = POLLIN, .revents = 0});
      }
    }
    return poll(fds.data(), fds.size(), 1) > 0;
  }

  int64_t now_ns_ = kNsPerSecond;
  int64_t limit_ns_ = INT64_MAX;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Host*> stopped_;
};

// Somebody at the other end of a TCP connection who can say anything.
class RawPeer {
 public:
  explicit RawPeer(TcpSocket socket) : socket_(std::move(socket)) {}

  static RawPeer Connect(const SocketAddress& address) {
    return RawPeer(TcpSocket::Connect(address, SocketConfig()).value());
  }

  // False: it cannot be sent.
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      size_t moved = 0;
      const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
      if (socket_.Send(data + sent, bytes.size() - sent, &moved) == TcpSocket::Progress::kClosed) {
        return false;
      }
      sent += moved;
    }
    return true;
  }
  // The next frame if it is whole by now.
  std::optional<SessionFrame> Frame() {
    parser_.Next();
    while (true) {
      const size_t taken = parser_.Take(absl::MakeSpan(unread_));
      unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(taken));
      if (parser_.state() == SessionParser::State::kComplete) return parser_.frame();
      uint8_t buffer[4096];
      size_t moved = 0;
      const TcpSocket::Progress progress = socket_.Receive(buffer, sizeof(buffer), &moved);
      if (progress == TcpSocket::Progress::kClosed) closed_ = true;
      if (moved == 0) return std::nullopt;
      unread_.insert(unread_.end(), buffer, buffer + moved);
    }
  }
  bool IsClosed() {
    while (Frame().has_value()) {
    }
    return closed_;
  }
  // Calls as `caller`, and says nothing more once it is accepted.
  void Greet(World* world, const CallPayload& call) {
    const Secret secret = SecretOf(call.connection);
    EXPECT_TRUE(Send(EncodeCall(call, secret)));
    EXPECT_TRUE(world->Run([&] {
      const std::optional<SessionFrame> frame = Frame();
      if (!frame.has_value() || !frame->IsAuthenticAccept(call, secret)) return false;
      key = DeriveSessionKey(secret, call, *frame->AsAccept());
      return true;
    }));
    parser_.Next();
    parser_.AllowMessages(kBatchBytesMax);
  }
  std::string Encode(const std::string& payload, uint64_t counter, bool from_caller = true) const {
    return EncodeMessages({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()},
                          counter, key, from_caller);
  }
  // Takes in a CALL and accepts it.
  bool AcceptCall(World* world, uint64_t connection) {
    const Secret secret = SecretOf(connection);
    std::optional<SessionFrame> frame;
    if (!world->Run([&] { return (frame = Frame()).has_value(); })) return false;
    const std::optional<CallPayload> call = frame->AsCall();
    if (!call.has_value() || !frame->IsAuthenticCall(secret)) return false;
    Nonce nonce = {};
    nonce[0] = 1;
    const AcceptPayload accept = {.callee = call->callee,
                                  .caller = call->caller,
                                  .connection = call->connection,
                                  .caller_nonce = call->nonce,
                                  .nonce = nonce};
    key = DeriveSessionKey(secret, *call, accept);
    parser_.Next();
    parser_.AllowMessages(kBatchBytesMax);
    return Send(EncodeAccept(*call, nonce, secret));
  }
  // Resets the connection.
  void Reset() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    socket_.Close();
  }
  void Close() { socket_.Close(); }
  TcpSocket& socket() { return socket_; }

  SessionKey key = {};

 private:
  TcpSocket socket_;
  SessionParser parser_;
  std::vector<uint8_t> unread_;
  bool closed_ = false;
};

// A pair of queues in place of a probe's queue pair.
class FakeLane : public LaneCarrier {
 public:
  void Join(engine::InstanceId self, FakeLane* other, engine::InstanceId other_id) {
    self_ = self;
    other_ = other;
    other_id_ = other_id;
  }
  void SetGeneration(uint64_t generation) {
    generation_ = generation;
    came_.clear();
  }
  uint64_t Generation(engine::InstanceId peer) override {
    return peer == other_id_ ? generation_ : 0;
  }
  size_t Send(engine::InstanceId peer, uint64_t generation,
              absl::Span<const uint8_t> bytes) override {
    if (peer != other_id_ || generation != generation_ || generation == 0) return 0;
    const size_t n = std::min<size_t>(bytes.size(), 1000);
    if (other_->generation_ != 0) {
      other_->came_.push_back(
          {.peer = self_,
           .generation = other_->generation_,
           .bytes = {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n)}});
    }
    carried += n;
    return n;
  }
  bool Receive(Chunk* chunk) override {
    if (came_.empty()) return false;
    *chunk = std::move(came_.front());
    came_.erase(came_.begin());
    return true;
  }

  size_t carried = 0;

 private:
  engine::InstanceId self_ = 0;
  engine::InstanceId other_id_ = 0;
  FakeLane* other_ = nullptr;
  uint64_t generation_ = 0;
  std::vector<Chunk> came_;
};

}  // namespace railhop::control::testing

#endif  // RAILHOP_CC_CONTROL_TESTING_SESSION_WORLD_H_
