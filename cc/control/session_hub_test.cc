#include "cc/control/session_hub.h"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/control/codec.h"
#include "cc/control/testing/message_fields.h"
#include "cc/control/testing/session_world.h"
#include "gtest/gtest.h"

namespace railhop::control {
namespace {

using testing::FakeLane;
using testing::FullMessages;
using testing::Host;
using testing::Loopback;
using testing::RawPeer;
using testing::SecretOf;
using testing::World;

constexpr engine::ConnectionId kOne = 101;
constexpr engine::ConnectionId kTwo = 102;
constexpr int64_t kSilence = 2 * kNsPerSecond;  // the hub's default

engine::Inquiry Numbered(uint32_t serial) { return {.to = {}, .serial = serial}; }

void Join(Host* a, Host* b, engine::ConnectionId connection) {
  a->hub().Add(b->id(), connection, SecretOf(connection), b->Addresses());
  b->hub().Add(a->id(), connection, SecretOf(connection), a->Addresses());
}

bool BothUp(Host* a, Host* b) { return a->hub().IsUp(b->id()) && b->hub().IsUp(a->id()); }

// A port that refuses.
SocketAddress Nowhere() {
  return TcpSocket::Listen(Loopback(), SocketConfig()).value().LocalAddress();
}

class HubTest : public ::testing::Test {
 protected:
  // Whatever has come before, the two can talk.
  void ExpectTalk(Host* a, Host* b, uint32_t serial) {
    ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
    EXPECT_TRUE(a->hub().Send(b->id(), Numbered(serial)));
    EXPECT_TRUE(b->hub().Send(a->id(), Numbered(serial + 1)));
    EXPECT_TRUE(world_.Run([&] {
      const std::vector<uint32_t> at_b = b->Serials(a->id());
      const std::vector<uint32_t> at_a = a->Serials(b->id());
      return !at_b.empty() && at_b.back() == serial && !at_a.empty() && at_a.back() == serial + 1;
    }));
  }

  World world_;
};

TEST_F(HubTest, TwoProcesses_UpOnceAndEveryMessageInOrder) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  EXPECT_FALSE(a->hub().Send(2, Numbered(1)));
  Join(a, b, kOne);
  EXPECT_FALSE(a->hub().Send(2, Numbered(1)));
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
  for (const engine::Message& message : FullMessages()) {
    EXPECT_TRUE(a->hub().Send(2, message));
    EXPECT_TRUE(b->hub().Send(1, message));
  }
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_TRUE(a->hub().Send(2, Numbered(i)));
  ASSERT_TRUE(world_.Run([&] {
    return b->messages.size() == FullMessages().size() + 1000 &&
           a->messages.size() == FullMessages().size();
  }));
  for (size_t i = 0; i < FullMessages().size(); ++i) {
    EXPECT_EQ(a->messages[i].message, FullMessages()[i]);
    EXPECT_EQ(b->messages[i].message, FullMessages()[i]);
  }
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(std::get<engine::Inquiry>(b->messages[FullMessages().size() + i].message).serial, i);
  }
  // Heartbeats keep it so.
  world_.RunFor(120 * kNsPerSecond);
  EXPECT_EQ(a->news.size(), 1u) << a->LastText();
  EXPECT_EQ(b->news.size(), 1u) << b->LastText();
}

TEST_F(HubTest, OnlyOneEndKnowsTheConnection_UpSoonAfterTheOtherDoes) {
  for (const engine::InstanceId first : {1, 2}) {
    SCOPED_TRACE(first);
    World world;
    Host* const a = world.Add(first);
    Host* const b = world.Add(3 - first);
    b->Addresses();
    a->hub().Add(b->id(), kOne, SecretOf(kOne), b->Addresses());
    world.RunFor(5 * kNsPerSecond);
    EXPECT_FALSE(a->hub().IsUp(b->id()));
    EXPECT_EQ(a->Deaths(b->id()), 0u) << "it is there, and says so";
    const int64_t before = world.now();
    b->hub().Add(a->id(), kOne, SecretOf(kOne), a->Addresses());
    ASSERT_TRUE(world.Run([&] { return BothUp(a, b); }));
    EXPECT_LE(world.now() - before, 3 * kNsPerSecond);
  }
}

// Either end may have closed what the other still has.
TEST_F(HubTest, ConnectionClosedAtTheOtherEnd_CallerTriesAnother) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  for (engine::ConnectionId id = 1; id <= 20; ++id) {
    a->hub().Add(2, id, SecretOf(id), b->Addresses());
  }
  b->hub().Add(1, 20, SecretOf(20), a->Addresses());
  const int64_t before = world_.now();
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
  EXPECT_LE(world_.now() - before, 3 * kNsPerSecond);
}

