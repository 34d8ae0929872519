#include "cc/engine/port_health.h"

#include <string>

#include "cc/engine/port_health_table.h"
#include "cc/engine/testing/row_test.h"
#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

using Kind = PortEvent::Kind;

class PortRow : public RowTest {
 protected:
  // What the step wants, in the order of PortStep.
  std::string Do(Kind kind) {
    const PortStep step = port_.Step({.kind = kind});
    Took(port_.row());
    std::string text;
    if (step.leave) text += "leave ";
    if (step.drain) text += "drain ";
    if (step.try_paths) text += "try ";
    if (step.announce) text += "announce ";
    if (step.resolve_address) text += "resolve ";
    if (!text.empty()) text.pop_back();
    return text;
  }
  PortHealth port_;
};

TEST_F(PortRow, N01_ActiveDown_Tries) {
  Do(Kind::kReadNotActive);
  EXPECT_EQ(Do(Kind::kReadActive), "try announce resolve");
  EXPECT_TRUE(port_.MayEnter());
}

TEST_F(PortRow, N02_ActiveFatal_Nothing) {
  Do(Kind::kFatal);
  EXPECT_EQ(Do(Kind::kReadActive), "");
  EXPECT_EQ(port_.state(), PortState::kFatal);
}

TEST_F(PortRow, N03_ActiveActive_Nothing) { EXPECT_EQ(Do(Kind::kReadActive), ""); }

TEST_F(PortRow, N04_NotActive_Leaves) {
  EXPECT_EQ(Do(Kind::kReadNotActive), "leave announce");
  EXPECT_EQ(port_.state(), PortState::kDown);
  EXPECT_FALSE(port_.MayEnter());
}

TEST_F(PortRow, N05_NotActiveDown_Nothing) {
  Do(Kind::kReadNotActive);
  EXPECT_EQ(Do(Kind::kReadNotActive), "");
}

TEST_F(PortRow, N06_Fatal_Leaves) {
  EXPECT_EQ(Do(Kind::kFatal), "leave announce");
  EXPECT_EQ(port_.state(), PortState::kFatal);
}

TEST_F(PortRow, N07_FatalFatal_Nothing) {
  Do(Kind::kFatal);
  EXPECT_EQ(Do(Kind::kFatal), "");
}

TEST_F(PortRow, N08_ReturnedFatal_Down) {
  Do(Kind::kFatal);
  EXPECT_EQ(Do(Kind::kReturned), "announce resolve");
  EXPECT_EQ(port_.state(), PortState::kDown);
  EXPECT_EQ(Do(Kind::kReadActive), "try announce resolve");
}

TEST_F(PortRow, N09_ReturnedOther_Nothing) { EXPECT_EQ(Do(Kind::kReturned), ""); }

TEST_F(PortRow, N10_Address_Probes) {
  EXPECT_EQ(Do(Kind::kAddress), "try announce resolve");
  EXPECT_TRUE(port_.MayEnter());
}

TEST_F(PortRow, N11_AddressDown_Resolves) {
  Do(Kind::kReadNotActive);
  EXPECT_EQ(Do(Kind::kAddress), "announce resolve");
}

TEST_F(PortRow, N12_AddressFatal_Nothing) {
  Do(Kind::kFatal);
  EXPECT_EQ(Do(Kind::kAddress), "");
}

TEST_F(PortRow, N13_Drain_Retires) {
  EXPECT_EQ(Do(Kind::kDrain), "drain announce");
  EXPECT_EQ(port_.state(), PortState::kDrained);
  EXPECT_FALSE(port_.MayEnter());
}

TEST_F(PortRow, N14_DrainDown_Noted) {
  Do(Kind::kReadNotActive);
  EXPECT_EQ(Do(Kind::kDrain), "");
  EXPECT_EQ(port_.state(), PortState::kDown);
  Do(Kind::kReadActive);
  EXPECT_EQ(port_.state(), PortState::kDrained) << "the command outlives the fault";
}

TEST_F(PortRow, N15_DrainAgain_Nothing) {
  Do(Kind::kDrain);
  EXPECT_EQ(Do(Kind::kDrain), "");
}

TEST_F(PortRow, N16_Hold_Leaves) {
  Do(Kind::kDrain);
  EXPECT_EQ(Do(Kind::kHold), "leave announce") << "no longer in order";
  EXPECT_EQ(port_.state(), PortState::kHeld);
}

TEST_F(PortRow, N17_HoldDown_Noted) {
  Do(Kind::kFatal);
  EXPECT_EQ(Do(Kind::kHold), "");
  EXPECT_EQ(port_.state(), PortState::kFatal);
}

TEST_F(PortRow, N18_HoldAgain_Nothing) {
  Do(Kind::kHold);
  EXPECT_EQ(Do(Kind::kHold), "");
}

TEST_F(PortRow, N19_Release_Tries) {
  Do(Kind::kHold);
  EXPECT_EQ(Do(Kind::kRelease), "try announce");
  EXPECT_TRUE(port_.MayEnter());
}

TEST_F(PortRow, N20_ReleaseDown_Noted) {
  Do(Kind::kDrain);
  Do(Kind::kReadNotActive);
  EXPECT_EQ(Do(Kind::kRelease), "");
  EXPECT_EQ(Do(Kind::kReadActive), "try announce resolve");
  EXPECT_TRUE(port_.MayEnter());
}

TEST_F(PortRow, N21_ReleaseFree_Nothing) { EXPECT_EQ(Do(Kind::kRelease), ""); }

TEST(PortTable, EachRow_HasItsTest) { EXPECT_EQ(RowsWithoutTest("PortRow", port::kRows), ""); }

}  // namespace
}  // namespace railhop::engine
