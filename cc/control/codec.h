// Messages between plain structs (cc/engine/messages.h) and bytes (cc/proto/control.proto).
//
// The bytes come from a peer that has proved that it knows a secret, and may be wrong all the same:
// whatever they are, they give messages whose every number, list and text is in range, or a
// sentence. What a message means, and whether it can be true, is for who uses it.
#ifndef RAILHOP_CC_CONTROL_CODEC_H_
#define RAILHOP_CC_CONTROL_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/engine/messages.h"

namespace railhop::control {

// Of all messages that travel together, encoded.
inline constexpr size_t kBatchBytesMax = 1 << 20;

// Ranges, checked in both directions. Ports of a process are told apart by ids below this; the
// same number as datapath::kPhysicalMax.
inline constexpr int kPhysicalIdsMax = 32;
inline constexpr size_t kNameCharactersMax = 63;
// Longer texts are cut.
inline constexpr size_t kTextCharactersMax = 511;
// Lane places are 0..127; lists of lanes may name several generations of a place.
inline constexpr size_t kLaneListMax = 1024;

// Bytes of one message; those of several, put together, are a batch.
// Errors: InvalidArgument (names kind and field), ResourceExhausted (over kBatchBytesMax).
absl::StatusOr<std::string> EncodeMessage(const engine::Message& message);

// All messages of a batch, in order. Errors: InvalidArgument (not a batch, or names kind and
// field).
absl::StatusOr<std::vector<engine::Message>> DecodeBatch(absl::Span<const uint8_t> bytes);

// "fence", "probe_open"...: as the message is called in control.proto.
const char* MessageName(const engine::Message& message);

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_CODEC_H_
