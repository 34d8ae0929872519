#include <iterator>

#include "integration/verbs/case.h"

namespace railhop::conformance {

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (auto* group :
       {DeviceCases,        LifecycleCases,  QpStateCases, QpAttributeCases, TransferCases,
        ScatterGatherCases, CompletionCases, ChannelCases, OrderingCases,    MemoryKeyCases,
        LocalErrorCases,    RnrCases,        RetryCases,   ErrorStateCases,  ResetCases,
        UnreliableCases,    WrApiCases,      EventCases,   LossyCases,       ThreadCases,
        ProcessCases,       ScaleCases}) {
    std::vector<Case> cases = group();
    all.insert(all.end(), std::make_move_iterator(cases.begin()),
               std::make_move_iterator(cases.end()));
  }
  return all;
}

}  // namespace railhop::conformance
