// The handshake with peers, strangers and the past: both ends' state machines, stepped by hand over
// real sockets and the software fabric, with time as an argument.
#include <arpa/inet.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/control/frame_channel.h"
#include "cc/runtime/connect_attempt.h"
#include "cc/runtime/listener.h"
#include "cc/runtime/testing/fabric_devices.h"
#include "cc/runtime/testing/pair.h"
#include "gtest/gtest.h"

namespace railhop::runtime {

int RunChild(const std::vector<std::string>&) { return 1; }

namespace {

using control::TcpSocket;

constexpr int64_t kStart = kNsPerSecond;

control::SocketAddress Loopback() {
  control::SocketAddress address = {};
  address.ipv4.sin_family = AF_INET;
  address.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool Contains(const absl::Status& status, const char* words) {
  return std::string(status.message()).find(words) != std::string::npos;
}

class HandshakeTest : public testing::Test {
 protected:
  HandshakeTest() : devices_(FabricDevices::Open(kPointerHost)) {
    ours_.host = "ours";
    ours_.sockets.socket_retry_cnt = 3;
    theirs_ = ours_;
    theirs_.host = "theirs";
  }

  std::unique_ptr<Listener> Listen() {
    return Listener::Create(ours_, *devices_->Get(0), Loopback()).value();
  }
  std::unique_ptr<ConnectAttempt> Call(const control::Handle& handle) {
    return std::make_unique<ConnectAttempt>(theirs_, *devices_->Get(1), handle, -1);
  }
  // A stranger's connection that has said these words.
  TcpSocket Stranger(const Listener& listener, const std::string& words) {
    TcpSocket socket = TcpSocket::Connect(listener.MakeHandle().address, ours_.sockets).value();
    EXPECT_TRUE(WaitFor([&] { return socket.FinishConnect() == TcpSocket::Progress::kMore; }));
    size_t moved = 0;
    if (!words.empty()) {
      socket.Send(reinterpret_cast<const uint8_t*>(words.data()), words.size(), &moved);
    }
    EXPECT_EQ(moved, words.size());
    return socket;
  }
  // An authentic HELLO, by somebody who can say no more.
  std::string HelloOf(const Listener& listener, const std::string& host) {
    const control::Handle handle = listener.MakeHandle();
    control::EndDescription end;
    end.host = host;
    end.nonce[0] = 1;
    const ibv_gid gid = devices_->Get(1)->parts[0]->context->QueryGid(1, 0).value();
    control::DeviceDescription device;
    device.name = "soft1";
    device.is_ethernet = true;
    device.mtu = 3;
    memcpy(device.gid.data(), gid.raw, sizeof(gid.raw));
    end.devices.push_back(device);
    end.lanes.push_back({.qp_number = 77});
    const std::vector<uint8_t> bytes =
        control::EncodeFrame(control::MessageType::kHello, handle.listener_id,
                             control::EncodeEnd(end), {.secret = handle.secret});
    return std::string(bytes.begin(), bytes.end());
  }
  static bool HasSaid(TcpSocket* socket) {
    uint8_t byte;
    size_t moved = 0;
    return socket->Receive(&byte, 1, &moved) == TcpSocket::Progress::kMore;
  }
  // Both ends until one has an end, and then the other.
  struct Ends {
    absl::Status connect, accept;
    bool connected = false;
    std::unique_ptr<Listener::Caller> caller;
  };
  static Ends Run(ConnectAttempt* attempt, Listener* listener) {
    Ends ends;
    int64_t now = kStart;
    EXPECT_TRUE(WaitFor([&] {
      now += kNsPerMs;
      if (!ends.connected && ends.connect.ok()) {
        const absl::StatusOr<bool> step = attempt->Step(now);
        ends.connect = step.status();
        ends.connected = step.ok() && *step;
      }
      if (ends.caller == nullptr && ends.accept.ok()) {
        absl::StatusOr<std::unique_ptr<Listener::Caller>> caller = listener->Step(now);
        ends.accept = caller.status();
        if (caller.ok()) ends.caller = *std::move(caller);
      }
      return (ends.connected || !ends.connect.ok()) &&
             (ends.caller != nullptr || !ends.accept.ok());
    }));
    return ends;
  }
  static void ExpectConnects(ConnectAttempt* attempt, Listener* listener) {
    const Ends ends = Run(attempt, listener);
    EXPECT_TRUE(ends.connected) << ends.connect;
    EXPECT_NE(ends.caller, nullptr) << ends.accept;
  }

  std::unique_ptr<FabricDevices> devices_;
  Identity ours_, theirs_;
};

TEST_F(HandshakeTest, TwoPeers_KnowEachOther) {
  std::unique_ptr<Listener> listener = Listen();
  std::unique_ptr<ConnectAttempt> attempt = Call(listener->MakeHandle());
  const Ends ends = Run(attempt.get(), listener.get());
  ASSERT_TRUE(ends.connected) << ends.connect;
  ASSERT_NE(ends.caller, nullptr);
  EXPECT_EQ(Listener::Peer(*ends.caller).host, "theirs");
  EXPECT_EQ(attempt->peer().host, "ours");
  EXPECT_NE(attempt->Description().find("sends to ours: soft1:1"), std::string::npos)
      << attempt->Description();
}

TEST_F(HandshakeTest, FailoverAtOneEnd_BothKnowWhoAndWhere) {
  ours_.failover = true;
  ours_.control_addresses = {Loopback()};
  ours_.control_addresses[0].ipv4.sin_port = 4711;
  theirs_.control_addresses = ours_.control_addresses;  // not said without failover
  std::unique_ptr<Listener> listener = Listen();
  std::unique_ptr<ConnectAttempt> attempt = Call(listener->MakeHandle());
  const Ends ends = Run(attempt.get(), listener.get());
  ASSERT_TRUE(ends.connected) << ends.connect;
  ASSERT_NE(ends.caller, nullptr);
  EXPECT_TRUE(attempt->peer().failover);
  EXPECT_EQ(attempt->peer().control_addresses, ours_.control_addresses);
  EXPECT_FALSE(Listener::Peer(*ends.caller).failover);
  EXPECT_TRUE(Listener::Peer(*ends.caller).control_addresses.empty());
  EXPECT_EQ(Listener::Local(*ends.caller), attempt->peer());
  EXPECT_EQ(Listener::Peer(*ends.caller), attempt->local());
  EXPECT_EQ(Listener::ConnectionId(*ends.caller), attempt->connection_id());
  EXPECT_NE(attempt->connection_id(), 0u);
  EXPECT_EQ(listener->secret(), attempt->secret());
}

TEST_F(HandshakeTest, StrangersOfEveryKind_CountedAndPeersStillConnect) {
  std::unique_ptr<Listener> listener = Listen();
  TcpSocket http = Stranger(*listener, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  TcpSocket scan = Stranger(*listener, "");
  TcpSocket half = Stranger(*listener, "RHOP");
  TcpSocket gone = Stranger(*listener, "");
  gone.Close();
  // A frame of the right form by somebody without the secret.
  const std::vector<uint8_t> forged =
      control::EncodeFrame(control::MessageType::kHello, listener->MakeHandle().listener_id,
                           std::vector<uint8_t>(100), control::Authenticator());
  TcpSocket forger = Stranger(*listener, std::string(forged.begin(), forged.end()));
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return listener->counters().junk == 2 && listener->counters().gone == 1;
  }));
  std::unique_ptr<ConnectAttempt> attempt = Call(listener->MakeHandle());
  ExpectConnects(attempt.get(), listener.get());
  EXPECT_EQ(listener->counters().silent, 0u);
  EXPECT_EQ(listener->Step(kStart + 10 * kHelloNs).value(), nullptr);
  EXPECT_EQ(listener->counters().silent, 2u);
}

TEST_F(HandshakeTest, CrowdOfStrangers_OldestGoPeersStillConnect) {
  std::unique_ptr<Listener> listener = Listen();
  std::vector<TcpSocket> crowd;
  for (size_t i = 0; i < kStrangersMax + 20; ++i) crowd.push_back(Stranger(*listener, ""));
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return listener->counters().crowded_out == 20;
  }));
  std::unique_ptr<ConnectAttempt> attempt = Call(listener->MakeHandle());
  ExpectConnects(attempt.get(), listener.get());
}