// Connections that are made one after the other must not break off the call that is under way.
TEST_F(HubTest, ManyConnectionsAddedMeanwhile_TheCallGoesOn) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  const std::vector<SocketAddress> at_b = b->Addresses();
  for (engine::ConnectionId id = 1; id <= 100 && !BothUp(a, b); ++id) {
    a->hub().Add(2, id, SecretOf(id), at_b);
    b->hub().Add(1, id, SecretOf(id), a->Addresses());
    a->Poll(world_.now());
    if (id % 2 == 0) b->Poll(world_.now());
  }
  EXPECT_TRUE(BothUp(a, b));
}

TEST_F(HubTest, WrongSecret_NeverUpAndCounted) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  a->hub().Add(2, kOne, SecretOf(7), b->Addresses());
  b->hub().Add(1, kOne, SecretOf(8), a->Addresses());
  world_.RunFor(20 * kNsPerSecond);
  EXPECT_FALSE(a->hub().IsUp(2));
  EXPECT_FALSE(b->hub().IsUp(1));
  EXPECT_GT(b->hub().counters().door.forged, 3u);
  EXPECT_LT(b->hub().counters().door.forged, 100u) << "with pauses";
}

TEST_F(HubTest, PeerIsThisProcess_MessagesComeBack) {
  Host* const a = world_.Add(1);
  // Both ends of a connection.
  a->hub().Add(1, kOne, SecretOf(kOne), a->Addresses());
  a->hub().Add(1, kOne, SecretOf(kOne), a->Addresses());
  ASSERT_TRUE(world_.Run([&] { return a->hub().IsUp(1); }));
  EXPECT_EQ(a->Ups(1), 1u);
  for (const engine::Message& message : FullMessages()) EXPECT_TRUE(a->hub().Send(1, message));
  ASSERT_TRUE(world_.Run([&] { return a->messages.size() == FullMessages().size(); }));
  for (size_t i = 0; i < FullMessages().size(); ++i) {
    EXPECT_EQ(a->messages[i].message, FullMessages()[i]);
    EXPECT_EQ(a->messages[i].peer, 1u);
  }
  a->hub().Remove(1, kOne);
  EXPECT_TRUE(a->hub().IsUp(1)) << "one end is left";
  a->hub().Remove(1, kOne);
  EXPECT_FALSE(a->hub().IsUp(1));
  EXPECT_FALSE(a->hub().Send(1, Numbered(1)));
}

TEST_F(HubTest, LastConnectionRemoved_GoodbyeAfterAllElseThenDownAndNoDeath) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  Join(a, b, kOne);
  Join(a, b, kTwo);
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
  a->hub().Remove(2, kOne);
  EXPECT_TRUE(a->hub().IsUp(2));
  EXPECT_TRUE(a->hub().Send(2, Numbered(5)));
  EXPECT_TRUE(b->hub().Send(1, Numbered(6)));  // unread at the end: must not reset the stream
  a->hub().Remove(2, kTwo);
  EXPECT_FALSE(a->hub().IsUp(2));
  ASSERT_TRUE(world_.Run([&] { return b->Downs(1) == 1; }));
  ASSERT_EQ(b->messages.size(), 2u);
  EXPECT_EQ(b->Serials(1), std::vector<uint32_t>({5}));
  EXPECT_TRUE(std::holds_alternative<engine::Goodbye>(b->messages[1].message));
  world_.RunFor(20 * kNsPerSecond);
  EXPECT_FALSE(a->hub().has_farewells());
  EXPECT_EQ(b->Deaths(1), 0u) << "its process lives: " << b->LastText();
  // And again.
  a->hub().Add(2, kTwo, SecretOf(kTwo), b->Addresses());
  ExpectTalk(a, b, 10);
}

TEST_F(HubTest, HubEnds_GoodbyeThenDead) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  Host* const c = world_.Add(3);
  Join(a, b, kOne);
  Join(b, c, kTwo);
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b) && BothUp(b, c); }));
  const int64_t before = world_.now();
  b->End();
  ASSERT_TRUE(world_.Run([&] { return a->Deaths(2) == 1 && c->Deaths(2) == 1; }));
  EXPECT_LE(world_.now() - before, 6 * kNsPerSecond);
  for (const Host* host : {a, c}) {
    ASSERT_EQ(host->messages.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<engine::Goodbye>(host->messages[0].message));
    EXPECT_NE(host->LastText().find("refused"), std::string::npos) << host->LastText();
  }
  world_.RunFor(60 * kNsPerSecond);
  EXPECT_EQ(a->Deaths(2), 1u) << "told once";
}

