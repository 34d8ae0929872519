// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104).
//
// Our own because the plugin may depend on libc alone, and what could be linked in brings more than
// it gives: libcrypto a provider framework with exit handlers in a library that NCCL unloads,
// nettle a licence. Checked against the published vectors of both standards. Only for a handful of
// handshake messages: no speed is sought, and no secret-dependent branch or table is in it.
#ifndef RAILHOP_CC_CONTROL_SHA256_H_
#define RAILHOP_CC_CONTROL_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace railhop::control {

inline constexpr size_t kDigestBytes = 32;
using Digest = std::array<uint8_t, kDigestBytes>;

// A digest taken piece by piece. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  void Update(absl::Span<const uint8_t> data);
  // The object is used up.
  Digest Finish();

 private:
  void Block(const uint8_t* block);

  uint32_t state_[8];
  uint8_t buffer_[64];
  size_t buffered_ = 0;
  uint64_t total_bytes_ = 0;
};

// An authentication code taken piece by piece. A key of any length.
class HmacSha256 {
 public:
  explicit HmacSha256(absl::Span<const uint8_t> key);
  void Update(absl::Span<const uint8_t> data) { inner_.Update(data); }
  // The object is used up.
  Digest Finish();

 private:
  Sha256 inner_;
  uint8_t outer_pad_[64];
};

// In the same time wherever they differ.
bool DigestsEqual(const Digest& a, const Digest& b);

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SHA256_H_
