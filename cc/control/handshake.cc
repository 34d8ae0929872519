#include "cc/control/handshake.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace railhop::control {
namespace {

// Bits of one byte of HELLO and REPLY.
constexpr int kWantsFailover = 1;
constexpr int kWantsConfirmation = 2;

constexpr size_t kVersionBytes = 32;
constexpr size_t kPreambleBytes = kNonceBytes + kVersionBytes;
constexpr size_t kNameBytes = 64;
constexpr size_t kDevicesMax = 8;
constexpr size_t kLanesMax = 128;
constexpr uint8_t kMtuMax = 5;
constexpr uint8_t kFamilyIpv4 = 4;
constexpr uint8_t kFamilyIpv6 = 6;
constexpr uint32_t k24Bits = 0xffffff;

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<uint8_t>(value >> 8 * i));
  }
  void Bytes(absl::Span<const uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // Cut to `field` - 1 bytes and filled with zeros.
  void Text(const std::string& text, size_t field) {
    const size_t taken = std::min(text.size(), field - 1);
    bytes_.insert(bytes_.end(), text.begin(), text.begin() + static_cast<ptrdiff_t>(taken));
    bytes_.resize(bytes_.size() + field - taken);
  }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// Reads past the end give zeros and make ok() false.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    static_assert(std::is_unsigned_v<T>);
    T value = 0;
    const absl::Span<const uint8_t> taken = Take(sizeof(T));
    for (size_t i = 0; i < taken.size(); ++i) value |= static_cast<T>(T{taken[i]} << 8 * i);
    return value;
  }
  template <size_t n>
  void Bytes(std::array<uint8_t, n>* array) {
    const absl::Span<const uint8_t> taken = Take(n);
    std::copy(taken.begin(), taken.end(), array->begin());
  }
  // Up to the first zero or the last byte but one, as Writer::Text leaves it; what cannot be
  // printed becomes '?'.
  std::string Text(size_t field) {
    std::string text;
    for (const uint8_t byte : Take(field)) {
      if (byte == 0 || text.size() + 1 == field) break;
      text += byte >= 0x20 && byte < 0x7f ? static_cast<char>(byte) : '?';
    }
    return text;
  }
  size_t left() const { return bytes_.size(); }
  bool ok() const { return ok_; }

 private:
  absl::Span<const uint8_t> Take(size_t n) {
    if (bytes_.size() < n) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const absl::Span<const uint8_t> taken = bytes_.subspan(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }

  absl::Span<const uint8_t> bytes_;
  bool ok_ = true;
};

absl::Span<const uint8_t> BytesOf(const FrameHeader& header) {
  return {reinterpret_cast<const uint8_t*>(&header), sizeof(header)};
}

absl::Status BadField(const char* field, uint64_t value) {
  return absl::InvalidArgumentError(absl::StrCat("handshake: ", field, " is ", value));
}

bool HasPort(const SocketAddress& address) {
  return AddressLength(address) != 0 &&
         (address.generic.sa_family == AF_INET ? address.ipv4.sin_port : address.ipv6.sin6_port) !=
             0;
}

absl::Status CheckEnd(const EndDescription& end) {
  for (const DeviceDescription& device : end.devices) {
    if (device.mtu < 1 || device.mtu > kMtuMax) return BadField("mtu", device.mtu);
    if (device.port == 0) return BadField("port", 0);
  }
  for (const LaneDescription& lane : end.lanes) {
    if (lane.qp_number > k24Bits) return BadField("qp_number", lane.qp_number);
    if (lane.start_psn > k24Bits) return BadField("start_psn", lane.start_psn);
  }
  for (const SocketAddress& address : end.control_addresses) {
    if (!HasPort(address)) {
      return absl::InvalidArgumentError(
          absl::StrCat("handshake: control address is ", FormatAddress(address)));
    }
  }
  if (end.service_level > 15) return BadField("service_level", end.service_level);
  return absl::OkStatus();
}

