#include "cc/control/codec.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/control/codec_fields.h"
#include "cc/proto/control.pb.h"

namespace railhop::control {
namespace {

using engine::LaneIds;

constexpr uint64_t kU8 = 0xff;
constexpr uint64_t kU16 = 0xffff;
constexpr uint64_t k24Bits = 0xffffff;
constexpr uint64_t kLaneIndexMax = 127;
constexpr size_t kLanesMax = 128;
constexpr size_t kDevicesMax = 8;
constexpr uint64_t kServiceLevelMax = 15;
constexpr uint64_t kMtuMax = 5;  // an ibv_mtu
constexpr uint64_t kPhysicalIdMax = kPhysicalIdsMax - 1;
constexpr size_t kOpenTransfersMax = 32;
constexpr size_t kGroupedReceivesMax = 8;
constexpr uint64_t kStripesMax = 128;
constexpr size_t kAnnouncementsMax = 64;
constexpr size_t kPortsMax = kPhysicalIdsMax;
constexpr auto kSpeedMbpsMax = uint64_t{std::numeric_limits<int32_t>::max()};

// ---- To protobuf. Texts are cut; all else is checked by reading it back.

void Put(const engine::EndId& from, proto::EndId* to) {
  to->set_connection(from.connection);
  to->set_end(static_cast<uint32_t>(from.end));
}

template <typename List>
void PutLanes(const LaneIds& from, List* to) {
  for (const engine::LaneId& lane : from) {
    proto::LaneId* const added = to->Add();
    added->set_index(lane.index);
    added->set_epoch(lane.epoch);
  }
}

std::string Cut(const std::string& text, size_t most) { return text.substr(0, most); }

std::string Bytes(const std::array<uint8_t, 16>& gid) { return {gid.begin(), gid.end()}; }

// Fence, Ask and Quiet have the same fields.
template <typename From, typename To>
void PutLeave(const From& from, To* to) {
  Put(from.to, to->mutable_to());
  to->set_epoch(from.epoch);
  PutLanes(from.lanes, to->mutable_lanes());
  to->set_cause(static_cast<uint32_t>(from.cause));
}

void Put(const engine::Fence& from, proto::Fence* to) { PutLeave(from, to); }
void Put(const engine::Ask& from, proto::Ask* to) { PutLeave(from, to); }
void Put(const engine::Quiet& from, proto::Quiet* to) { PutLeave(from, to); }

void Put(const engine::Record& from, proto::Record* to) {
  Put(from.to, to->mutable_to());
  to->set_epoch(from.epoch);
  PutLanes(from.lanes, to->mutable_lanes());
  proto::ReceiverRecord* const receiver = to->mutable_receiver();
  receiver->set_complete_below(from.receiver.complete_below);
  receiver->set_next_sequence(from.receiver.next_sequence);
  for (const engine::OpenTransfer& open : from.receiver.open) {
    proto::OpenTransfer* const transfer = receiver->add_open();
    transfer->set_sequence(open.sequence);
    for (const engine::OpenReceive& receive : open.receives) {
      proto::OpenReceive* const added = transfer->add_receives();
      added->set_stripes(receive.stripes);
      added->set_arrived_low(receive.arrived[0]);
      added->set_arrived_high(receive.arrived[1]);
    }
  }
  proto::SenderRecord* const sender = to->mutable_sender();
  sender->set_next_sequence(from.sender.next_sequence);
  for (const uint64_t sequence : from.sender.announcements) sender->add_announcements(sequence);
}

template <typename From, typename To>
void PutEnds(const From& from, To* to) {
  Put(from.to, to->mutable_to());
  to->set_epoch(from.epoch);
  for (const engine::EndDevice& device : from.devices) {
    proto::EndDevice* const added = to->add_devices();
    added->set_slot(device.slot);
    added->set_physical(static_cast<uint32_t>(device.physical));
    added->set_name(Cut(device.name, kNameCharactersMax));
    added->set_port(device.port);
    added->set_is_ethernet(device.is_ethernet);
    added->set_mtu(device.mtu);
    added->set_lid(device.lid);
    added->set_gid(Bytes(device.gid));
    added->set_control_key(device.control_key);
  }
  for (const engine::EndLane& lane : from.lanes) {
    proto::EndLane* const added = to->add_lanes();
    added->set_index(lane.index);
    added->set_slot(lane.slot);
    added->set_qp_number(lane.qp_number);
    added->set_start_psn(lane.start_psn);
    added->set_ece_vendor(lane.ece_vendor);
    added->set_ece_options(lane.ece_options);
    added->set_ece_mask(lane.ece_mask);
    added->set_remote_physical(static_cast<uint32_t>(lane.remote_physical));
  }
}

void Put(const engine::Offer& from, proto::Offer* to) {
  PutEnds(from, to);
  to->set_service_level(from.service_level);
  to->set_traffic_class(from.traffic_class);
}

void Put(const engine::Answer& from, proto::Answer* to) {
  PutEnds(from, to);
  to->set_error(Cut(from.error, kTextCharactersMax));
}

void Put(const engine::Up& from, proto::Up* to) {
  Put(from.to, to->mutable_to());
  to->set_epoch(from.epoch);
  to->set_first_sequence(from.first_sequence);
}

void Put(const engine::Inquiry& from, proto::Inquiry* to) {
  Put(from.to, to->mutable_to());
  to->set_serial(from.serial);
}

void Put(const engine::Account& from, proto::Account* to) {
  Put(from.to, to->mutable_to());
  to->set_serial(from.serial);
  to->set_next_sequence(from.next_sequence);
  to->set_last_announced(from.last_announced);
  for (const engine::LaneCount& count : from.lanes) {
    proto::LaneCount* const added = to->add_lanes();
    added->mutable_lane()->set_index(count.lane.index);
    added->mutable_lane()->set_epoch(count.lane.epoch);
    added->set_posted(count.posted);
    added->set_arrived(count.arrived);
    added->set_may_arrive(count.may_arrive);
  }
}

void Put(const engine::Over& from, proto::Over* to) {
  Put(from.to, to->mutable_to());
  to->set_failed(from.failed);
  to->set_reason(Cut(from.reason, kTextCharactersMax));
  to->set_complete_below(from.complete_below);
}

void Put(const engine::Unknown& from, proto::Unknown* to) { Put(from.to, to->mutable_to()); }

void Put(const engine::Ports& from, proto::Ports* to) {
  for (const engine::PortReport& port : from.ports) {
    proto::PortReport* const added = to->add_ports();
    added->set_physical(static_cast<uint32_t>(port.physical));
    added->set_name(Cut(port.name, kNameCharactersMax));
    added->set_port(port.port);
    added->set_is_ethernet(port.is_ethernet);
    added->set_state(static_cast<uint32_t>(port.state));
    added->set_mtu(port.mtu);
    added->set_lid(port.lid);
    added->set_gid(Bytes(port.gid));
    added->set_rail(port.rail);
    added->set_speed_mbps(static_cast<uint32_t>(port.speed_mbps));
    added->set_replaces(port.replaces);
  }
}

void Put(const engine::ProbeEnd& from, proto::ProbeEnd* to) {
  to->set_qp_number(from.qp_number);
  to->set_start_psn(from.start_psn);
  to->set_mtu(from.mtu);
  to->set_lid(from.lid);
  to->set_gid(Bytes(from.gid));
}

void Put(const engine::ProbeOpen& from, proto::ProbeOpen* to) {
  to->set_probe(from.probe);
  to->set_from(static_cast<uint32_t>(from.from));
  to->set_to(static_cast<uint32_t>(from.to));
  Put(from.end, to->mutable_end());
  to->set_service_level(from.service_level);
  to->set_traffic_class(from.traffic_class);
  to->set_pkey(from.pkey);
}

void Put(const engine::ProbeAnswer& from, proto::ProbeAnswer* to) {
  to->set_probe(from.probe);
  Put(from.end, to->mutable_end());
  to->set_error(Cut(from.error, kTextCharactersMax));
}

void Put(const engine::ProbeClose& from, proto::ProbeClose* to) {
  to->set_probe(from.probe);
  to->set_by_opener(from.by_opener);
}

void Put(const engine::Goodbye& from, proto::Goodbye* to) {
  to->set_reason(Cut(from.reason, kTextCharactersMax));
}

// ---- From protobuf.

template <typename Message>
engine::EndId GetTo(const Message& from, FieldReader* in) {
  in->Present("to", from.has_to());
  return {.connection = from.to().connection(),
          .end = in->Number<engine::End>("to.end", from.to().end(), 1)};
}

engine::LaneId GetLane(const proto::LaneId& from, FieldReader* in) {
  return {.index = in->Number<uint8_t>("lane index", from.index(), kLaneIndexMax),
          .epoch = from.epoch()};
}

// Sorted and each once, or refused: what uses them relies on it.
template <typename List>
LaneIds GetLanes(const List& from, FieldReader* in) {
  LaneIds lanes;
  if (!in->Count("lanes", from.size(), kLaneListMax)) return lanes;
  lanes.reserve(static_cast<size_t>(from.size()));
  for (const proto::LaneId& lane : from) {
    const engine::LaneId read = GetLane(lane, in);
    if (!lanes.empty() && !(lanes.back() < read)) in->Refuse("lanes are not in order");
    lanes.push_back(read);
  }
  return lanes;
}

engine::Cause GetCause(uint32_t from, FieldReader* in) {
  return in->Number<engine::Cause>("cause", from, static_cast<uint64_t>(engine::Cause::kFailBack));
}

// Fence, Ask and Quiet have the same fields.
template <typename To, typename From>
To GetLeave(const From& from, FieldReader* in) {
  To to;
  to.to = GetTo(from, in);
  to.epoch = from.epoch();
  to.lanes = GetLanes(from.lanes(), in);
  to.cause = GetCause(from.cause(), in);
  return to;
}

engine::Message Get(const proto::Fence& from, FieldReader* in) {
  return GetLeave<engine::Fence>(from, in);
}
engine::Message Get(const proto::Ask& from, FieldReader* in) {
  return GetLeave<engine::Ask>(from, in);
}
engine::Message Get(const proto::Quiet& from, FieldReader* in) {
  return GetLeave<engine::Quiet>(from, in);
}

engine::OpenTransfer GetTransfer(const proto::OpenTransfer& from, FieldReader* in) {
  engine::OpenTransfer to;
  to.sequence = from.sequence();
  if (!in->Count("receives of a transfer", from.receives_size(), kGroupedReceivesMax)) return to;
  for (const proto::OpenReceive& receive : from.receives()) {
    engine::OpenReceive& read = to.receives.emplace_back();
    read.stripes = in->Number<uint32_t>("stripes", receive.stripes(), kStripesMax);
    read.arrived = {receive.arrived_low(), receive.arrived_high()};
  }
  return to;
}

engine::Message Get(const proto::Record& from, FieldReader* in) {
  engine::Record to;
  to.to = GetTo(from, in);
  to.epoch = from.epoch();
  to.lanes = GetLanes(from.lanes(), in);
  to.receiver.complete_below = from.receiver().complete_below();
  to.receiver.next_sequence = from.receiver().next_sequence();
  if (in->Count("open transfers", from.receiver().open_size(), kOpenTransfersMax)) {
    for (const proto::OpenTransfer& open : from.receiver().open()) {
      to.receiver.open.push_back(GetTransfer(open, in));
    }
  }
  to.sender.next_sequence = from.sender().next_sequence();
  if (in->Count("announcements", from.sender().announcements_size(), kAnnouncementsMax)) {
    to.sender.announcements.assign(from.sender().announcements().begin(),
                                   from.sender().announcements().end());
  }
  return to;
}

engine::EndDevice GetDevice(const proto::EndDevice& from, FieldReader* in) {
  engine::EndDevice to;
  to.slot = in->Number<uint8_t>("device slot", from.slot(), kDevicesMax - 1);
  to.physical = in->Number<int>("device physical", from.physical(), kPhysicalIdMax);
  to.name = in->Text("device name", from.name(), kNameCharactersMax);
  to.port = in->Number<uint8_t>("device port", from.port(), kU8, 1);
  to.is_ethernet = from.is_ethernet();
  to.mtu = in->Number<uint8_t>("device mtu", from.mtu(), kMtuMax, 1);
  to.lid = in->Number<uint16_t>("device lid", from.lid(), kU16);
  to.gid = in->Gid(from.gid());
  to.control_key = from.control_key();
  return to;
}

engine::EndLane GetEndLane(const proto::EndLane& from, FieldReader* in) {
  engine::EndLane to;
  to.index = in->Number<uint8_t>("lane index", from.index(), kLaneIndexMax);
  to.slot = in->Number<uint8_t>("lane slot", from.slot(), kDevicesMax - 1);
  to.qp_number = in->Number<uint32_t>("lane qp_number", from.qp_number(), k24Bits);
  to.start_psn = in->Number<uint32_t>("lane start_psn", from.start_psn(), k24Bits);
  to.ece_vendor = from.ece_vendor();
  to.ece_options = from.ece_options();
  to.ece_mask = from.ece_mask();
  to.remote_physical =
      in->Number<int>("lane remote_physical", from.remote_physical(), kPhysicalIdMax);
  return to;
}

template <typename To, typename From>
To GetEnds(const From& from, FieldReader* in) {
  To to;
  to.to = GetTo(from, in);
  to.epoch = from.epoch();
  if (in->Count("devices", from.devices_size(), kDevicesMax)) {
    for (const proto::EndDevice& device : from.devices()) {
      to.devices.push_back(GetDevice(device, in));
    }
  }
  if (in->Count("lanes", from.lanes_size(), kLanesMax)) {
    for (const proto::EndLane& lane : from.lanes()) to.lanes.push_back(GetEndLane(lane, in));
  }
  return to;
}

engine::Message Get(const proto::Offer& from, FieldReader* in) {
  auto to = GetEnds<engine::Offer>(from, in);
  to.service_level = in->Number<uint8_t>("service_level", from.service_level(), kServiceLevelMax);
  to.traffic_class = in->Number<uint8_t>("traffic_class", from.traffic_class(), kU8);
  return to;
}

engine::Message Get(const proto::Answer& from, FieldReader* in) {
  auto to = GetEnds<engine::Answer>(from, in);
  to.error = in->Text("error", from.error(), kTextCharactersMax);
  return to;
}

engine::Message Get(const proto::Up& from, FieldReader* in) {
  return engine::Up{
      .to = GetTo(from, in), .epoch = from.epoch(), .first_sequence = from.first_sequence()};
}

engine::Message Get(const proto::Inquiry& from, FieldReader* in) {
  return engine::Inquiry{.to = GetTo(from, in), .serial = from.serial()};
}

engine::Message Get(const proto::Account& from, FieldReader* in) {
  engine::Account to;
  to.to = GetTo(from, in);
  to.serial = from.serial();
  to.next_sequence = from.next_sequence();
  to.last_announced = from.last_announced();
  if (!in->Count("lanes", from.lanes_size(), kLaneListMax)) return to;
  for (const proto::LaneCount& count : from.lanes()) {
    in->Present("lane", count.has_lane());
    to.lanes.push_back({.lane = GetLane(count.lane(), in),
                        .posted = count.posted(),
                        .arrived = count.arrived(),
                        .may_arrive = count.may_arrive()});
  }
  return to;
}

engine::Message Get(const proto::Over& from, FieldReader* in) {
  return engine::Over{.to = GetTo(from, in),
                      .failed = from.failed(),
                      .reason = in->Text("reason", from.reason(), kTextCharactersMax),
                      .complete_below = from.complete_below()};
}

engine::Message Get(const proto::Unknown& from, FieldReader* in) {
  return engine::Unknown{.to = GetTo(from, in)};
}

engine::Message Get(const proto::Ports& from, FieldReader* in) {
  engine::Ports to;
  if (!in->Count("ports", from.ports_size(), kPortsMax)) return to;
  for (const proto::PortReport& port : from.ports()) {
    engine::PortReport& read = to.ports.emplace_back();
    read.physical = in->Number<int>("physical", port.physical(), kPhysicalIdMax);
    read.name = in->Text("name", port.name(), kNameCharactersMax);
    read.port = in->Number<uint8_t>("port", port.port(), kU8, 1);
    read.is_ethernet = port.is_ethernet();
    read.state = in->Number<engine::PortState>("state", port.state(),
                                               static_cast<uint64_t>(engine::PortState::kDrained));
    read.mtu = in->Number<uint8_t>("mtu", port.mtu(), kMtuMax);
    read.lid = in->Number<uint16_t>("lid", port.lid(), kU16);
    read.gid = in->Gid(port.gid());
    read.rail = in->Signed("rail", port.rail(), -1, 0x7fff);
    read.speed_mbps = in->Number<int>("speed_mbps", port.speed_mbps(), kSpeedMbpsMax);
    read.replaces = in->Signed("replaces", port.replaces(), -1, kPhysicalIdMax);
  }
  return to;
}

// Without a queue pair (an answer that says why there is none) the numbers are 0.
engine::ProbeEnd GetProbeEnd(const proto::ProbeEnd& from, FieldReader* in) {
  engine::ProbeEnd to;
  to.qp_number = in->Number<uint32_t>("qp_number", from.qp_number(), k24Bits);
  to.start_psn = in->Number<uint32_t>("start_psn", from.start_psn(), k24Bits);
  to.mtu = in->Number<uint8_t>("mtu", from.mtu(), kMtuMax);
  to.lid = in->Number<uint16_t>("lid", from.lid(), kU16);
  to.gid = in->Gid(from.gid());
  return to;
}

engine::Message Get(const proto::ProbeOpen& from, FieldReader* in) {
  engine::ProbeOpen to;
  to.probe = from.probe();
  to.from = in->Number<int>("from", from.from(), kPhysicalIdMax);
  to.to = in->Number<int>("to", from.to(), kPhysicalIdMax);
  if (in->Present("end", from.has_end())) to.end = GetProbeEnd(from.end(), in);
  to.service_level = in->Number<uint8_t>("service_level", from.service_level(), kServiceLevelMax);
  to.traffic_class = in->Number<uint8_t>("traffic_class", from.traffic_class(), kU8);
  to.pkey = in->Number<uint16_t>("pkey", from.pkey(), kU16);
  return to;
}

engine::Message Get(const proto::ProbeAnswer& from, FieldReader* in) {
  engine::ProbeAnswer to;
  to.probe = from.probe();
  if (in->Present("end", from.has_end())) to.end = GetProbeEnd(from.end(), in);
  to.error = in->Text("error", from.error(), kTextCharactersMax);
  return to;
}

engine::Message Get(const proto::ProbeClose& from, FieldReader*) {
  return engine::ProbeClose{.probe = from.probe(), .by_opener = from.by_opener()};
}

engine::Message Get(const proto::Goodbye& from, FieldReader* in) {
  return engine::Goodbye{.reason = in->Text("reason", from.reason(), kTextCharactersMax)};
}

// ---- Which is which.

template <typename From>
absl::StatusOr<engine::Message> Read(const char* kind, const From& from) {
  FieldReader in(kind);
  engine::Message message = Get(from, &in);
  if (!in.status().ok()) return in.status();
  return message;
}

absl::StatusOr<engine::Message> Read(const proto::Message& from) {
  switch (from.body_case()) {
    case proto::Message::kFence:
      return Read("fence", from.fence());
    case proto::Message::kAsk:
      return Read("ask", from.ask());
    case proto::Message::kRecord:
      return Read("record", from.record());
    case proto::Message::kOffer:
      return Read("offer", from.offer());
    case proto::Message::kAnswer:
      return Read("answer", from.answer());
    case proto::Message::kUp:
      return Read("up", from.up());
    case proto::Message::kQuiet:
      return Read("quiet", from.quiet());
    case proto::Message::kInquiry:
      return Read("inquiry", from.inquiry());
    case proto::Message::kAccount:
      return Read("account", from.account());
    case proto::Message::kOver:
      return Read("over", from.over());
    case proto::Message::kUnknown:
      return Read("unknown", from.unknown());
    case proto::Message::kPorts:
      return Read("ports", from.ports());
    case proto::Message::kProbeOpen:
      return Read("probe_open", from.probe_open());
    case proto::Message::kProbeAnswer:
      return Read("probe_answer", from.probe_answer());
    case proto::Message::kProbeClose:
      return Read("probe_close", from.probe_close());
    case proto::Message::kGoodbye:
      return Read("goodbye", from.goodbye());
    case proto::Message::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("control message: of no known kind");
}

struct Writer {
  proto::Message* out;

  void operator()(const engine::Fence& m) const { Put(m, out->mutable_fence()); }
  void operator()(const engine::Ask& m) const { Put(m, out->mutable_ask()); }
  void operator()(const engine::Record& m) const { Put(m, out->mutable_record()); }
  void operator()(const engine::Offer& m) const { Put(m, out->mutable_offer()); }
  void operator()(const engine::Answer& m) const { Put(m, out->mutable_answer()); }
  void operator()(const engine::Up& m) const { Put(m, out->mutable_up()); }
  void operator()(const engine::Quiet& m) const { Put(m, out->mutable_quiet()); }
  void operator()(const engine::Inquiry& m) const { Put(m, out->mutable_inquiry()); }
  void operator()(const engine::Account& m) const { Put(m, out->mutable_account()); }
  void operator()(const engine::Over& m) const { Put(m, out->mutable_over()); }
  void operator()(const engine::Unknown& m) const { Put(m, out->mutable_unknown()); }
  void operator()(const engine::Ports& m) const { Put(m, out->mutable_ports()); }
  void operator()(const engine::ProbeOpen& m) const { Put(m, out->mutable_probe_open()); }
  void operator()(const engine::ProbeAnswer& m) const { Put(m, out->mutable_probe_answer()); }
  void operator()(const engine::ProbeClose& m) const { Put(m, out->mutable_probe_close()); }
  void operator()(const engine::Goodbye& m) const { Put(m, out->mutable_goodbye()); }
};

}  // namespace

absl::StatusOr<std::string> EncodeMessage(const engine::Message& message) {
  proto::Batch batch;
  proto::Message* const out = batch.add_messages();
  std::visit(Writer{out}, message);
  // One set of rules for both directions.
  const absl::StatusOr<engine::Message> readable = Read(*out);
  if (!readable.ok()) return readable.status();
  std::string bytes = batch.SerializeAsString();
  if (bytes.size() > kBatchBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("control message ", MessageName(message),
                                                     " has ", bytes.size(), " bytes, at most ",
                                                     kBatchBytesMax, " can be sent"));
  }
  return bytes;
}

absl::StatusOr<std::vector<engine::Message>> DecodeBatch(absl::Span<const uint8_t> bytes) {
  if (bytes.size() > kBatchBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("control messages: ", bytes.size(), " bytes, at most ", kBatchBytesMax));
  }
  if (bytes.empty()) return std::vector<engine::Message>();
  proto::Batch batch;
  if (!batch.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("control messages: the bytes are no messages");
  }
  std::vector<engine::Message> messages;
  messages.reserve(static_cast<size_t>(batch.messages_size()));
  for (const proto::Message& from : batch.messages()) {
    absl::StatusOr<engine::Message> message = Read(from);
    if (!message.ok()) return message.status();
    messages.push_back(*std::move(message));
  }
  return messages;
}

const char* MessageName(const engine::Message& message) {
  static constexpr const char* kNames[] = {"fence",      "ask",          "record",      "offer",
                                           "answer",     "up",           "quiet",       "inquiry",
                                           "account",    "over",         "unknown",     "ports",
                                           "probe_open", "probe_answer", "probe_close", "goodbye"};
  static_assert(std::size(kNames) == std::variant_size_v<engine::Message>);
  return message.valueless_by_exception() ? "none" : kNames[message.index()];
}

}  // namespace railhop::control
