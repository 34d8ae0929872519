// Messages on the admin socket: the length, 4 bytes, little endian, then the message.
#ifndef RAILHOP_CC_ADMIN_FRAME_H_
#define RAILHOP_CC_ADMIN_FRAME_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace railhop::admin {

inline constexpr size_t kLengthBytes = 4;

inline std::string Framed(std::string_view message) {
  std::string bytes(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<char>(message.size() >> 8 * i & 0xff);
  }
  bytes += message;
  return bytes;
}

// Of the message that begins with these kLengthBytes bytes.
inline size_t LengthAt(std::string_view bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= size_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  }
  return length;
}

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_FRAME_H_
