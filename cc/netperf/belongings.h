// Threads and descriptors of this process: what is there now that was not there before.
#ifndef RAILHOP_CC_NETPERF_BELONGINGS_H_
#define RAILHOP_CC_NETPERF_BELONGINGS_H_

#include <set>
#include <string>

#include "cc/netperf/plan.h"

namespace railhop::netperf {

class Belongings {
 public:
  // What there is now.
  Belongings();

  // What is there beyond that. Threads that are just ending get a moment.
  Leftovers Left() const;

 private:
  std::set<std::string> threads_;      // by number
  std::set<std::string> descriptors_;  // by number
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_BELONGINGS_H_