// A child that was forked has all descriptors, and whatever it does with its copy of the hub, the
// parent's sessions stay.
TEST_F(HubTest, HubEndsInAForkedChild_SessionsStay) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  Join(a, b, kOne);
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    a->End();
    b->End();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  world_.RunFor(5 * kNsPerSecond);
  ExpectTalk(a, b, 1);
  EXPECT_EQ(a->news.size(), 1u) << a->LastText();
  EXPECT_EQ(b->news.size(), 1u) << b->LastText();
}

// ---- Those who are not there, or are not who they should be.

TEST_F(HubTest, ProcessKilled_DownThenDeadAfterTwoSeconds) {
  // Both roles: the smaller one is called back by the larger one's wait only.
  for (const engine::InstanceId self : {1, 9}) {
    SCOPED_TRACE(self);
    World world;
    Host* const a = world.Add(self);
    TcpSocket listener = TcpSocket::Listen(Loopback(), SocketConfig()).value();
    const SocketAddress there = listener.LocalAddress();
    a->hub().Add(5, kOne, SecretOf(kOne), {there});
    std::optional<RawPeer> peer;
    if (self < 5) {
      TcpSocket accepted;
      ASSERT_TRUE(world.Run([&] {
        accepted = listener.Accept(SocketConfig());
        return accepted.open();
      }));
      peer.emplace(std::move(accepted));
      ASSERT_TRUE(peer->AcceptCall(&world, kOne));
    } else {
      peer.emplace(RawPeer::Connect(a->Address()));
      peer->Greet(&world, {.caller = 5, .callee = 9, .connection = kOne, .nonce = {}});
      peer->Send(peer->Encode("", 1));
    }
    ASSERT_TRUE(world.Run([&] { return a->hub().IsUp(5); }));
    const int64_t before = world.now();
    listener.Close();
    peer->Reset();
    ASSERT_TRUE(world.Run([&] { return a->Deaths(5) == 1; }));
    EXPECT_EQ(a->Downs(5), 1u);
    EXPECT_GE(world.now() - before, 2 * kNsPerSecond);
    EXPECT_LE(world.now() - before, 6 * kNsPerSecond);
  }
}

TEST_F(HubTest, ListensButNeverAnswers_SilentNotDead) {
  Host* const a = world_.Add(1);
  TcpSocket stuck = TcpSocket::Listen(Loopback(), SocketConfig()).value();
  a->hub().Add(5, kOne, SecretOf(kOne), {stuck.LocalAddress()});
  world_.RunFor(60 * kNsPerSecond);
  EXPECT_EQ(a->Silences(5), 1u);
  EXPECT_EQ(a->Deaths(5), 0u);
}

TEST_F(HubTest, AnotherInstanceAnswers_Dead) {
  Host* const a = world_.Add(1);
  Host* const other = world_.Add(7);
  a->hub().Add(5, kOne, SecretOf(kOne), other->Addresses());
  ASSERT_TRUE(world_.Run([&] { return a->Deaths(5) == 1; }));
  EXPECT_NE(a->LastText().find("another process (instance 7)"), std::string::npos) << a->LastText();
  EXPECT_GT(other->hub().counters().door.refused, 0u);
}

TEST_F(HubTest, OneAddressSilentNeverReached_TheReachedOneDecides) {
  Host* const a = world_.Add(1);
  TcpSocket stuck = TcpSocket::Listen(Loopback(), SocketConfig()).value();
  Host* const b = world_.Add(2);
  Join(a, b, kOne);
  a->hub().Add(2, kTwo, SecretOf(kTwo), {stuck.LocalAddress(), b->Address()});
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
  b->End();
  EXPECT_TRUE(world_.Run([&] { return a->Deaths(2) == 1; }));
}

TEST_F(HubTest, FirstAddressRefuses_TheNextIsTaken) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  a->hub().Add(2, kOne, SecretOf(kOne), {Nowhere(), Nowhere(), b->Address()});
  b->hub().Add(1, kOne, SecretOf(kOne), {});
  const int64_t before = world_.now();
  ASSERT_TRUE(world_.Run([&] { return BothUp(a, b); }));
  EXPECT_LT(world_.now() - before, 100 * kNsPerMs);
}

// The smaller one is to call, and cannot reach the other: the other calls.
TEST_F(HubTest, OnlyTheLargerReachesTheSmaller_UpAfterItsWait) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  a->hub().Add(2, kOne, SecretOf(kOne), {Nowhere()});
  b->hub().Add(1, kOne, SecretOf(kOne), a->Addresses());
  const int64_t before = world_.now();
  ExpectTalk(a, b, 1);
  EXPECT_GE(world_.now() - before, kNsPerSecond);
  EXPECT_LE(world_.now() - before, 3 * kNsPerSecond);
}