TEST_F(HandshakeTest, RecordedHello_CountedNotAnswered) {
  std::unique_ptr<Listener> listener = Listen();
  const std::string hello = HelloOf(*listener, "victim");
  TcpSocket first = Stranger(*listener, hello);
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return HasSaid(&first);
  }));
  TcpSocket second = Stranger(*listener, hello);
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return listener->counters().replayed == 1;
  }));
  // To another listener it is not even authentic.
  std::unique_ptr<Listener> other = Listen();
  TcpSocket third = Stranger(*other, hello);
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(other->Step(kStart).value(), nullptr);
    return other->counters().junk == 1;
  }));
}

TEST_F(HandshakeTest, OtherProtocolVersion_BothEndsSaySo) {
  for (const uint16_t version : {control::kProtocolVersion - 1, control::kProtocolVersion + 1}) {
    theirs_.protocol_version = version;
    theirs_.plugin_version = "9.9";
    std::unique_ptr<Listener> listener = Listen();
    std::unique_ptr<ConnectAttempt> attempt = Call(listener->MakeHandle());
    const Ends ends = Run(attempt.get(), listener.get());
    EXPECT_TRUE(absl::IsUnavailable(ends.connect));
    EXPECT_TRUE(Contains(ends.connect, "install the same version")) << ends.connect;
    EXPECT_TRUE(Contains(ends.connect, "9.9")) << ends.connect;
    EXPECT_TRUE(absl::IsUnavailable(ends.accept));
    EXPECT_TRUE(Contains(ends.accept, "install the same version")) << ends.accept;
    EXPECT_TRUE(Contains(ends.accept, "9.9")) << ends.accept;
  }
}