// 23 bytes: family (4 or 6), port, 16 bytes of address (the first 4 for IPv4), scope.
void WriteAddress(const SocketAddress& address, Writer* out) {
  const bool is_ipv6 = address.generic.sa_family == AF_INET6;
  std::array<uint8_t, 16> bytes = {};
  if (is_ipv6) {
    memcpy(bytes.data(), &address.ipv6.sin6_addr, sizeof(in6_addr));
  } else {
    memcpy(bytes.data(), &address.ipv4.sin_addr, sizeof(in_addr));
  }
  out->Number(is_ipv6 ? kFamilyIpv6 : kFamilyIpv4);
  out->Number(ntohs(is_ipv6 ? address.ipv6.sin6_port : address.ipv4.sin_port));
  out->Bytes(bytes);
  out->Number(is_ipv6 ? address.ipv6.sin6_scope_id : uint32_t{0});
}

// Of another family: family 0, which CheckEnd refuses.
SocketAddress ReadAddress(Reader* in) {
  const auto family = in->Number<uint8_t>();
  const uint16_t port = htons(in->Number<uint16_t>());
  std::array<uint8_t, 16> bytes = {};
  in->Bytes(&bytes);
  const auto scope = in->Number<uint32_t>();
  SocketAddress address = {};
  if (family == kFamilyIpv4) {
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = port;
    memcpy(&address.ipv4.sin_addr, bytes.data(), sizeof(in_addr));
  } else if (family == kFamilyIpv6) {
    address.ipv6.sin6_family = AF_INET6;
    address.ipv6.sin6_port = port;
    address.ipv6.sin6_scope_id = scope;
    memcpy(&address.ipv6.sin6_addr, bytes.data(), sizeof(in6_addr));
  }
  return address;
}

DeviceDescription ReadDevice(Reader* in) {
  DeviceDescription device;
  device.name = in->Text(kNameBytes);
  device.port = in->Number<uint8_t>();
  device.is_ethernet = in->Number<uint8_t>() != 0;
  device.mtu = in->Number<uint8_t>();
  in->Number<uint8_t>();
  device.lid = in->Number<uint16_t>();
  device.rail = std::max<int16_t>(static_cast<int16_t>(in->Number<uint16_t>()), -1);
  in->Bytes(&device.gid);
  device.control_key = in->Number<uint32_t>();
  return device;
}

void WriteDevice(const DeviceDescription& device, Writer* out) {
  out->Text(device.name, kNameBytes);
  out->Number(device.port);
  out->Number(static_cast<uint8_t>(device.is_ethernet));
  out->Number(device.mtu);
  out->Number(uint8_t{0});
  out->Number(device.lid);
  out->Number(static_cast<uint16_t>(device.rail));
  out->Bytes(device.gid);
  out->Number(device.control_key);
}

LaneDescription ReadLane(Reader* in) {
  LaneDescription lane;
  lane.qp_number = in->Number<uint32_t>();
  lane.start_psn = in->Number<uint32_t>();
  lane.ece_vendor = in->Number<uint32_t>();
  lane.ece_options = in->Number<uint32_t>();
  lane.ece_mask = in->Number<uint32_t>();
  return lane;
}

void WriteLane(const LaneDescription& lane, Writer* out) {
  out->Number(lane.qp_number);
  out->Number(lane.start_psn);
  out->Number(lane.ece_vendor);
  out->Number(lane.ece_options);
  out->Number(lane.ece_mask);
}

}  // namespace

Digest Authenticator::Code(const FrameHeader& header, absl::Span<const uint8_t> payload) const {
  HmacSha256 hmac(secret);
  const uint8_t direction = from_listener ? 2 : 1;
  hmac.Update({&direction, 1});
  hmac.Update(peer_nonce);
  hmac.Update(BytesOf(header));
  hmac.Update(payload);
  return hmac.Finish();
}

