// How much memory of this process is resident, in bytes.
#ifndef RAILHOP_CC_NETPERF_RESIDENT_H_
#define RAILHOP_CC_NETPERF_RESIDENT_H_

#include <cstdint>

namespace railhop::netperf {

struct Resident {
  uint64_t anonymous = 0;
  uint64_t shared = 0;  // shared memory: of the software fabric, mostly
  uint64_t file = 0;    // of programs and libraries
  uint64_t all() const { return anonymous + shared + file; }
};

// Source: proc(5), RssAnon, RssShmem and RssFile of /proc/self/status.
Resident ReadResident();

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_RESIDENT_H_
