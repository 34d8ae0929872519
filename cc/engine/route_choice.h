// Which paths a connection's lanes should be on, given the health of all: the nearest good ones.
//
// A base lane whose own path is good stays there. The others are spread over the survivors: same
// rail at both ends first, then nearest to the base port (same PCI switch, same NUMA node, same
// host), by capacity when there are several equally near, and by how much they carry already when
// there are more than the connection can use. Pure.
#ifndef RAILHOP_CC_ENGINE_ROUTE_CHOICE_H_
#define RAILHOP_CC_ENGINE_ROUTE_CHOICE_H_

#include <cstdint>
#include <vector>

#include "cc/engine/ids.h"

namespace railhop::engine {

// A candidate.
struct PathFacts {
  PathId path;
  bool good = false;       // proved, both ports may be entered, covered
  bool same_rail = false;  // of the two ports
  uint8_t distance = 0;    // of the local port from the connection's own: 0 same port, 1 same PCI
                           // switch, 2 same NUMA node, 3 same host
  uint8_t remote_distance = 0;  // as far as the peer has told; else 0 same port, 2 another
  int speed_mbps = 0;           // the smaller of the two
  int load = 0;                 // lanes of other connections on it, of this process
};

struct RouteWish {
  std::vector<PathId> base;  // of each base lane, in order
  std::vector<PathFacts> paths;
  // A failed base lane is spread over so many paths at most,
  int spread_max = 8;
  // and, where that needs farther ones of the same rails too, over so many at least: a single
  // survivor next to the lost port would carry twice its own, three carry a third more each.
  int spread_min = 3;
  int lanes_max = 128;
};

// For each base lane in order, where its traffic goes; at least one for each if any path is good.
// `share` is relative among all: lanes are used in turn in these proportions.
struct RouteLeg {
  PathId path;
  int base = 0;   // index of the base lane that it serves
  int share = 1;  // 1..16
  friend bool operator==(const RouteLeg&, const RouteLeg&) = default;
};

// Empty: there is no good path.
std::vector<RouteLeg> ChooseRoute(const RouteWish& wish);

// The next candidates to keep proved and covered: not good or base ones, but those that
// ChooseRoute would take if all base paths failed; at most `count` for each base lane.
std::vector<PathId> NextInLine(const RouteWish& wish, int count);

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_ROUTE_CHOICE_H_