std::vector<uint8_t> EncodeFrame(MessageType type, uint64_t listener_id,
                                 absl::Span<const uint8_t> payload, const Authenticator& auth,
                                 uint16_t protocol_version) {
  const FrameHeader header = {.mark = kFrameMark,
                              .protocol_version = protocol_version,
                              .type = static_cast<uint16_t>(type),
                              .payload_bytes = static_cast<uint32_t>(payload.size()),
                              .listener_id = listener_id};
  Writer out;
  out.Bytes(BytesOf(header));
  out.Bytes(payload);
  out.Bytes(auth.Code(header, payload));
  return out.Take();
}

std::vector<uint8_t> EncodeEnd(const EndDescription& end) {
  Writer out;
  out.Bytes(end.nonce);
  out.Text(end.plugin_version, kVersionBytes);
  out.Number(end.instance_id);
  out.Text(end.host, kNameBytes);
  out.Number(end.epoch);
  out.Number(end.memory_address);
  out.Number(end.service_level);
  out.Number(end.traffic_class);
  const size_t addresses = std::min(end.control_addresses.size(), kControlAddressesMax);
  out.Number(static_cast<uint8_t>((end.failover ? kWantsFailover : 0) |
                                  (end.confirm ? kWantsConfirmation : 0)));
  out.Number(static_cast<uint8_t>(addresses));
  for (size_t i = 0; i < addresses; ++i) WriteAddress(end.control_addresses[i], &out);
  out.Number(static_cast<uint8_t>(end.devices.size()));
  out.Number(static_cast<uint8_t>(end.lanes.size()));
  for (const DeviceDescription& device : end.devices) WriteDevice(device, &out);
  for (const LaneDescription& lane : end.lanes) WriteLane(lane, &out);
  return out.Take();
}

absl::StatusOr<EndDescription> DecodeEnd(absl::Span<const uint8_t> payload) {
  Reader in(payload);
  EndDescription end;
  in.Bytes(&end.nonce);
  end.plugin_version = in.Text(kVersionBytes);
  end.instance_id = in.Number<uint64_t>();
  end.host = in.Text(kNameBytes);
  end.epoch = in.Number<uint32_t>();
  end.memory_address = in.Number<uint64_t>();
  end.service_level = in.Number<uint8_t>();
  end.traffic_class = in.Number<uint8_t>();
  const auto failover = in.Number<uint8_t>();
  const size_t addresses = in.Number<uint8_t>();
  if (failover > (kWantsFailover | kWantsConfirmation)) return BadField("failover", failover);
  if (addresses > kControlAddressesMax) return BadField("number of control addresses", addresses);
  end.failover = (failover & kWantsFailover) != 0;
  end.confirm = (failover & kWantsConfirmation) != 0;
  for (size_t i = 0; i < addresses; ++i) end.control_addresses.push_back(ReadAddress(&in));
  const size_t devices = in.Number<uint8_t>();
  const size_t lanes = in.Number<uint8_t>();
  if (!in.ok()) return absl::InvalidArgumentError("handshake: cut short");
  if (devices < 1 || devices > kDevicesMax) return BadField("number of devices", devices);
  if (lanes < 1 || lanes > kLanesMax) return BadField("number of lanes", lanes);
  for (size_t i = 0; i < devices; ++i) end.devices.push_back(ReadDevice(&in));
  for (size_t i = 0; i < lanes; ++i) end.lanes.push_back(ReadLane(&in));
  if (!in.ok()) return absl::InvalidArgumentError("handshake: cut short");
  if (in.left() != 0) return BadField("number of bytes left over", in.left());
  const absl::Status checked = CheckEnd(end);
  if (!checked.ok()) return checked;
  return end;
}

uint64_t ConnectionIdOf(const Nonce& hello_nonce) {
  uint64_t id = 0;
  memcpy(&id, hello_nonce.data(), sizeof(id));
  return id;
}

