// The messages by which two ends agree on a connection: HELLO from the sender, REPLY from the
// listener, READY from the sender; REJECT, with a sentence, in place of any of them.
//
// A message is header, payload and authentication code. Header, code and the first 48 bytes of the
// payload stay as they are in every version, so ends of different versions can still tell each
// other so. The code covers the direction and the peer's nonce too: a recorded message is of no
// use, and without the handle's secret nobody gets past the first.
//
// Every byte of a message may be hostile: decoding checks each length and each range.
#ifndef RAILHOP_CC_CONTROL_HANDSHAKE_H_
#define RAILHOP_CC_CONTROL_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/control/handle.h"
#include "cc/control/sha256.h"
#include "cc/control/socket_address.h"

namespace railhop::control {

// Raised with every change of a message or of what the ends write into each other's memory.
inline constexpr uint16_t kProtocolVersion = 2;
inline constexpr char kPluginVersion[] = "0.1.0";

inline constexpr uint64_t kFrameMark = 0x45524f4d504f4852;  // "RHOPMORE"
inline constexpr uint32_t kPayloadBytesMax = 16384;
inline constexpr size_t kNonceBytes = 16;
using Nonce = std::array<uint8_t, kNonceBytes>;

// Of an end, where its process can be called on the control channel.
inline constexpr size_t kControlAddressesMax = 8;

enum class MessageType : uint16_t { kHello = 1, kReply = 2, kReady = 3, kReject = 4 };

// On the wire, before the payload. Never changes.
struct FrameHeader {
  uint64_t mark;
  uint16_t protocol_version;
  uint16_t type;
  uint32_t payload_bytes;
  uint64_t listener_id;
};
static_assert(sizeof(FrameHeader) == 24);

// One device of an end.
struct DeviceDescription {
  std::string name;  // at most 63 bytes
  uint8_t port = 1;
  bool is_ethernet = false;
  uint8_t mtu = 0;  // an ibv_mtu: 1..5
  uint16_t lid = 0;
  std::array<uint8_t, 16> gid = {};
  uint32_t control_key = 0;  // remote key of the end's memory for this connection
  int16_t rail = -1;

  friend bool operator==(const DeviceDescription&, const DeviceDescription&) = default;
};

// One queue pair of an end.
struct LaneDescription {
  uint32_t qp_number = 0;  // 24 bits
  uint32_t start_psn = 0;  // 24 bits; the first that this end sends
  uint32_t ece_vendor = 0;
  uint32_t ece_options = 0;
  uint32_t ece_mask = 0;

  friend bool operator==(const LaneDescription&, const LaneDescription&) = default;
};

// Payload of HELLO and REPLY.
struct EndDescription {
  Nonce nonce = {};
  std::string plugin_version;  // at most 31 bytes
  uint64_t instance_id = 0;    // of the process, random
  std::string host;            // at most 63 bytes
  uint32_t epoch = 0;          // of the lanes
  uint64_t memory_address = 0;
  // HELLO only: what both ends use.
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  // Both ends must want failover for a connection to have it.
  bool failover = false;
  // HELLO only: the sender completes its sends on the receiver's own confirmation.
  bool confirm = false;
  std::vector<SocketAddress> control_addresses;  // best first, at most kControlAddressesMax
  std::vector<DeviceDescription> devices;        // 1..8
  std::vector<LaneDescription> lanes;            // 1..128

  friend bool operator==(const EndDescription&, const EndDescription&) = default;
};

// The name of a connection at both ends: from the nonce of the HELLO that led to it.
uint64_t ConnectionIdOf(const Nonce& hello_nonce);

// What a message's code is made with.
struct Authenticator {
  Secret secret = {};
  bool from_listener = false;  // the direction of the message
  Nonce peer_nonce = {};       // of the end that the message goes to; zeros in HELLO

  Digest Code(const FrameHeader& header, absl::Span<const uint8_t> payload) const;
};

// A whole message as bytes.
std::vector<uint8_t> EncodeFrame(MessageType type, uint64_t listener_id,
                                 absl::Span<const uint8_t> payload, const Authenticator& auth,
                                 uint16_t protocol_version = kProtocolVersion);

std::vector<uint8_t> EncodeEnd(const EndDescription& end);
// Errors: InvalidArgument (names the field).
absl::StatusOr<EndDescription> DecodeEnd(absl::Span<const uint8_t> payload);

// REJECT: nonce, version, then the sentence.
std::vector<uint8_t> EncodeReject(const std::string& plugin_version, const std::string& why);

// The part of HELLO, REPLY and REJECT that never changes.
struct Preamble {
  Nonce nonce = {};
  std::string plugin_version;
};
// Errors: InvalidArgument (too short).
absl::StatusOr<Preamble> DecodePreamble(absl::Span<const uint8_t> payload);
// The sentence of a REJECT, made printable; empty if there is none.
std::string DecodeRejectReason(absl::Span<const uint8_t> payload);

// A message as it came in, not authenticated.
struct Frame {
  FrameHeader header = {};
  std::vector<uint8_t> payload;
  Digest code = {};

  bool IsAuthentic(const Authenticator& auth) const;
};

// Takes bytes as they come and gives whole frames. Not thread-safe.
class FrameParser {
 public:
  enum class State : uint8_t {
    kIncomplete,
    kComplete,  // frame() is whole
    kJunk,      // these bytes are no frame of ours
  };

  // Takes what belongs to the frame; returns how many bytes that was. None after kComplete or
  // kJunk.
  size_t Take(absl::Span<const uint8_t> data);
  State state() const { return state_; }
  const Frame& frame() const { return frame_; }
  // The first eight bytes, once there.
  bool BeginsWith(uint64_t number) const;
  bool Empty() const { return bytes_.empty(); }
  // To the next frame.
  void Reset();

 private:
  void Inspect();

  std::vector<uint8_t> bytes_;
  size_t wanted_ = sizeof(FrameHeader);
  State state_ = State::kIncomplete;
  Frame frame_;
};

// Random bytes from the kernel: for secrets, nonces and ids.
void FillRandom(void* bytes, size_t size);
// For simulations, which must be repeatable: whose bytes these are instead. Null: the kernel's.
void SetRandomSource(void (*fill)(void* bytes, size_t size));

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_HANDSHAKE_H_
