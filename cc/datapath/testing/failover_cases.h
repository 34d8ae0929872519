// What the tests of lanes that fail have in common.
#ifndef RAILHOP_CC_DATAPATH_TESTING_FAILOVER_CASES_H_
#define RAILHOP_CC_DATAPATH_TESTING_FAILOVER_CASES_H_

#include <initializer_list>
#include <vector>

#include "cc/datapath/testing/two_ends.h"
#include "gtest/gtest.h"

namespace railhop::datapath {

using Fate = TwoEnds::Fate;
using Status = ResumeResult::Status;

inline TwoEnds::Shape Shape(int devices, int lanes, uint32_t lanes_per_send = 1) {
  TwoEnds::Shape shape;
  shape.devices = devices;
  shape.lanes = lanes;
  shape.rules.lanes_per_send = lanes_per_send;
  return shape;
}

// Lanes of both ends, in their first epoch.
inline std::vector<LaneRef> Refs(std::initializer_list<int> lanes) {
  std::vector<LaneRef> refs;
  for (const int lane : lanes) refs.push_back({static_cast<uint8_t>(lane), 1});
  return refs;
}

inline LaneView ViewOf(Connection* connection, uint32_t lane) {
  std::vector<LaneView> views;
  connection->Observe(&views);
  for (const LaneView& view : views) {
    if (view.lane.index == lane) return view;
  }
  ADD_FAILURE() << "no lane " << lane;
  return {};
}

inline void ExpectDone(TwoEnds* t, Transfer* receive, SendRequest* sent, int size) {
  t->Settle();
  EXPECT_EQ(t->Received(receive), std::vector<int>{size});
  EXPECT_TRUE(t->IsSent(sent));
  EXPECT_EQ(t->Check(), "");
}

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_TESTING_FAILOVER_CASES_H_