// Both call at the same time, again and again: it settles each time, on one session.
TEST_F(HubTest, BothCall_OneSession) {
  Host* const a = world_.Add(1);
  Host* const b = world_.Add(2);
  const std::vector<SocketAddress> at_a = a->Addresses();
  const std::vector<SocketAddress> at_b = b->Addresses();
  for (engine::ConnectionId id = 1; id <= 16; ++id) {
    b->hub().Add(1, id, SecretOf(id), at_a);
    // Of all delays around the larger one's wait.
    world_.RunFor(kNsPerSecond - 16 * kNsPerMs + 2 * static_cast<int64_t>(id) * kNsPerMs);
    a->hub().Add(2, id, SecretOf(id), at_b);
    ExpectTalk(a, b, static_cast<uint32_t>(10 * id));
    world_.RunFor(5 * kNsPerSecond);
    EXPECT_TRUE(BothUp(a, b));
    const size_t news = a->news.size() + b->news.size();
    world_.RunFor(10 * kNsPerSecond);
    EXPECT_EQ(a->news.size() + b->news.size(), news) << "settled";
    a->hub().Remove(2, id);
    b->hub().Remove(1, id);
    world_.RunFor(5 * kNsPerSecond);
  }
}

// ---- Trouble in a running session.

TEST_F(HubTest, PeerStops_LostBySilenceAndBackWhenItGoesOn) {
  for (const engine::InstanceId stopped : {1, 2}) {
    SCOPED_TRACE(stopped);
    World world;
    Host* const a = world.Add(3 - stopped);
    Host* const b = world.Add(stopped);
    Join(a, b, kOne);
    ASSERT_TRUE(world.Run([&] { return BothUp(a, b); }));
    const int64_t before = world.now();
    world.Stop(b);
    ASSERT_TRUE(world.Run([&] { return a->Silences(stopped) == 1; }));
    EXPECT_EQ(a->Downs(stopped), 1u);
    EXPECT_GE(world.now() - before, kSilence);
    EXPECT_LE(world.now() - before, kSilence + kNsPerSecond);
    world.RunFor(30 * kNsPerSecond);
    EXPECT_EQ(a->Silences(stopped), 1u) << "told once";
    EXPECT_EQ(a->Deaths(stopped), 0u);
    world.Continue(b);
    ASSERT_TRUE(world.Run([&] { return BothUp(a, b) && a->Ups(stopped) >= 2; }));
    a->hub().Send(stopped, Numbered(3));
    EXPECT_TRUE(world.Run([&] { return !b->Serials(a->id()).empty(); }));
  }
}

class AttackTest : public HubTest {
 protected:
  AttackTest() : a_(world_.Add(10)), c_(world_.Add(30)) {
    Join(a_, c_, kTwo);
    a_->hub().Add(5, kOne, SecretOf(kOne), {Nowhere()});
    EXPECT_TRUE(world_.Run([&] { return BothUp(a_, c_); }));
  }
  // The last word: what happened to one session did nothing to another.
  ~AttackTest() override {
    EXPECT_EQ(a_->Downs(30), 0u);
    EXPECT_EQ(c_->Downs(10), 0u);
    ExpectTalk(a_, c_, 77);
  }

  // An authentic session from peer 5.
  RawPeer Session(uint8_t nonce = 1) {
    RawPeer peer = RawPeer::Connect(a_->Address());
    CallPayload call = {.caller = 5, .callee = 10, .connection = kOne, .nonce = {}};
    call.nonce[0] = nonce;
    peer.Greet(&world_, call);
    EXPECT_TRUE(peer.Send(peer.Encode("", 1)));
    const size_t ups = a_->Ups(5);
    EXPECT_TRUE(world_.Run([&] { return a_->Ups(5) == ups + 1; }));
    return peer;
  }
  static std::string Bytes(uint32_t serial) { return EncodeMessage(Numbered(serial)).value(); }
  // Such bytes end the session, and nothing of them comes through.
  void ExpectLost(RawPeer* peer, const std::string& bytes, const std::string& why) {
    const size_t downs = a_->Downs(5);
    const size_t messages = a_->messages.size();
    EXPECT_TRUE(peer->Send(bytes));
    EXPECT_TRUE(world_.Run([&] { return a_->Downs(5) == downs + 1; })) << why;
    EXPECT_NE(a_->LastText().find(why), std::string::npos) << a_->LastText();
    EXPECT_EQ(a_->messages.size(), messages);
    EXPECT_TRUE(world_.Run([&] { return peer->IsClosed(); }));
  }

