// FormatFault: a fault in words again.
#include <arpa/inet.h>

#include <cstring>

#include "cc/base/units.h"
#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_words.h"

namespace railhop::rdma {
namespace {

constexpr uint32_t kPpbPerPercent = kPpb / 100;

std::string FormatGid(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(gid.raw, kMapped, sizeof(kMapped)) == 0) {
    inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  }
  return text;
}

std::string FormatTime(uint64_t ns) { return FormatDurationNs(static_cast<int64_t>(ns)); }
std::string FormatBandwidth(uint64_t bps) { return FormatRateBps(static_cast<int64_t>(bps)); }

std::string_view NameOf(std::span<const NamedValue> rows, uint64_t value) {
  const NamedValue* row = FindValue(rows, value);
  return row != nullptr ? row->name : "unknown";
}

std::string NameOr(std::span<const NamedValue> rows, uint64_t value) {
  const NamedValue* row = FindValue(rows, value);
  return row != nullptr ? std::string(row->name) : std::to_string(value);
}

std::string FormatPercentage(uint32_t ppb) {
  std::string text = std::to_string(ppb / kPpbPerPercent);
  if (const uint32_t rest = ppb % kPpbPerPercent; rest != 0) {
    std::string digits = std::to_string(rest + kPpbPerPercent).substr(1);
    digits.erase(digits.find_last_not_of('0') + 1);
    text += "." + digits;
  }
  return text + "%";
}

std::string FormatEventMode(const FaultSpec& spec) {
  switch (spec.event_mode) {
    case EventMode::kNormal:
      return "";
    case EventMode::kLost:
      return " lost";
    case EventMode::kEarly:
      return " early " + FormatTime(spec.event_ns);
    case EventMode::kLate:
      return " late " + FormatTime(spec.event_ns);
    case EventMode::kDoubled:
      return " doubled";
  }
  return "";
}

std::string FormatVerb(const FaultSpec& spec) {
  std::string text = " " + NameOr(VerbNames(), spec.index);
  if (spec.index2 != 0) text += " " + NameOr(QpStateNames(), spec.index2 - 1);
  return text;
}

std::string FormatParameters(const FaultSpec& spec) {
  std::string value = " " + std::to_string(spec.value);
  std::string index = " " + std::to_string(spec.index);
  switch (spec.kind) {
    case FaultKind::kDelay:
      return " " + FormatTime(spec.value) +
             (spec.value2 != 0 ? " jitter " + FormatTime(spec.value2) : "");
    case FaultKind::kReorder:
      return spec.value > 1 ? " by" + value : "";
    case FaultKind::kCap:
    case FaultKind::kSpeed:
      return " " + FormatBandwidth(spec.value);
    case FaultKind::kComplete:
      return " status" + value + (spec.value2 != 0 ? " vendor " + std::to_string(spec.value2) : "");
    case FaultKind::kFailVerb:
      return FormatVerb(spec) + " " + NameOr(ErrnoNames(), spec.value);
    case FaultKind::kHangVerb:
      return FormatVerb(spec) + " " + FormatTime(spec.value);
    case FaultKind::kEvents:
      return (spec.index != 0 ? " " + NameOr(EventNames(), spec.index - 1) : "") +
             FormatEventMode(spec);
    case FaultKind::kFlap:
      return " every " + FormatTime(spec.value) +
             (spec.value2 != 0 ? " down " + FormatTime(spec.value2) : "");
    case FaultKind::kMtu:
    case FaultKind::kLid:
    case FaultKind::kSmLid:
      return value;
    case FaultKind::kPkey:
      return index + value;
    case FaultKind::kGidSet:
      return index + " " + FormatGid(spec.gid) + " " + NameOr(GidTypeNames(), spec.index2);
    case FaultKind::kGidRemove:
      return index;
    case FaultKind::kGidMove:
      return index + " " + std::to_string(spec.index2);
    case FaultKind::kEvent:
      return " " + NameOr(EventNames(), spec.index);
    case FaultKind::kQuirk:
      return " " + NameOr(QuirkRows(), spec.value) + (spec.value2 != 0 ? " off" : "");
    case FaultKind::kClear:
      return spec.index != 0 ? " " + std::string(FaultKindName(static_cast<FaultKind>(spec.index)))
                             : "";
    default:
      return "";
  }
}

std::string FormatAfter(const FaultSpec& spec) {
  if (spec.after == 0) return "";
  std::string number = " after " + std::to_string(spec.after);
  std::string text;
  switch (spec.after_unit) {
    case TriggerUnit::kNone:
      return "";
    case TriggerUnit::kCalls:
      return number;
    case TriggerUnit::kMessages:
      text = number + " messages";
      break;
    case TriggerUnit::kPackets:
      text = number + " packets";
      break;
    case TriggerUnit::kBytes:
      text = spec.after % 1024 == 0 ? " after " + FormatSizeBytes(static_cast<int64_t>(spec.after))
                                    : number + " bytes";
      break;
  }
  if (spec.after_direction == FaultDirection::kTx) text += " sent";
  if (spec.after_direction == FaultDirection::kRx) text += " received";
  return text;
}

}  // namespace

std::string FormatFaultSpec(const FaultSpec& spec) {
  const FaultKindRow* row = FindKind(spec.kind);
  if (row == nullptr) return "none";
  std::string text = row->words + FormatParameters(spec);
  if (spec.direction != FaultDirection::kBoth)
    text += spec.direction == FaultDirection::kTx ? " tx" : " rx";
  if (spec.packets != PacketClass::kAll)
    text += spec.packets == PacketClass::kData ? " data" : " acks";
  if (spec.rate_ppb != 0) text += " " + FormatPercentage(spec.rate_ppb);
  if (spec.packet != 0) text += " packet " + std::to_string(spec.packet);
  if (spec.count != 0) text += " count " + std::to_string(spec.count);
  if (spec.kind != FaultKind::kEvents && spec.event_mode != EventMode::kNormal)
    text += " event" + FormatEventMode(spec);
  text += FormatAfter(spec);
  if (spec.of_qp != 0) text += " of qp " + std::to_string(spec.qp);
  if (spec.at_ns != 0) text += " at " + FormatTime(spec.at_ns);
  if (spec.for_ns != 0) text += " for " + FormatTime(spec.for_ns);
  if (spec.seed != 0) text += " seed " + std::to_string(spec.seed);
  return text;
}

std::string FormatFault(const FaultCommand& command) {
  std::string text = command.host.empty() ? "" : command.host + "/";
  text += command.device;
  if (command.port != 0) text += ":" + std::to_string(command.port);
  return text + " " + FormatFaultSpec(command.spec);
}

std::string_view FaultKindName(FaultKind kind) {
  const FaultKindRow* row = FindKind(kind);
  return row != nullptr ? row->name : "none";
}

std::string_view VerbCallName(VerbCall call) {
  return NameOf(VerbNames(), static_cast<uint64_t>(call));
}
std::string_view LogKindName(LogKind kind) {
  return NameOf(LogKindNames(), static_cast<uint64_t>(kind));
}
std::string_view AsyncEventName(AsyncEvent event) {
  return NameOf(EventNames(), static_cast<uint64_t>(event));
}

std::string QuirkNames(uint64_t quirks) {
  std::string text;
  for (const NamedValue& row : QuirkRows()) {
    if ((quirks & row.value) == 0) continue;
    if (!text.empty()) text += ",";
    text += row.name;
  }
  return text;
}

}  // namespace railhop::rdma