// NCCL's own IB transport reads our handle as its own: connects, says the number that it finds
// there and the kind of socket, and waits.
TEST_F(HandshakeTest, NcclsOwnTransportCalls_AcceptSaysSoAndCallerIsLetGo) {
  std::unique_ptr<Listener> listener = Listen();
  const control::Handle handle = listener->MakeHandle();
  struct NcclHandle {
    char address[28];
    uint64_t number;
    char state[32];
  } seen;
  static_assert(offsetof(NcclHandle, number) == 32);
  memcpy(&seen, &handle, sizeof(seen));
  for (const char byte : seen.state) EXPECT_EQ(byte, 0) << "its state must begin as zeros";
  std::string words(12, '\0');
  memcpy(words.data(), &seen.number, 8);
  words[8] = 4;
  TcpSocket nccl = Stranger(*listener, words);
  absl::Status accept;
  EXPECT_TRUE(WaitFor([&] {
    accept = listener->Step(kStart).status();
    return !accept.ok();
  }));
  EXPECT_TRUE(Contains(accept, "NCCL's own IB transport")) << accept;
  uint8_t byte;
  size_t moved = 0;
  EXPECT_TRUE(
      WaitFor([&] { return nccl.Receive(&byte, 1, &moved) == TcpSocket::Progress::kClosed; }));
}

// The other way round: its handle reaches our connect. Its listener is told in its own words, and
// left.
TEST_F(HandshakeTest, HandleOfNcclsOwnTransport_BothEndsComeToAnEnd) {
  TcpSocket nccl = TcpSocket::Listen(Loopback(), ours_.sockets).value();
  control::Handle handle = {};
  handle.address = nccl.LocalAddress();
  handle.foreign_number = 0x564ab9f2fc4b9d6c;
  std::unique_ptr<ConnectAttempt> attempt = Call(handle);
  TcpSocket accepted;
  absl::Status connect;
  EXPECT_TRUE(WaitFor([&] {
    if (connect.ok()) connect = attempt->Step(kStart).status();
    if (!accepted.open()) accepted = nccl.Accept(ours_.sockets);
    return !connect.ok() && accepted.open();
  }));
  EXPECT_TRUE(absl::IsUnavailable(connect));
  EXPECT_TRUE(Contains(connect, "NCCL's own IB transport")) << connect;
  uint8_t said[16] = {};
  size_t total = 0;
  EXPECT_TRUE(WaitFor([&] {
    size_t moved = 0;
    const TcpSocket::Progress progress = accepted.Receive(said + total, 16 - total, &moved);
    total += moved;
    return progress == TcpSocket::Progress::kClosed;
  }));
  EXPECT_EQ(total, 12u);
  EXPECT_EQ(memcmp(said, &handle.foreign_number, 8), 0);
  EXPECT_EQ(said[8], 4);
}

TEST_F(HandshakeTest, HandleOfAnotherPlugin_SaysSo) {
  control::Handle handle;
  memset(&handle, 0x7e, sizeof(handle));
  EXPECT_TRUE(Contains(Call(handle)->Step(kStart).status(), "another network plugin"));
  memset(&handle, 0, sizeof(handle));
  EXPECT_TRUE(Contains(Call(handle)->Step(kStart).status(), "another network plugin"));
}