  Host* const a_;
  Host* const c_;
};

TEST_F(AttackTest, FrameTwice_SessionLost) {
  RawPeer peer = Session();
  const std::string frame = peer.Encode(Bytes(1), 2);
  EXPECT_TRUE(peer.Send(frame));
  EXPECT_TRUE(world_.Run([&] { return a_->Serials(5).size() == 1; }));
  ExpectLost(&peer, frame, "out of turn");
  // And a new one is as good as the first.
  RawPeer again = Session(2);
  EXPECT_TRUE(again.Send(again.Encode(Bytes(2), 2)));
  EXPECT_TRUE(world_.Run([&] { return a_->Serials(5).size() == 2; }));
}

TEST_F(AttackTest, FramesExchangedOrLeftOut_SessionLost) {
  RawPeer peer = Session();
  ExpectLost(&peer, peer.Encode(Bytes(2), 3) + peer.Encode(Bytes(1), 2), "out of turn");
}

TEST_F(AttackTest, ForgedCode_SessionLost) {
  RawPeer peer = Session();
  std::string frame = peer.Encode(Bytes(1), 2);
  frame.back() = static_cast<char>(frame.back() ^ 1);
  ExpectLost(&peer, frame, "not authentic");
}

TEST_F(AttackTest, FrameOfAnotherSession_SessionLost) {
  RawPeer first = Session(1);
  const std::string recorded = first.Encode(Bytes(1), 2);
  RawPeer second = Session(2);
  ExpectLost(&second, recorded, "not authentic");
}

TEST_F(AttackTest, FrameSentBack_SessionLost) {
  RawPeer peer = Session();
  ExpectLost(&peer, peer.Encode(Bytes(1), 2, /*from_caller=*/false), "not authentic");
}

TEST_F(AttackTest, JunkInTheMiddle_SessionLost) {
  RawPeer peer = Session();
  ExpectLost(&peer, "GET / HTTP/1.1\r\n\r\n", "no frame");
}

TEST_F(AttackTest, AuthenticButOutOfRange_SessionLostWithASentence) {
  RawPeer peer = Session();
  // Message 1 (fence) of a batch, 3 bytes: its lane 0 has index 200; `to` is missing too.
  const std::string fence("\x0a\x07\x0a\x05\x1a\x03\x08\xc8\x01", 9);
  ExpectLost(&peer, peer.Encode(fence, 2), "control message fence: ");
  RawPeer again = Session(2);
  ExpectLost(&again, again.Encode("\xff\xff\xff", 2), "the bytes are no messages");
}

TEST_F(AttackTest, ResetInTheMiddleOfAFrame_SessionLostAndMadeAnew) {
  for (const size_t cut : {size_t{1}, size_t{23}, size_t{24}, size_t{30}, size_t{60}}) {
    RawPeer peer = Session(static_cast<uint8_t>(cut));
    EXPECT_TRUE(peer.Send(peer.Encode(Bytes(1), 2).substr(0, cut)));
    world_.RunFor(10 * kNsPerMs);
    const size_t downs = a_->Downs(5);
    peer.Reset();
    EXPECT_TRUE(world_.Run([&] { return a_->Downs(5) == downs + 1; }));
    EXPECT_TRUE(a_->messages.empty());
  }
}

// Every cut of a frame, in two pieces: a stream has no edges.
TEST_F(AttackTest, FrameInPieces_TakenWhole) {
  RawPeer peer = Session();
  uint64_t counter = 1;
  const size_t whole = peer.Encode(Bytes(1), 2).size();
  for (size_t cut = 1; cut < whole; ++cut) {
    const std::string frame = peer.Encode(Bytes(static_cast<uint32_t>(cut)), ++counter);
    EXPECT_TRUE(peer.Send(frame.substr(0, cut)));
    a_->Poll(world_.now());
    EXPECT_TRUE(peer.Send(frame.substr(cut)));
    ASSERT_TRUE(world_.Run([&] { return a_->Serials(5).size() == cut; }));
  }
}

// A recorded CALL, sent again with all that followed, disturbs nobody.
TEST_F(AttackTest, RecordedCall_TheRunningSessionStays) {
  CallPayload call = {.caller = 5, .callee = 10, .connection = kOne, .nonce = {}};
  call.nonce[0] = 1;
  RawPeer peer = Session(1);
  const std::string recorded = EncodeCall(call, SecretOf(kOne)) + peer.Encode("", 1);
  RawPeer replayer = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(replayer.Send(recorded));
  EXPECT_TRUE(world_.Run([&] { return replayer.IsClosed(); }));
  EXPECT_EQ(a_->hub().counters().door.forged, 1u);
  EXPECT_EQ(a_->Downs(5), 0u) << a_->LastText();
  EXPECT_TRUE(peer.Send(peer.Encode(Bytes(4), 2)));
  EXPECT_TRUE(world_.Run([&] { return a_->Serials(5).size() == 1; }));
}

