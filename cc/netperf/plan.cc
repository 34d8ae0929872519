#include "cc/netperf/plan.h"

#include <algorithm>

namespace railhop::netperf {

void Counts::Add(const Counts& other) {
  messages += other.messages;
  bytes += other.bytes;
  wrong_bytes += other.wrong_bytes;
  wrong_sizes += other.wrong_sizes;
  errors += other.errors;
  if (other.longest_gap_ns > longest_gap_ns) {
    longest_gap_ns = other.longest_gap_ns;
    longest_gap_after = other.longest_gap_after;
  }
  longest_turn_ns = std::max(longest_turn_ns, other.longest_turn_ns);
  if (other.start_ns != 0) {
    start_ns = start_ns == 0 ? other.start_ns : std::min(start_ns, other.start_ns);
  }
  end_ns = std::max(end_ns, other.end_ns);
}

}  // namespace railhop::netperf
