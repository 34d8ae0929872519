#include "cc/runtime/fault_report.h"

#include <cinttypes>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cc/base/log.h"

namespace railhop::runtime {
namespace {

using datapath::Fault;

// The codes of ibv_wc_status that a reliable connection can meet, with what they mean for a user.
// Source: ibv_poll_cq(3).
const char* CompletionText(int status) {
  switch (status) {
    case 4:
      return "local protection error: the buffer is not registered memory any more";
    case 5:
      return "flushed: the queue pair had failed before";
    case 9:
      return "remote invalid request";
    case 10:
      return "remote access error: the peer's buffer is not registered memory any more";
    case 11:
      return "remote operation error";
    case 12:
      return "retries exhausted: the peer or the path to it is gone; check the port, the cable and "
             "the peer's process";
    case 13:
      return "receiver-not-ready retries exhausted";
    default:
      return "work request failed";
  }
}

}  // namespace

std::string DescribeFault(const std::string& connection, const Fault& fault) {
  const std::string where = absl::StrCat(connection, ", qp 0x", absl::Hex(fault.qp_number));
  switch (fault.kind) {
    case Fault::Kind::kCompletion:
      return absl::StrCat(where, ": ", CompletionText(fault.code), " (status ", fault.code,
                          ", vendor error ", fault.vendor_error, ")");
    case Fault::Kind::kPost:
      return absl::StrCat(where, ": a work request was refused: ",
                          std::generic_category().message(fault.code), " (errno ", fault.code, ")");
    case Fault::Kind::kQueue:
      return absl::StrCat(connection, ": a completion queue cannot be polled");
    case Fault::Kind::kDevice:
      return absl::StrCat(connection, ": ended by event ", fault.code, " of its device");
    case Fault::Kind::kProtocol:
      return absl::StrCat(where, ": the peer sent what the protocol does not allow");
    case Fault::Kind::kLost:
      return absl::StrCat(
          connection,
          ": data was acknowledged and is not there, and its buffer is not ours any "
          "more: a failing NIC has lost it");
    case Fault::Kind::kGiveUp:
      return absl::StrCat(connection, ": given up");
    case Fault::Kind::kUncovered:
    case Fault::Kind::kNone:
      break;
  }
  return absl::StrCat(connection, ": no fault");
}

void ReportFault(datapath::Connection* connection) {
  const Fault fault = connection->TakeFault();
  if (fault.kind == Fault::Kind::kNone) return;
  RAILHOP_LOG(kWarning, "%s", DescribeFault(connection->label(), fault).c_str());
}

void ReportStrangers(const ListenerCounters& c) {
  if (c.junk + c.silent + c.gone + c.replayed + c.crowded_out == 0) return;
  RAILHOP_LOG(kInfo,
              "a listener was called by strangers: %" PRIu64 " junk, %" PRIu64 " silent, %" PRIu64
              " gone, %" PRIu64 " replayed, %" PRIu64 " crowded out",
              c.junk, c.silent, c.gone, c.replayed, c.crowded_out);
}

}  // namespace railhop::runtime