// Any bytes, from strangers and from whoever got as far as an ACCEPT, in any pieces: nothing comes
// of them (the sanitizers watch), and those who are let in notice nothing.
TEST_F(AttackTest, AnyBytes_TheRunningSessionStays) {
  RawPeer peer = Session(1);
  uint64_t counter = 1;
  Prng prng(5);
  for (int round = 0; round < 300; ++round) {
    RawPeer stranger = RawPeer::Connect(a_->Address());
    CallPayload call = {.caller = 5, .callee = 10, .connection = kOne, .nonce = {}};
    call.nonce[1] = static_cast<uint8_t>(round + 1);
    std::string bytes = EncodeCall(call, SecretOf(kOne));
    if (prng.Chance(0.5)) {
      stranger.Greet(&world_, call);
      bytes = stranger.Encode("", 1) + stranger.Encode(Bytes(1), 2);
      bytes[prng.Below(stranger.Encode("", 1).size())] ^= 0x41;
    }
    for (uint64_t i = prng.Below(6); i > 0; --i) {
      bytes[prng.Below(bytes.size())] ^= static_cast<char>(1 + prng.Below(255));
    }
    bytes.resize(prng.Below(bytes.size() + 1));
    const size_t cut = prng.Below(bytes.size() + 1);
    stranger.Send(bytes.substr(0, cut));
    a_->Poll(world_.now());
    stranger.Send(bytes.substr(cut));
    if (prng.Chance(0.3)) stranger.Reset();
    a_->Poll(world_.now());
    if (round % 50 == 0) {
      EXPECT_TRUE(peer.Send(peer.Encode(Bytes(1), ++counter)));
    }
  }
  EXPECT_TRUE(world_.Run([&] { return a_->Serials(5).size() == 6; }));
  EXPECT_EQ(a_->Ups(5), 1u) << a_->LastText();
  EXPECT_EQ(a_->Downs(5), 0u) << a_->LastText();
}

// A replayed CALL cannot make us keep much either.
TEST_F(AttackTest, AcceptedButLargeFirstFrame_Dropped) {
  RawPeer peer = RawPeer::Connect(a_->Address());
  peer.Greet(&world_, {.caller = 5, .callee = 10, .connection = kOne, .nonce = {}});
  EXPECT_TRUE(peer.Send(peer.Encode(Bytes(1), 1)));
  EXPECT_TRUE(world_.Run([&] { return peer.IsClosed(); }));
  EXPECT_EQ(a_->hub().counters().door.junk, 1u);
  EXPECT_EQ(a_->Ups(5), 0u);
}

TEST_F(AttackTest, StrangersOfEveryKind_CountedAndDropped) {
  RawPeer peer = Session();
  const std::string wrong_version = [&] {
    CallPayload call = {.caller = 5, .callee = 10, .connection = kOne, .nonce = {}};
    std::string bytes = EncodeCall(call, SecretOf(kOne));
    bytes[4] = static_cast<char>(bytes[4] + 1);
    return bytes;
  }();
  RawPeer http = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(http.Send("GET / HTTP/1.1\r\n\r\n"));
  RawPeer version = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(version.Send(wrong_version));
  RawPeer half = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(half.Send(EncodeCall({.caller = 5, .callee = 10}, SecretOf(kOne)).substr(0, 50)));
  RawPeer silent = RawPeer::Connect(a_->Address());
  for (int i = 0; i < 50; ++i) RawPeer::Connect(a_->Address()).Close();
  for (int i = 0; i < 5; ++i) RawPeer::Connect(a_->Address()).Reset();
  RawPeer unknown = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(unknown.Send(EncodeCall({.caller = 5, .callee = 10, .connection = 999}, {})));
  RawPeer other = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(other.Send(EncodeCall({.caller = 5, .callee = 11, .connection = kOne}, {})));
  RawPeer as_us = RawPeer::Connect(a_->Address());
  EXPECT_TRUE(as_us.Send(EncodeCall({.caller = 10, .callee = 10, .connection = kOne}, {})));
  EXPECT_TRUE(world_.Run([&] {
    return http.IsClosed() && version.IsClosed() && unknown.IsClosed() && other.IsClosed() &&
           as_us.IsClosed() && a_->hub().counters().door.gone >= 50;
  }));
  EXPECT_EQ(a_->hub().counters().door.junk, 3u);
  EXPECT_EQ(a_->hub().counters().door.refused, 2u);
  EXPECT_FALSE(silent.IsClosed());
  uint64_t counter = 1;
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(peer.Send(peer.Encode("", ++counter)));
    world_.RunFor(kNsPerSecond);
  }
  EXPECT_TRUE(silent.IsClosed());
  EXPECT_TRUE(half.IsClosed());
  EXPECT_EQ(a_->hub().counters().door.silent, 2u);
  EXPECT_EQ(a_->Downs(5), 0u);
}

