// The rows of PortHealth. docs/reference/port-machine.md is made from them, and port_health_test.cc
// has a test named after each.
//
// A state is what is read of the port, and the command that is in force.
#ifndef RAILHOP_CC_ENGINE_PORT_HEALTH_TABLE_H_
#define RAILHOP_CC_ENGINE_PORT_HEALTH_TABLE_H_

#include <array>

#include "cc/engine/port_health.h"
#include "cc/engine/table.h"

namespace railhop::engine::port {

enum State : int {
  kActive,
  kDown,
  kFatal,
  kHeldActive,
  kHeldDown,
  kHeldFatal,
  kDrainedActive,
  kDrainedDown,
  kDrainedFatal,
};
inline constexpr std::array<const char*, 9> kStateNames = {"active",
                                                           "down",
                                                           "fatal",
                                                           "held and active",
                                                           "held and down",
                                                           "held and fatal",
                                                           "drained and active",
                                                           "drained and down",
                                                           "drained and fatal"};
inline constexpr int kEvents = static_cast<int>(PortEvent::Kind::kRelease) + 1;
inline constexpr std::array<const char*, kEvents> kEventNames = {
    "ReadActive", "ReadNotActive", "Fatal", "Returned", "Address", "Drain", "Hold", "Release"};

enum class Guard : uint8_t { kAlways };
inline constexpr std::array<const char*, 1> kGuardNames = {""};

enum class Do : uint8_t {
  kNone,
  kSetActive,
  kSetDown,
  kSetFatal,
  kSetFree,
  kSetHeld,
  kSetDrained,
  kLeave,
  kDrain,
  kTryPaths,
  kAnnounce,
  kResolve,
};
inline constexpr std::array<const char*, 12> kDoNames = {"",
                                                         "now active",
                                                         "now down",
                                                         "now fatal",
                                                         "command over",
                                                         "held",
                                                         "drained",
                                                         "leave it",
                                                         "retire its lanes",
                                                         "probe its paths",
                                                         "tell the peers",
                                                         "look its address up"};

using Row = TableRow<Guard, Do>;
using Kind = PortEvent::Kind;

inline constexpr uint32_t kAll = (1u << 9) - 1;
inline constexpr uint32_t kReadsActive = In(kActive, kHeldActive, kDrainedActive);
inline constexpr uint32_t kReadsDown = In(kDown, kHeldDown, kDrainedDown);
inline constexpr uint32_t kReadsFatal = In(kFatal, kHeldFatal, kDrainedFatal);
inline constexpr uint32_t kFree = In(kActive, kDown, kFatal);
inline constexpr uint32_t kHeld = In(kHeldActive, kHeldDown, kHeldFatal);
inline constexpr uint32_t kDrained = In(kDrainedActive, kDrainedDown, kDrainedFatal);
inline constexpr std::array<BitGroup, 9> kGroups = {{
    {kAll, "any"},
    {kReadsActive, "any active"},
    {kReadsDown, "any down"},
    {kReadsFatal, "any fatal"},
    {kReadsActive | kReadsDown, "any active or down"},
    {kReadsDown | kReadsFatal, "any down or fatal"},
    {kFree, "any without a command"},
    {kHeld, "any held"},
    {kDrained, "any drained"},
}};

// A row reads across: clang-format would set each word on a line.
// clang-format off
inline constexpr std::array kRows = {
    Row{"N01_ActiveDown_Tries", kReadsDown, In(Kind::kReadActive), Guard::kAlways,
        {Do::kSetActive, Do::kTryPaths, Do::kAnnounce, Do::kResolve}, Row::kSame,
        "active is not proved, and the address may be another"},
    Row{"N02_ActiveFatal_Nothing", kReadsFatal, In(Kind::kReadActive), Guard::kAlways, {},
        Row::kSame, "the context that reads is of the dead device"},
    Row{"N03_ActiveActive_Nothing", kReadsActive, In(Kind::kReadActive), Guard::kAlways, {},
        Row::kSame, ""},
    Row{"N04_NotActive_Leaves", kReadsActive, In(Kind::kReadNotActive), Guard::kAlways,
        {Do::kSetDown, Do::kLeave, Do::kAnnounce}, Row::kSame,
        "read as not active is enough to leave"},
    Row{"N05_NotActiveDown_Nothing", kReadsDown | kReadsFatal, In(Kind::kReadNotActive),
        Guard::kAlways, {}, Row::kSame, "no news"},
    Row{"N06_Fatal_Leaves", kReadsActive | kReadsDown, In(Kind::kFatal), Guard::kAlways,
        {Do::kSetFatal, Do::kLeave, Do::kAnnounce}, Row::kSame, ""},
    Row{"N07_FatalFatal_Nothing", kReadsFatal, In(Kind::kFatal), Guard::kAlways, {}, Row::kSame,
        "no news"},
    Row{"N08_ReturnedFatal_Down", kReadsFatal, In(Kind::kReturned), Guard::kAlways,
        {Do::kSetDown, Do::kAnnounce, Do::kResolve}, Row::kSame, "until it is read"},
    Row{"N09_ReturnedOther_Nothing", kReadsActive | kReadsDown, In(Kind::kReturned), Guard::kAlways,
        {}, Row::kSame, "it was not away"},
    Row{"N10_Address_Probes", kReadsActive, In(Kind::kAddress), Guard::kAlways,
        {Do::kResolve, Do::kTryPaths, Do::kAnnounce}, Row::kSame,
        "lanes that still work are not left: the probes decide"},
    Row{"N11_AddressDown_Resolves", kReadsDown, In(Kind::kAddress), Guard::kAlways,
        {Do::kResolve, Do::kAnnounce}, Row::kSame, ""},
    Row{"N12_AddressFatal_Nothing", kReadsFatal, In(Kind::kAddress), Guard::kAlways, {}, Row::kSame,
        "it is looked up when the device is back"},
    Row{"N13_Drain_Retires", In(kActive, kHeldActive), In(Kind::kDrain), Guard::kAlways,
        {Do::kSetDrained, Do::kDrain, Do::kAnnounce}, Row::kSame,
        "outstanding work completes first"},
    Row{"N14_DrainDown_Noted", In(kDown, kFatal, kHeldDown, kHeldFatal), In(Kind::kDrain),
        Guard::kAlways, {Do::kSetDrained}, Row::kSame,
        "nothing is on it, and peers know it as down"},
    Row{"N15_DrainAgain_Nothing", kDrained, In(Kind::kDrain), Guard::kAlways, {}, Row::kSame,
        "no news"},
    Row{"N16_Hold_Leaves", In(kActive, kDrainedActive), In(Kind::kHold), Guard::kAlways,
        {Do::kSetHeld, Do::kLeave, Do::kAnnounce}, Row::kSame, "as a fault"},
    Row{"N17_HoldDown_Noted", In(kDown, kFatal, kDrainedDown, kDrainedFatal), In(Kind::kHold),
        Guard::kAlways, {Do::kSetHeld}, Row::kSame, "nothing is on it, and peers know it as down"},
    Row{"N18_HoldAgain_Nothing", kHeld, In(Kind::kHold), Guard::kAlways, {}, Row::kSame, "no news"},
    Row{"N19_Release_Tries", In(kHeldActive, kDrainedActive), In(Kind::kRelease), Guard::kAlways,
        {Do::kSetFree, Do::kTryPaths, Do::kAnnounce}, Row::kSame, ""},
    Row{"N20_ReleaseDown_Noted", In(kHeldDown, kHeldFatal, kDrainedDown, kDrainedFatal),
        In(Kind::kRelease), Guard::kAlways, {Do::kSetFree}, Row::kSame, "it is still down"},
    Row{"N21_ReleaseFree_Nothing", kFree, In(Kind::kRelease), Guard::kAlways, {}, Row::kSame,
        "there is no command"},
};
// clang-format on

static_assert(IdsAreUnique(kRows));
static_assert(IsComplete(kRows, kAll, kEvents));
static_assert(IsWithin(kRows, kAll, kEvents));

}  // namespace railhop::engine::port

#endif  // RAILHOP_CC_ENGINE_PORT_HEALTH_TABLE_H_
