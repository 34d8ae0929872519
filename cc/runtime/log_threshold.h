// RAILHOP_LOG's words.
#ifndef RAILHOP_CC_RUNTIME_LOG_THRESHOLD_H_
#define RAILHOP_CC_RUNTIME_LOG_THRESHOLD_H_

#include <string_view>

#include "cc/base/log.h"

namespace railhop::runtime {

// trace, info or warn; the option table lets no other through.
inline void SetLogThresholdByWord(std::string_view word) {
  SetLogThreshold(word == "trace"  ? LogSeverity::kTrace
                  : word == "warn" ? LogSeverity::kWarning
                                   : LogSeverity::kInfo);
}

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_LOG_THRESHOLD_H_
