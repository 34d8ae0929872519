#include "cc/engine/route_choice.h"

#include <map>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

// Two hosts with `nics` ports each, all paths good; rails are ports of one number. The ports of a
// host sit on two NUMA nodes, half and half; the base path is of port `home` at both ends.
RouteWish Hosts(int nics, int home) {
  const auto distance = [&](int port) {
    if (port == home) return 0;
    return (port < nics / 2) == (home < nics / 2) ? 2 : 3;
  };
  RouteWish wish;
  wish.base = {{home, home}};
  for (int local = 0; local < nics; ++local) {
    for (int remote = 0; remote < nics; ++remote) {
      PathFacts facts;
      facts.path = {local, remote};
      facts.good = true;
      facts.same_rail = local == remote;
      facts.distance = static_cast<uint8_t>(distance(local));
      facts.remote_distance = static_cast<uint8_t>(remote == home ? 0 : 2);
      facts.speed_mbps = 400'000;
      wish.paths.push_back(facts);
    }
  }
  return wish;
}

void Lose(RouteWish* wish, int local, int remote) {
  for (PathFacts& facts : wish->paths) {
    if (facts.path.local == local || facts.path.remote == remote) facts.good = false;
  }
}

PathFacts* At(RouteWish* wish, int local, int remote) {
  for (PathFacts& facts : wish->paths) {
    if (facts.path == PathId{local, remote}) return &facts;
  }
  return nullptr;
}

// "0>1-1x3" = base lane 0 goes over local 1, remote 1, share 3.
std::string Text(const std::vector<RouteLeg>& legs) {
  std::string text;
  for (const RouteLeg& leg : legs) {
    if (!text.empty()) text += " ";
    text += std::to_string(leg.base) + ">" + std::to_string(leg.path.local) + "-" +
            std::to_string(leg.path.remote) + "x" + std::to_string(leg.share);
  }
  return text;
}
std::string Text(const std::vector<PathId>& paths) {
  std::string text;
  for (const PathId& path : paths) {
    if (!text.empty()) text += " ";
    text += std::to_string(path.local) + "-" + std::to_string(path.remote);
  }
  return text;
}

constexpr int kNobody = -1;

TEST(ChooseRoute, AllGood_StaysHome) {
  RouteWish wish = Hosts(8, 3);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>3-3x1");
  wish.base.push_back({4, 4});
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>3-3x1 1>4-4x1");
}

TEST(ChooseRoute, OwnNicLost_SpreadsOverTheNearestOfTheRails) {
  RouteWish wish = Hosts(8, 0);
  Lose(&wish, 0, kNobody);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x1 0>3-3x1");
}

TEST(ChooseRoute, RemoteNicLost_GoesToOtherRails) {
  RouteWish wish = Hosts(8, 0);
  Lose(&wish, kNobody, 0);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x1 0>3-3x1");
}

TEST(ChooseRoute, WholeNumaNodeLost_GoesToTheOther) {
  RouteWish wish = Hosts(8, 0);
  for (int i = 0; i < 4; ++i) Lose(&wish, i, kNobody);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>4-4x1 0>5-5x1 0>6-6x1 0>7-7x1");
}

TEST(ChooseRoute, FewNearOnes_TakesFartherOnesToo) {
  RouteWish wish = Hosts(4, 0);
  Lose(&wish, 0, kNobody);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x1 0>3-3x1");
  wish.spread_min = 1;
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1") << "the same NUMA node alone";
  // Not over other rails, which would end in the same two ports.
  RouteWish two = Hosts(2, 0);
  Lose(&two, 0, kNobody);
  EXPECT_EQ(Text(ChooseRoute(two)), "0>1-1x1");
  // Limited: the nearest first, whatever it carries.
  wish.spread_min = 3;
  wish.spread_max = 2;
  At(&wish, 1, 1)->load = 9;
  At(&wish, 2, 2)->load = 8;
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>3-3x1");
}

TEST(ChooseRoute, AllButOneLost_TakesIt) {
  RouteWish wish = Hosts(8, 0);
  for (int i = 0; i < 7; ++i) Lose(&wish, i, kNobody);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>7-7x1");
}

TEST(ChooseRoute, NoRailLeft_TakesAnyGoodPath) {
  RouteWish wish = Hosts(2, 0);
  Lose(&wish, 0, 1);  // 0 is lost here, 1 there: only 1-0 is left
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-0x1");
}

TEST(ChooseRoute, NothingLeft_Empty) {
  RouteWish wish = Hosts(2, 0);
  Lose(&wish, 0, kNobody);
  Lose(&wish, 1, kNobody);
  EXPECT_EQ(Text(ChooseRoute(wish)), "");
  EXPECT_EQ(Text(ChooseRoute({})), "");
}

TEST(ChooseRoute, OneOfTwoBaseLanesLost_KeepsItsPartOfTheTraffic) {
  RouteWish wish = Hosts(4, 0);
  wish.base = {{0, 0}, {1, 1}};
  for (PathFacts& facts : wish.paths) facts.distance = facts.path.local == 0 ? 0 : 3;
  Lose(&wish, 0, kNobody);
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x1 0>3-3x1 1>1-1x3");
}

