#include "cc/runtime/gid_choice.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace railhop::runtime {
namespace {

// "10.0.0.1 v2", "fe80::1 v1", "empty", "unreadable".
using Table = std::vector<std::string>;

std::optional<GidEntry> Parse(const std::string& text) {
  if (text == "unreadable") return std::nullopt;
  GidEntry entry;
  if (text == "empty") return entry;
  const size_t blank = text.find(' ');
  std::string address = text.substr(0, blank);
  if (address.find(':') == std::string::npos) address = "::ffff:" + address;
  EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), entry.raw.data()), 1) << text;
  if (blank != std::string::npos) entry.roce_version = text[blank + 2] - '0';
  return entry;
}

GidChoice Choose(const Table& table, const GidRule& rule, bool is_ethernet = true) {
  return ChooseGid(rule, is_ethernet, static_cast<int>(table.size()),
                   [&](int index) -> std::optional<GidEntry> {
                     if (index < 0 || index >= static_cast<int>(table.size())) return std::nullopt;
                     return Parse(table[static_cast<size_t>(index)]);
                   });
}

GidRule Rule(const std::string& family = "", const std::string& range = "", int version = 2,
             int64_t pinned = -1) {
  return MakeGidRule(pinned, 1, version, family, range, nullptr);
}

// As Linux fills it: link-local v1, v2, then each address as v1, v2.
const Table kUsual = {"fe80::1 v1",  "fe80::1 v2", "10.0.0.1 v1",
                      "10.0.0.1 v2", "fd00::1 v1", "fd00::1 v2"};

struct Case {
  const char* what;
  Table table;
  GidRule rule;
  int index;
};

TEST(GidChoice, EveryRule_OnTables) {
  const Case cases[] = {
      {"usual: IPv4, v2", kUsual, Rule(), 3},
      {"v1 wanted", kUsual, Rule("", "", 1), 2},
      {"IPv6 wanted", kUsual, Rule("AF_INET6"), 5},
      {"other family text is IPv4", kUsual, Rule("ipv6"), 3},
      {"range of the second address",
       {"fe80::1 v1", "fe80::1 v2", "10.0.0.1 v1", "10.0.0.1 v2", "10.9.0.1 v1", "10.9.0.1 v2"},
       Rule("", "10.9.0.0/16"),
       5},
      {"first of two good ones stays", {"fe80::1 v1", "10.0.0.1 v2", "10.9.0.1 v2"}, Rule(), 1},
      {"v2 before v1", {"fe80::1 v1", "10.0.0.1 v2", "10.0.0.1 v1"}, Rule(), 1},
      {"hole", {"fe80::1 v1", "unreadable", "empty", "10.0.0.1 v1", "10.0.0.1 v2"}, Rule(), 4},
      {"unreadable entry 0", {"unreadable", "10.0.0.1 v2"}, Rule(), 1},
      {"IPv6 only: routable before link-local",
       {"fe80::1 v1", "fe80::1 v2", "fd00::1 v1", "fd00::1 v2"},
       Rule(),
       3},
      {"IPv6 only, IPv4 insisted on",
       {"fe80::1 v1", "fe80::1 v2", "fd00::1 v2"},
       Rule("AF_INET"),
       0},
      {"IPv6 only, IPv4 range", {"fe80::1 v1", "fd00::1 v2"}, Rule("", "10.0.0.0/8"), 0},
      {"IPv4 only, IPv6 insisted on", {"10.0.0.1 v1", "10.0.0.1 v2"}, Rule("AF_INET6"), 0},
      {"one entry", {"10.0.0.1 v2"}, Rule(), 0},
      {"no entry", {}, Rule(), 0},
      {"only link-local", {"fe80::1 v1", "fe80::1 v2"}, Rule(), 0},
      {"IPv6: link-local is left for a routable one",
       {"fe80::1 v2", "fd00::1 v2"},
       Rule("AF_INET6"),
       1},
      {"versions not known", {"fe80::1", "10.0.0.1", "10.0.0.2"}, Rule(), 1},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Choose(c.table, c.rule).index, c.index) << c.what;
  }
}

TEST(GidChoice, Pinned_UsedUncheckedWithItsDoubt) {
  EXPECT_EQ(Choose(kUsual, Rule("", "", 2, 3)).index, 3);
  EXPECT_EQ(Choose(kUsual, Rule("", "", 2, 3)).doubt, "");
  EXPECT_EQ(Choose(kUsual, Rule("", "", 2, 2)).index, 2);
  EXPECT_EQ(Choose(kUsual, Rule("", "", 2, 2)).doubt, "GID index 2 (10.0.0.1) is RoCE v1");
  EXPECT_EQ(Choose(kUsual, Rule("", "", 2, 99)).index, 99);
  EXPECT_EQ(Choose(kUsual, Rule("", "", 2, 99)).doubt, "GID index 99 cannot be read");
  EXPECT_EQ(Choose({"empty"}, Rule("", "", 2, 0)).doubt, "GID index 0 is empty");
}

TEST(GidChoice, LinkLocalLeft_IsDoubted) {
  EXPECT_EQ(Choose({"fe80::1 v2"}, Rule()).doubt,
            "GID index 0 (fe80::1) is link-local: it reaches nobody beyond the switch");
}

TEST(GidChoice, InfiniBand_RoutableIdOrEntry0) {
  const Table routed = {"fec0::1:2:3:4", "fe80:0:17::1"};
  const Table flat = {"fe80::1", "fe80::2"};
  EXPECT_EQ(Choose(routed, Rule(), false).index, 1);
  EXPECT_EQ(Choose(flat, Rule(), false).index, 0);
  EXPECT_EQ(Choose({"fe80::1"}, Rule(), false).index, 0);
  EXPECT_EQ(Choose({"fe80::1", "unreadable"}, Rule(), false).index, 0);
  EXPECT_EQ(Choose(routed, Rule("", "", 2, 5), false).index, 1) << "pinned index is RoCE's";
  GidRule second = Rule();
  second.routable_index = 2;
  EXPECT_EQ(Choose({"fe80::1", "fe80::2", "fe80:0:17::1"}, second, false).index, 2);
}

TEST(GidChoice, BadRange_IsIgnoredAndSaid) {
  std::string doubt;
  const GidRule rule = MakeGidRule(-1, 1, 2, "", "10.0.0.0", &doubt);
  EXPECT_EQ(rule.range.prefix_length, 0);
  EXPECT_EQ(doubt, "no '/' in '10.0.0.0' (wanted: address/bits)");
}

TEST(Gid, Format_AsPeopleWriteIt) {
  EXPECT_EQ(GidText(Parse("10.1.2.3")->raw), "10.1.2.3");
  EXPECT_EQ(GidText(Parse("fd00::1")->raw), "fd00::1");
  EXPECT_EQ(GidText({}), "::");
}

}  // namespace
}  // namespace railhop::runtime
