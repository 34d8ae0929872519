// Lines of the event log, as text and as JSON.
#ifndef RAILHOP_CC_FABRIC_EVENT_LOG_H_
#define RAILHOP_CC_FABRIC_EVENT_LOG_H_

#include <string>

#include "cc/fabric/directory.h"

namespace railhop::fabric {

// "  0.012345678 soft0:1 qp 3 drop psn 17 count 1 message 5 rule 0"; time since the fabric's start.
std::string LogText(const DirectoryHandle& directory, const LogRecord& record);
// One object.
std::string LogJson(const DirectoryHandle& directory, const LogRecord& record);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_EVENT_LOG_H_