TEST_F(HandshakeTest, NobodyListens_TriedAgainThenTold) {
  control::Handle handle = Listen()->MakeHandle();  // closed again
  std::unique_ptr<ConnectAttempt> attempt = Call(handle);
  int64_t now = kStart;
  absl::Status connect;
  EXPECT_TRUE(WaitFor([&] {
    now += 10 * kNsPerMs;
    connect = attempt->Step(now).status();
    return !connect.ok();
  }));
  EXPECT_TRUE(absl::IsUnavailable(connect));
  EXPECT_TRUE(Contains(connect, "after 4 attempts")) << connect;
  // 100 + 200 + 300 ms of pauses.
  EXPECT_GE(now - kStart, 600 * kNsPerMs);
}

// Somebody else has got the port: not Railhop, or Railhop but another listener.
TEST_F(HandshakeTest, AnotherListenersPort_NotTakenForTheRightOne) {
  std::unique_ptr<Listener> other = Listen();
  control::Handle handle = Listen()->MakeHandle();
  handle.address = other->MakeHandle().address;
  std::unique_ptr<ConnectAttempt> attempt = Call(handle);
  int64_t now = kStart;
  absl::Status connect;
  EXPECT_TRUE(WaitFor([&] {
    now += 10 * kNsPerMs;
    EXPECT_EQ(other->Step(now).value(), nullptr);
    connect = attempt->Step(now).status();
    return !connect.ok();
  }));
  EXPECT_TRUE(absl::IsUnavailable(connect)) << connect;
  EXPECT_GE(other->counters().junk, 1u);
}

TEST_F(HandshakeTest, PeerLeavesAfterTheAnswer_AcceptSaysSo) {
  std::unique_ptr<Listener> listener = Listen();
  TcpSocket leaver = Stranger(*listener, HelloOf(*listener, "leaver"));
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return HasSaid(&leaver);
  }));
  leaver.Close();
  absl::Status accept;
  EXPECT_TRUE(WaitFor([&] {
    accept = listener->Step(kStart).status();
    return !accept.ok();
  }));
  EXPECT_TRUE(Contains(accept, "leaver went away before it was ready")) << accept;
}

TEST_F(HandshakeTest, PeerNeverReady_AcceptSaysSoInTime) {
  std::unique_ptr<Listener> listener = Listen();
  TcpSocket sleeper = Stranger(*listener, HelloOf(*listener, "sleeper"));
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return HasSaid(&sleeper);
  }));
  const absl::Status accept = listener->Step(kStart + kReadyNs + 1).status();
  EXPECT_TRUE(Contains(accept, "sleeper was not ready in time")) << accept;
}

// What follows an authentic HELLO must be authentic as well.
TEST_F(HandshakeTest, ReadyThatIsForged_AcceptSaysSo) {
  std::unique_ptr<Listener> listener = Listen();
  TcpSocket forger = Stranger(*listener, HelloOf(*listener, "forger"));
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(listener->Step(kStart).value(), nullptr);
    return HasSaid(&forger);
  }));
  const std::vector<uint8_t> ready =
      control::EncodeFrame(control::MessageType::kReady, listener->MakeHandle().listener_id, {},
                           {.secret = listener->MakeHandle().secret});
  size_t moved = 0;
  forger.Send(ready.data(), ready.size(), &moved);
  absl::Status accept;
  EXPECT_TRUE(WaitFor([&] {
    accept = listener->Step(kStart).status();
    return !accept.ok();
  }));
  EXPECT_TRUE(Contains(accept, "did not prove who it is")) << accept;
}

TEST_F(HandshakeTest, ManyPeersAtOnce_AllConnect) {
  std::unique_ptr<Listener> listener = Listen();
  std::vector<std::unique_ptr<ConnectAttempt>> attempts;
  for (int i = 0; i < 20; ++i) attempts.push_back(Call(listener->MakeHandle()));
  std::vector<bool> up(attempts.size());
  size_t callers = 0;
  EXPECT_TRUE(WaitFor([&] {
    bool all = true;
    for (size_t i = 0; i < attempts.size(); ++i) {
      if (!up[i]) up[i] = attempts[i]->Step(kStart).value();
      all = all && up[i];
    }
    if (listener->Step(kStart).value() != nullptr) ++callers;
    return all && callers == attempts.size();
  }));
}

}  // namespace
}  // namespace railhop::runtime