TEST_F(AttackTest, CrowdOfStrangers_OldestGoAndPeersStillGetIn) {
  std::vector<RawPeer> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(RawPeer::Connect(a_->Address()));
    a_->Poll(world_.now());
  }
  EXPECT_TRUE(world_.Run([&] { return a_->hub().counters().door.crowded_out == 44; }));
  RawPeer peer = Session();
}

TEST_F(AttackTest, PeerReadsNothing_BoundedThenLostAndSaysSo) {
  RawPeer peer = Session();
  // Room in the kernel is not ours to bound.
  engine::Over large = {.to = {}, .failed = true, .reason = std::string(500, 'x')};
  uint64_t counter = 1;
  size_t sent = 0;
  while (a_->hub().Send(5, large)) {
    ASSERT_LT(++sent, 200000u);
    if (sent % 100 == 0) a_->Poll(world_.now());
    if (sent % 10000 == 0) peer.Send(peer.Encode("", ++counter));
  }
  EXPECT_FALSE(a_->hub().IsUp(5));
  EXPECT_TRUE(world_.Run([&] { return a_->Downs(5) == 1; }));
  EXPECT_NE(a_->LastText().find("does not read"), std::string::npos) << a_->LastText();
  EXPECT_EQ(a_->hub().counters().overruns, 1u);
}

// ---- What we are told when we call.

TEST_F(HubTest, AnswerIsForged_NotTakenAndTriedAgain) {
  Host* const a = world_.Add(1);
  TcpSocket listener = TcpSocket::Listen(Loopback(), SocketConfig()).value();
  a->hub().Add(5, kOne, SecretOf(kOne), {listener.LocalAddress()});
  for (int i = 0; i < 5; ++i) {
    TcpSocket accepted;
    ASSERT_TRUE(world_.Run([&] {
      accepted = listener.Accept(SocketConfig());
      return accepted.open();
    }));
    RawPeer peer(std::move(accepted));
    // Whoever it is has another secret, and answers all the same.
    const CallPayload call = {.caller = 1, .callee = 5, .connection = kOne, .nonce = {}};
    EXPECT_TRUE(peer.Send(EncodeAccept(call, {}, SecretOf(55))));
    EXPECT_TRUE(world_.Run([&] { return peer.IsClosed(); }));
  }
  EXPECT_FALSE(a->hub().IsUp(5));
}

// ---- Over a lane.

class LaneTest : public HubTest {
 protected:
  void Wire(engine::InstanceId a, engine::InstanceId b) {
    lane_a_.Join(a, &lane_b_, b);
    lane_b_.Join(b, &lane_a_, a);
  }
  void SetGeneration(uint64_t generation) {
    lane_a_.SetGeneration(generation);
    lane_b_.SetGeneration(generation);
  }
  FakeLane lane_a_;
  FakeLane lane_b_;
};

TEST_F(LaneTest, NoTcpPath_OverALaneUntilOneIsThere) {
  World world;
  Host* const a = world.Add(1, &lane_a_);
  Host* const b = world.Add(2, &lane_b_);
  Wire(1, 2);
  a->hub().Add(2, kOne, SecretOf(kOne), {Nowhere()});
  b->hub().Add(1, kOne, SecretOf(kOne), {Nowhere()});
  world.RunFor(kNsPerSecond);
  EXPECT_FALSE(a->hub().IsUp(2));
  SetGeneration(1);
  ASSERT_TRUE(world.Run([&] { return BothUp(a, b); }));
  EXPECT_EQ(a->LastText(), "a lane");
  for (uint32_t i = 0; i < 500; ++i) EXPECT_TRUE(a->hub().Send(2, Numbered(i)));
  ASSERT_TRUE(world.Run([&] { return b->Serials(1).size() == 500; }));
  EXPECT_GT(lane_a_.carried, 500u * 8);
  world.RunFor(5 * kNsPerSecond);
  EXPECT_EQ(a->Ups(2), 1u);
  EXPECT_EQ(a->Downs(2), 0u);
  // Another queue pair: bytes may be lost, so it is another session.
  SetGeneration(2);
  ASSERT_TRUE(world.Run([&] { return BothUp(a, b) && a->Ups(2) == 2; }));
  // A TCP path.
  a->hub().Add(2, kTwo, SecretOf(kTwo), b->Addresses());
  ASSERT_TRUE(world.Run([&] { return a->Ups(2) == 3 && b->Ups(1) >= 3; }));
  EXPECT_NE(a->LastText(), "a lane");
  // The lane carries nothing any more.
  SetGeneration(0);
  const size_t carried = lane_a_.carried;
  const size_t downs = a->Downs(2);
  world.RunFor(5 * kNsPerSecond);
  EXPECT_EQ(lane_a_.carried, carried);
  EXPECT_EQ(a->Downs(2), downs);
  EXPECT_TRUE(BothUp(a, b));
}

