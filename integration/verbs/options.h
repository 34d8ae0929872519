// The command line of the conformance program.
#ifndef RAILHOP_INTEGRATION_VERBS_OPTIONS_H_
#define RAILHOP_INTEGRATION_VERBS_OPTIONS_H_

#include <string>
#include <vector>

#include "integration/verbs/world.h"

namespace railhop::conformance {

// `arguments` without the program's name. Errors: false with `error` naming the argument and the
// allowed ones.
bool ParseOptions(const std::vector<std::string>& arguments, Options* options, std::string* error);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_OPTIONS_H_
