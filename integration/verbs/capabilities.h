// The capability words: what a verbs library may lack without being wrong.
//
// A case names those it needs, and a fabric's expectations file declares those it lacks. Where a
// capability can be asked for, it has a probe, and a declaration that the probe contradicts is a
// failure: a fabric that learns something must say so.
#ifndef RAILHOP_INTEGRATION_VERBS_CAPABILITIES_H_
#define RAILHOP_INTEGRATION_VERBS_CAPABILITIES_H_

#include <string>
#include <vector>

#include "integration/verbs/world.h"

namespace railhop::conformance {

struct Capability {
  const char* word;
  const char* meaning;
  bool (*probe)(World&);  // null: only its cases can tell
};

const std::vector<Capability>& AllCapabilities();

// Null when there is no such word.
const Capability* FindCapability(const std::string& word);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_CAPABILITIES_H_