// ---- Many.

TEST_F(HubTest, SixtyFourPeers_AllUpAndAllTalk) {
  constexpr engine::InstanceId kPeers = 64;
  Host* const hub = world_.Add(32);  // smaller than half of them
  std::vector<Host*> peers;
  for (engine::InstanceId id = 0; id <= kPeers; ++id) {
    if (id == 32) continue;
    peers.push_back(world_.Add(id == 0 ? 1000 : id));
    Join(hub, peers.back(), 500 + id);
  }
  ASSERT_TRUE(world_.Run([&] {
    return std::all_of(peers.begin(), peers.end(), [&](Host* p) { return BothUp(hub, p); });
  }));
  for (uint32_t i = 0; i < 100; ++i) {
    for (Host* peer : peers) {
      EXPECT_TRUE(hub->hub().Send(peer->id(), Numbered(i)));
      EXPECT_TRUE(peer->hub().Send(hub->id(), Numbered(i)));
    }
  }
  ASSERT_TRUE(world_.Run([&] {
    return hub->messages.size() == 100 * kPeers &&
           std::all_of(peers.begin(), peers.end(),
                       [](Host* p) { return p->messages.size() == 100; });
  }));
  for (Host* peer : peers) EXPECT_EQ(peer->Serials(32), hub->Serials(peer->id()));
  world_.RunFor(5 * kNsPerSecond);
  EXPECT_EQ(hub->news.size(), kPeers);
}

TEST(ControlAddresses, ChosenFirstThenWhatMayReach) {
  const auto named = [](const char* name, const char* ip) {
    Interface interface = {.name = name, .address = {}, .netmask = {}};
    if (inet_pton(AF_INET, ip, &interface.address.ipv4.sin_addr) == 1) {
      interface.address.ipv4.sin_family = AF_INET;
    } else {
      interface.address.ipv6.sin6_family = AF_INET6;
      inet_pton(AF_INET6, ip, &interface.address.ipv6.sin6_addr);
    }
    return interface;
  };
  const std::vector<Interface> interfaces = {
      named("lo", "127.0.0.1"),     named("docker0", "172.17.0.1"), named("eth0", "10.0.0.1"),
      named("eth1", "10.1.0.1"),    named("eth1", "fe80::1"),       named("eth1", "2001:db8::1"),
      named("virbr0", "192.0.2.1"), named("ib0", "10.2.0.1")};
  const auto text = [&](const Interface& chosen, const std::string& filter) {
    SocketConfig config;
    config.socket_ifname = filter;
    std::string all;
    for (const SocketAddress& address : ControlAddresses(interfaces, chosen, config)) {
      all += FormatAddress(address) + " ";
    }
    return all;
  };
  EXPECT_EQ(text(interfaces[7], ""), "10.2.0.1:0 10.0.0.1:0 10.1.0.1:0 [2001:db8::1]:0 ");
  EXPECT_EQ(text(interfaces[3], "=eth1"), "10.1.0.1:0 10.0.0.1:0 [2001:db8::1]:0 10.2.0.1:0 ");
  EXPECT_EQ(text(interfaces[7], "^eth0"), "10.2.0.1:0 10.1.0.1:0 [2001:db8::1]:0 ");
  EXPECT_EQ(text(interfaces[0], "lo"),
            "127.0.0.1:0 10.0.0.1:0 10.1.0.1:0 [2001:db8::1]:0 10.2.0.1:0 ");
  std::vector<Interface> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(named("eth", ("10.9.0." + std::to_string(i)).c_str()));
  }
  EXPECT_EQ(ControlAddresses(many, many[5], SocketConfig()).size(), kControlAddressesMax);
}

}  // namespace
}  // namespace railhop::control
