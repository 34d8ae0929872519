#include "cc/netperf/resident.h"

#include <cstdio>

namespace railhop::netperf {

Resident ReadResident() {
  Resident resident;
  FILE* file = fopen("/proc/self/status", "r");
  if (file == nullptr) return resident;
  char line[256];
  unsigned long kib = 0;
  while (fgets(line, sizeof(line), file) != nullptr) {
    if (sscanf(line, "RssAnon: %lu", &kib) == 1) resident.anonymous = kib * 1024;
    if (sscanf(line, "RssShmem: %lu", &kib) == 1) resident.shared = kib * 1024;
    if (sscanf(line, "RssFile: %lu", &kib) == 1) resident.file = kib * 1024;
  }
  fclose(file);
  return resident;
}

}  // namespace railhop::netperf
