// What travels in one message of the plugin: a header, and a part of a message of ours.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_MESSAGE_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_MESSAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace railhop::transport {

// A message is cut into parts, and each lane takes the next one when it has room. `serial` counts
// the messages of one sender to one receiver; they are matched in that order, however the parts
// overtake each other.
struct Header {
  static constexpr uint32_t kMagic = 0x52485031;

  uint32_t magic = kMagic;
  uint32_t kind = 0;    // what the sender called: see Messenger
  uint64_t serial = 0;  // from 0
  uint64_t tag = 0;
  uint64_t total = 0;   // bytes of the message
  uint64_t offset = 0;  // of this part in it
};
static_assert(sizeof(Header) == 40);

inline constexpr size_t kSlotBytes = 128 * 1024;
inline constexpr size_t kHeaderBytes = 64;  // Header, and the rest of its cache line
inline constexpr size_t kPartMax = kSlotBytes - kHeaderBytes;
inline constexpr int kSlots = 4;  // of a lane, in each direction

// Bytes of a part: small messages stay whole, large ones go over all lanes.
inline size_t PartBytes(uint64_t total, int lanes) {
  constexpr uint64_t kMin = 16 * 1024;
  const uint64_t share = (total + static_cast<uint64_t>(lanes) - 1) / static_cast<uint64_t>(lanes);
  const uint64_t rounded = (share + 4095) / 4096 * 4096;
  return static_cast<size_t>(std::clamp<uint64_t>(rounded, kMin, kPartMax));
}

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_MESSAGE_H_