TEST(ChooseRoute, UnequalSpeeds_ShareInProportion) {
  RouteWish wish = Hosts(8, 0);
  Lose(&wish, 0, kNobody);
  At(&wish, 1, 1)->speed_mbps = 100'000;
  At(&wish, 2, 2)->speed_mbps = 200'000;
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x2 0>3-3x4");
  // Nothing is starved, and no share is above 16.
  At(&wish, 1, 1)->speed_mbps = 1'000;
  At(&wish, 2, 2)->speed_mbps = 0;
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x1 0>3-3x16");
  At(&wish, 1, 1)->speed_mbps = 399'999;
  At(&wish, 2, 2)->speed_mbps = 2'147'483'647;
  for (const RouteLeg& leg : ChooseRoute(wish)) {
    EXPECT_GE(leg.share, 1);
    EXPECT_LE(leg.share, 16);
  }
}

TEST(ChooseRoute, Limits_AreKept) {
  RouteWish wish = Hosts(16, 0);
  Lose(&wish, 0, kNobody);
  EXPECT_EQ(ChooseRoute(wish).size(), 7u) << "all of the nearest";
  wish.spread_max = 3;
  EXPECT_EQ(ChooseRoute(wish).size(), 3u);
  wish.base.assign(64, {0, 0});
  wish.spread_max = 8;
  EXPECT_EQ(ChooseRoute(wish).size(), 128u);
  wish.lanes_max = 10;
  EXPECT_EQ(ChooseRoute(wish).size(), 64u) << "one for each, whatever the limit";
}

TEST(ChooseRoute, SpreadLimited_TakesTheLeastLoaded) {
  RouteWish wish = Hosts(16, 0);
  Lose(&wish, 0, kNobody);
  wish.spread_max = 2;
  for (PathFacts& facts : wish.paths) facts.load = 5;
  At(&wish, 3, 3)->load = 1;
  At(&wish, 6, 6)->load = 2;
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>3-3x1 0>6-6x1");
  // Of one connection's own lanes too.
  wish.spread_max = 1;
  wish.base.assign(7, {0, 0});
  for (PathFacts& facts : wish.paths) facts.load = 0;
  std::set<PathId> used;
  for (const RouteLeg& leg : ChooseRoute(wish)) used.insert(leg.path);
  EXPECT_EQ(used.size(), 7u);
}

TEST(ChooseRoute, LoadOfOthers_DoesNotMoveWhatIsNotLimited) {
  RouteWish wish = Hosts(8, 0);
  Lose(&wish, 0, kNobody);
  At(&wish, 1, 1)->load = 1000;
  EXPECT_EQ(Text(ChooseRoute(wish)), "0>1-1x1 0>2-2x1 0>3-3x1");
}

TEST(ChooseRoute, OrderOfCandidates_DoesNotMatter) {
  RouteWish wish = Hosts(8, 2);
  Lose(&wish, 2, kNobody);
  const std::string one = Text(ChooseRoute(wish));
  std::reverse(wish.paths.begin(), wish.paths.end());
  wish.paths.push_back(wish.paths.front());
  EXPECT_EQ(Text(ChooseRoute(wish)), one);
}

// A thousand connections of one lost NIC: all of the survivors carry the same.
TEST(ChooseRoute, ManyConnections_AreBalanced) {
  std::map<PathId, int> load;
  for (int connection = 0; connection < 1000; ++connection) {
    RouteWish wish = Hosts(16, 0);
    wish.spread_max = 2;
    Lose(&wish, 0, kNobody);
    for (PathFacts& facts : wish.paths) facts.load = load[facts.path];
    for (const RouteLeg& leg : ChooseRoute(wish)) ++load[leg.path];
  }
  int least = 1 << 30;
  int most = 0;
  for (const auto& [path, lanes] : load) {
    if (lanes == 0) continue;
    least = std::min(least, lanes);
    most = std::max(most, lanes);
  }
  EXPECT_LE(most - least, 1);
}

TEST(NextInLine, NearestThatSurvivesEitherPort) {
  RouteWish wish = Hosts(8, 0);
  EXPECT_EQ(Text(NextInLine(wish, 3)), "1-1 2-2 3-3");
  for (PathFacts& facts : wish.paths) facts.good = false;
  EXPECT_EQ(Text(NextInLine(wish, 3)), "1-1 2-2 3-3") << "proved or not";
  EXPECT_EQ(Text(NextInLine(wish, 0)), "");
  // No rails: the nearest share a port with the base path, which one fault would take too.
  for (PathFacts& facts : wish.paths) facts.same_rail = false;
  EXPECT_EQ(Text(NextInLine(wish, 2)), "0-1 1-1");
  EXPECT_EQ(Text(NextInLine(wish, 1)), "1-1");
}

TEST(NextInLine, ManyBaseLanes_EachOnce) {
  RouteWish wish = Hosts(4, 0);
  wish.base = {{0, 0}, {0, 0}, {1, 1}};
  EXPECT_EQ(Text(NextInLine(wish, 1)), "2-2");
  // Two ports a host, one path of each other only.
  RouteWish small = Hosts(2, 0);
  EXPECT_EQ(Text(NextInLine(small, 8)), "1-1 0-1 1-0");
  RouteWish single = Hosts(1, 0);
  EXPECT_EQ(Text(NextInLine(single, 8)), "");
}

}  // namespace
}  // namespace railhop::engine
