#include "cc/netperf/callgrind_output.h"

#include "gtest/gtest.h"

namespace railhop::netperf {
namespace {

constexpr char kDump[] = R"(# callgrind format
version: 1
part: 3

desc: I1 cache:
desc: Timerange: Basic block 10 - 20
desc: Trigger: Client Request: isend 8

positions: line
events: Ir
summary: 777

ob=/opt/program
fl=main.cc
fn=main
10 5
cob=/opt/plugin.so
cfi=plugin.cc
cfn=isend
calls=8 100
11 760

ob=/opt/plugin.so
fl=plugin.cc
fn=isend
100 30
101 12
cob=/opt/libibverbs.so.1
cfn=post
calls=8 7
102 718
fi=inlined.h
5 8
fe=plugin.cc
103

ob=/opt/libibverbs.so.1
fn=post
7 718
totals: 777
)";

TEST(ParseCallgrind, Dump_GivesOwnCostAndCallsBetweenObjects) {
  const CallgrindDump dump = ParseCallgrind(kDump);
  EXPECT_EQ(dump.trigger, "isend 8");
  EXPECT_EQ(dump.own.at("/opt/plugin.so"), 50u);
  EXPECT_EQ(dump.own.at("/opt/program"), 5u);
  EXPECT_EQ(dump.own.at("/opt/libibverbs.so.1"), 718u);
  EXPECT_EQ(dump.calls.size(), 2u);
  EXPECT_EQ(dump.calls.at({"/opt/program", "/opt/plugin.so"}), 760u);
  EXPECT_EQ(dump.calls.at({"/opt/plugin.so", "/opt/libibverbs.so.1"}), 718u);
}

TEST(ParseCallgrind, Nothing_GivesNothing) {
  EXPECT_EQ(ParseCallgrind("").trigger, "");
  EXPECT_TRUE(ParseCallgrind("").own.empty());
}

}  // namespace
}  // namespace railhop::netperf
