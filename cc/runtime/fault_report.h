// Sentences for people about what went wrong, without failover: the first fault of a connection
// ends it.
#ifndef RAILHOP_CC_RUNTIME_FAULT_REPORT_H_
#define RAILHOP_CC_RUNTIME_FAULT_REPORT_H_

#include <string>

#include "cc/datapath/connection.h"
#include "cc/runtime/listener.h"

namespace railhop::runtime {

// One line: connection, what, queue pair, and what to look at.
std::string DescribeFault(const std::string& connection, const datapath::Fault& fault);

// Warns of the connection's first fault, once. Any thread.
void ReportFault(datapath::Connection* connection);

// One line at INFO if anybody but peers has called a listener.
void ReportStrangers(const ListenerCounters& counters);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_FAULT_REPORT_H_
