#include "cc/engine/verdict.h"

#include <string>

#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

constexpr InstanceId kPeer = 7;
constexpr InstanceId kThird = 8;

// Path 0-0 to kPeer has failed; what else is known is added.
struct Case {
  Evidence evidence{.peer = kPeer, .path = {0, 0}, .cause = Cause::kStall};
  Case& Path(InstanceId peer, int local, int remote, bool answers, bool ever = true) {
    evidence.paths.push_back({.peer = peer,
                              .path = {local, remote},
                              .answers = answers,
                              .ever_answered = ever,
                              .known = true});
    return *this;
  }
  Blame Of() const { return Judge(evidence); }
};

TEST(Judge, ByCommand_Nobody) {
  for (const Cause cause : {Cause::kCommand, Cause::kDrain, Cause::kFailBack}) {
    Case c;
    c.evidence.cause = cause;
    c.evidence.local_port_active = false;
    EXPECT_EQ(c.Of(), Blame::kNobody);
  }
}

TEST(Judge, LocalPortNotActive_LocalPort) {
  Case c;
  c.evidence.local_port_active = false;
  EXPECT_EQ(c.Path(kPeer, 0, 0, false).Path(kPeer, 1, 1, true).Of(), Blame::kLocalPort);
}

TEST(Judge, LocalDeviceFailed_LocalNic) {
  Case c;
  c.evidence.cause = Cause::kDeviceFatal;
  c.evidence.local_device_failed = true;
  c.evidence.local_port_active = false;
  EXPECT_EQ(c.Of(), Blame::kLocalNic);
  Case qp;
  qp.evidence.cause = Cause::kQueuePair;
  EXPECT_EQ(qp.Path(kPeer, 0, 0, true).Of(), Blame::kLocalNic);
}

TEST(Judge, NothingOverThisPortToAnyPeer_LocalNicOrCable) {
  Case many;
  many.Path(kPeer, 0, 0, false).Path(kThird, 0, 0, false);
  EXPECT_EQ(many.Of(), Blame::kLocalNicOrCable);
  Case one;  // one peer only, whose port answers to another of ours
  one.Path(kPeer, 0, 0, false).Path(kPeer, 0, 1, false).Path(kPeer, 1, 0, true);
  EXPECT_EQ(one.Of(), Blame::kLocalNicOrCable);
}

TEST(Judge, OnePairOfPortsOnly_Path) {
  Case c;
  c.Path(kPeer, 0, 0, false).Path(kPeer, 0, 1, true).Path(kPeer, 1, 0, true);
  EXPECT_EQ(c.Of(), Blame::kPath);
  // Nothing tells the two ends apart.
  EXPECT_EQ(Case().Path(kPeer, 0, 0, false).Path(kPeer, 1, 1, true).Of(), Blame::kPath);
  // One lane of it has failed, and the path answers.
  EXPECT_EQ(Case().Path(kPeer, 0, 0, true).Of(), Blame::kPath);
}

TEST(Judge, NothingToThatPortOfThePeer_RemoteNic) {
  Case c;
  c.Path(kPeer, 0, 0, false).Path(kPeer, 1, 0, false).Path(kPeer, 0, 1, true);
  EXPECT_EQ(c.Of(), Blame::kRemoteNic);
  Case by_word;
  by_word.evidence.remote_port_down = true;
  EXPECT_EQ(by_word.Path(kPeer, 0, 0, false).Of(), Blame::kRemoteNic);
  Case third;  // our port works to somebody else
  third.Path(kPeer, 0, 0, false).Path(kPeer, 1, 0, false).Path(kPeer, 1, 1, true);
  EXPECT_EQ(third.Path(kThird, 0, 0, true).Of(), Blame::kRemoteNic);
}

TEST(Judge, GoodbyeOrRefused_PeerProcess) {
  Case goodbye;
  goodbye.evidence.peer_said_goodbye = true;
  EXPECT_EQ(goodbye.Path(kPeer, 0, 0, false).Of(), Blame::kPeerProcess);
  Case refused;
  refused.evidence.peer_refused = true;
  refused.evidence.channel_up = false;
  EXPECT_EQ(refused.Path(kPeer, 0, 0, false).Path(kPeer, 1, 1, false).Of(), Blame::kPeerProcess);
  // Refused on TCP, but a path answers: not dead.
  EXPECT_NE(refused.Path(kPeer, 1, 0, true).Of(), Blame::kPeerProcess);
}

TEST(Judge, SilentOnAllPathsAndTcp_PeerHost) {
  Case c;
  c.evidence.channel_up = false;
  c.Path(kPeer, 0, 0, false).Path(kPeer, 1, 1, false);
  EXPECT_EQ(c.Of(), Blame::kPeerHost);
  // Others answer over the same ports: never our NIC.
  EXPECT_EQ(c.Path(kThird, 0, 0, true).Path(kThird, 1, 1, true).Of(), Blame::kPeerHost);
}

TEST(Judge, NeverAnsweredThoughThePeerIsThere_Configuration) {
  Case c;
  c.Path(kPeer, 0, 0, false, false).Path(kPeer, 0, 1, true).Path(kPeer, 1, 0, true);
  EXPECT_EQ(c.Of(), Blame::kConfiguration);
  EXPECT_EQ(Case().Path(kPeer, 0, 0, false, false).Of(), Blame::kConfiguration);
}

TEST(Judge, NothingKnown_Unknown) {
  EXPECT_EQ(Case().Of(), Blame::kUnknown);
  Case silent;
  silent.evidence.channel_up = false;
  EXPECT_EQ(silent.Of(), Blame::kUnknown);
}

TEST(Judge, DeadPeer_NeverBlamesAHealthyNic) {
  // Whatever else is known: our port 0 works to another peer.
  for (int bits = 0; bits < 64; ++bits) {
    Case c;
    c.evidence.channel_up = (bits & 1) != 0;
    c.evidence.peer_refused = (bits & 2) != 0;
    c.Path(kThird, 0, 0, true).Path(kPeer, 0, 0, false);
    if ((bits & 4) != 0) c.Path(kPeer, 0, 1, false);
    if ((bits & 8) != 0) c.Path(kPeer, 1, 0, false);
    if ((bits & 16) != 0) c.Path(kPeer, 1, 1, false);
    if ((bits & 32) != 0) c.Path(kPeer, 2, 2, (bits & 1) != 0);
    const Blame blame = c.Of();
    EXPECT_NE(blame, Blame::kLocalNic) << bits;
    EXPECT_NE(blame, Blame::kLocalPort) << bits;
    EXPECT_NE(blame, Blame::kLocalNicOrCable) << bits;
  }
}

TEST(BlameText, Each_HasItsOwn) {
  for (int a = 0; a <= static_cast<int>(Blame::kConfiguration); ++a) {
    for (int b = 0; b < a; ++b) {
      EXPECT_NE(std::string(BlameText(static_cast<Blame>(a))), BlameText(static_cast<Blame>(b)));
    }
  }
}

}  // namespace
}  // namespace railhop::engine
