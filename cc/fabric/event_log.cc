#include "cc/fabric/event_log.h"

#include <cstdio>

#include "cc/base/units.h"
#include "cc/fabric/json_writer.h"
#include "cc/fabric/snapshot.h"
#include "cc/rdma_model/fault_grammar.h"

namespace railhop::fabric {
namespace {

using rdma::LogKind;

// What `arg` is called and how its value reads, by kind (the comments of rdma::LogKind).
struct Arg {
  const char* name;
  std::string value;
};

Arg ArgOf(const LogRecord& record) {
  const std::string number = std::to_string(record.arg);
  switch (static_cast<LogKind>(record.kind)) {
    case LogKind::kFaultSet:
    case LogKind::kFaultCleared:
    case LogKind::kAddress:
      return {"fault", std::string(rdma::FaultKindName(static_cast<rdma::FaultKind>(record.arg)))};
    case LogKind::kDrop:
    case LogKind::kHold:
    case LogKind::kRelease:
    case LogKind::kWedge:
    case LogKind::kUnwritten:
      return {"rule", number};
    case LogKind::kDelay:
    case LogKind::kVerbHung:
      return {"time", FormatDurationNs(static_cast<int64_t>(record.arg))};
    case LogKind::kDuplicate:
      return {"copies", number};
    case LogKind::kReorder:
      return {"behind", number};
    case LogKind::kFail:
    case LogKind::kQpError:
      return {"status", number};
    case LogKind::kKill:
      return {"pid", number};
    case LogKind::kVerbFailed:
      return {"call",
              std::string(rdma::VerbCallName(static_cast<rdma::VerbCall>(record.arg & 0xff))) +
                  " errno " + std::to_string(record.arg >> 8)};
    case LogKind::kPortState:
      return {"state", LinkStateName(static_cast<uint32_t>(record.arg))};
    case LogKind::kEvent:
    case LogKind::kEventLost:
      return {"event",
              std::string(rdma::AsyncEventName(static_cast<rdma::AsyncEvent>(record.arg)))};
    case LogKind::kDeviceRemoved:
    case LogKind::kDeviceReturned:
      return {"generation", number};
    case LogKind::kQuirk:
      return {"quirks", rdma::QuirkNames(record.arg)};
    case LogKind::kRetransmit:
      return {"attempts", number};
    case LogKind::kNak:
      return {"response", number};
    default:
      return {"arg", number};
  }
}

// Kinds that are about packets of a queue pair; the others have no number worth showing.
bool OfQueuePair(const LogRecord& record) {
  switch (static_cast<LogKind>(record.kind)) {
    case LogKind::kDrop:
    case LogKind::kDelay:
    case LogKind::kDuplicate:
    case LogKind::kReorder:
    case LogKind::kHold:
    case LogKind::kFail:
    case LogKind::kWedge:
    case LogKind::kKill:
    case LogKind::kRetransmit:
    case LogKind::kNak:
    case LogKind::kQpError:
    case LogKind::kUnwritten:
      return true;
    default:
      return false;
  }
}

std::string PortName(const DirectoryHandle& directory, const LogRecord& record) {
  const Directory& dir = directory.dir();
  if (record.device >= dir.device_count) return "?";
  const DeviceEntry& device = dir.devices[record.device];
  const std::string host = dir.host_count > 1 ? std::string(dir.host_names[device.host]) + "/" : "";
  return host + device.name + (record.port == 0 ? "" : ":" + std::to_string(record.port));
}

uint64_t TimeOf(const DirectoryHandle& directory, const LogRecord& record) {
  return record.time_ns - directory.dir().created_ns;
}

}  // namespace

std::string LogText(const DirectoryHandle& directory, const LogRecord& record) {
  const uint64_t time = TimeOf(directory, record);
  char start[64];
  std::snprintf(start, sizeof(start), "%4llu.%09llu ",
                static_cast<unsigned long long>(time / 1'000'000'000),
                static_cast<unsigned long long>(time % 1'000'000'000));
  std::string text = start + PortName(directory, record);
  const std::string kind(rdma::LogKindName(static_cast<LogKind>(record.kind)));
  if (OfQueuePair(record)) {
    text += " qp " + std::to_string(record.qp_order) + " " + kind + " psn " +
            std::to_string(record.psn) + " count " + std::to_string(record.count) + " message " +
            std::to_string(record.message);
  } else {
    text += " " + kind;
  }
  const Arg arg = ArgOf(record);
  // "event port_err" says enough; "drop rule 2" would not without the word.
  const bool named = arg.value.find_first_not_of("0123456789") == std::string::npos;
  return text + " " + (named ? std::string(arg.name) + " " : "") + arg.value;
}

std::string LogJson(const DirectoryHandle& directory, const LogRecord& record) {
  JsonWriter json;
  json.Begin('{').Key("position").Number(record.position);
  json.Key("time_ns").Number(TimeOf(directory, record));
  json.Key("port").String(PortName(directory, record));
  json.Key("kind").String(rdma::LogKindName(static_cast<LogKind>(record.kind)));
  if (OfQueuePair(record)) {
    json.Key("qp").Number(record.qp_order).Key("psn").Number(record.psn);
    json.Key("count").Number(record.count).Key("message").Number(record.message);
  }
  const Arg arg = ArgOf(record);
  return json.Key("arg")
      .Number(record.arg)
      .Key(arg.name == std::string("arg") ? "value" : arg.name)
      .String(arg.value)
      .End('}')
      .text();
}

}  // namespace railhop::fabric
