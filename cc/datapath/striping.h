// How a send is cut into stripes: pure arithmetic, the same for a first try and a resend.
//
// A send over several lanes is cut evenly, one stripe for each; long sends are cut further, so that
// each work request is acknowledged soon. Two rules bound the cut: stripes start at multiples of
// 128 bytes, and there are at most 128 of them.
#ifndef RAILHOP_CC_DATAPATH_STRIPING_H_
#define RAILHOP_CC_DATAPATH_STRIPING_H_

#include <algorithm>
#include <cstdint>

#include "cc/datapath/wire_format.h"

namespace railhop::datapath {

// A send below this for each lane uses fewer lanes: a work request costs more than it saves.
inline constexpr uint64_t kStripeBytesMin = 2048;
// Longer pieces are cut, as long as the number of stripes allows it. 16 MiB take 13 ms at 10 Gb/s.
inline constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
// What one work request may carry. Source: the smallest max_msg_sz of NICs in the field is 1 GiB.
inline constexpr uint64_t kWorkRequestBytesMax = uint64_t{1} << 30;
// So the longest send is this.
inline constexpr uint64_t kSendBytesMax = kStripesMax * kWorkRequestBytesMax;

struct StripePlan {
  uint32_t stripes = 1;       // 1..128
  uint64_t stripe_bytes = 0;  // of each but the last; a multiple of 128 if there are several

  constexpr uint64_t Offset(uint32_t stripe) const { return stripe * stripe_bytes; }
  constexpr uint64_t Length(uint32_t stripe, uint64_t size) const {
    return std::min(stripe_bytes, size - Offset(stripe));
  }
};

// Whether a send is one stripe: nearly every one, so it is asked first.
constexpr bool IsOneStripe(uint64_t size, uint32_t lanes) {
  return size < 2 * kStripeBytesMin || (lanes == 1 && size <= kPieceBytes);
}

// size <= kSendBytesMax; lanes 1..128.
constexpr StripePlan PlanStripes(uint64_t size, uint32_t lanes) {
  if (IsOneStripe(size, lanes)) return {.stripes = 1, .stripe_bytes = size};
  const uint64_t wanted = std::min<uint64_t>(lanes, size / kStripeBytesMin);
  uint64_t bytes = (size + wanted - 1) / wanted;
  if (bytes > kPieceBytes) {
    bytes = std::max(kPieceBytes, (size + kStripesMax - 1) / kStripesMax);
  }
  bytes = (bytes + kStripeAlignment - 1) & ~(kStripeAlignment - 1);
  return {.stripes = static_cast<uint32_t>((size + bytes - 1) / bytes), .stripe_bytes = bytes};
}

// Bits for stripes [0, stripes): of the first 64, and of the others.
constexpr uint64_t LowStripes(uint32_t stripes) {
  return stripes < 64 ? (uint64_t{1} << stripes) - 1 : ~uint64_t{0};
}
constexpr uint64_t HighStripes(uint32_t stripes) {
  return stripes <= 64 ? 0 : ~uint64_t{0} >> (kStripesMax - stripes);
}

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_STRIPING_H_