std::vector<uint8_t> EncodeReject(const std::string& plugin_version, const std::string& why) {
  Writer out;
  out.Bytes(Nonce{});
  out.Text(plugin_version, kVersionBytes);
  out.Text(why, std::min<size_t>(why.size() + 1, 512));
  return out.Take();
}

absl::StatusOr<Preamble> DecodePreamble(absl::Span<const uint8_t> payload) {
  Reader in(payload);
  Preamble preamble;
  in.Bytes(&preamble.nonce);
  preamble.plugin_version = in.Text(kVersionBytes);
  if (!in.ok()) return absl::InvalidArgumentError("handshake: cut short");
  return preamble;
}

std::string DecodeRejectReason(absl::Span<const uint8_t> payload) {
  if (payload.size() <= kPreambleBytes) return "";
  Reader in(payload.subspan(kPreambleBytes));
  return in.Text(in.left());
}

bool Frame::IsAuthentic(const Authenticator& auth) const {
  return DigestsEqual(auth.Code(header, payload), code);
}

size_t FrameParser::Take(absl::Span<const uint8_t> data) {
  size_t taken = 0;
  while (state_ == State::kIncomplete && taken < data.size()) {
    const size_t n = std::min(wanted_ - bytes_.size(), data.size() - taken);
    bytes_.insert(bytes_.end(), data.begin() + static_cast<ptrdiff_t>(taken),
                  data.begin() + static_cast<ptrdiff_t>(taken + n));
    taken += n;
    Inspect();
  }
  return taken;
}

void FrameParser::Inspect() {
  // Junk is known by its first bytes, so that a scanner need not be waited for.
  const size_t mark_bytes = std::min(bytes_.size(), sizeof(kFrameMark));
  if (memcmp(bytes_.data(), &kFrameMark, mark_bytes) != 0) {
    // Eight bytes are awaited all the same: they may tell who is there.
    if (bytes_.size() >= sizeof(kFrameMark)) state_ = State::kJunk;
    return;
  }
  if (bytes_.size() < sizeof(FrameHeader)) return;
  memcpy(&frame_.header, bytes_.data(), sizeof(FrameHeader));
  if (frame_.header.payload_bytes > kPayloadBytesMax) {
    state_ = State::kJunk;
    return;
  }
  wanted_ = sizeof(FrameHeader) + frame_.header.payload_bytes + kDigestBytes;
  if (bytes_.size() < wanted_) return;
  const auto payload = bytes_.begin() + sizeof(FrameHeader);
  const auto code = payload + frame_.header.payload_bytes;
  frame_.payload.assign(payload, code);
  std::copy(code, code + kDigestBytes, frame_.code.begin());
  state_ = State::kComplete;
}

bool FrameParser::BeginsWith(uint64_t number) const {
  return bytes_.size() >= sizeof(number) && memcmp(bytes_.data(), &number, sizeof(number)) == 0;
}

void FrameParser::Reset() {
  bytes_.clear();
  wanted_ = sizeof(FrameHeader);
  state_ = State::kIncomplete;
  frame_ = {};
}

namespace {
std::atomic<void (*)(void*, size_t)> random_source{nullptr};
}  // namespace

void SetRandomSource(void (*fill)(void* bytes, size_t size)) {
  random_source.store(fill, std::memory_order_relaxed);
}

void FillRandom(void* bytes, size_t size) {
  if (auto* const fill = random_source.load(std::memory_order_relaxed)) return fill(bytes, size);
  auto* at = static_cast<uint8_t*>(bytes);
  while (size > 0) {
    const ssize_t n = getrandom(at, size, 0);
    if (n < 0) {
      // Only EINTR can happen for valid arguments; without random numbers there are no secrets.
      if (errno == EINTR) continue;
      std::abort();
    }
    at += n;
    size -= static_cast<size_t>(n);
  }
}

}  // namespace railhop::control
