#include "cc/rdma_model/fault_words.h"

#include <cerrno>

namespace railhop::rdma {
namespace {

constexpr uint32_t kTimes = kOptAt | kOptFor;
constexpr uint32_t kPacketOptions = kOptDirection | kOptClass | kOptRate | kOptPacket | kOptQp |
                                    kOptAfter | kTimes | kOptCount | kOptSeed;
constexpr uint32_t kMessageOptions = kOptDirection | kOptQp | kOptAfter | kTimes | kOptCount;
constexpr uint32_t kVerbOptions = kOptCalls | kTimes | kOptCount | kOptRate | kOptSeed;
constexpr uint32_t kChangeOptions = kOptQp | kOptAfter | kTimes;
constexpr uint32_t kEventfulOptions = kChangeOptions | kOptEvent;

constexpr FaultKindRow kKinds[] = {
    {FaultKind::kBlackhole, "blackhole", "blackhole", "",
     kOptDirection | kOptClass | kOptQp | kOptAfter | kTimes | kOptCount,
     "Packets vanish without a trace; the port stays active.", "blackhole rx acks for 2s"},
    {FaultKind::kLoss, "loss", "loss", "", kPacketOptions,
     "Packets are lost: a share of them, or those named.", "loss 1% seed 7"},
    {FaultKind::kDelay, "delay", "delay", "TIME [jitter TIME]", kPacketOptions,
     "Packets arrive later; with jitter each has a share of its own on top.",
     "delay 1ms jitter 200us 10%"},
    {FaultKind::kDuplicate, "duplicate", "duplicate", "", kPacketOptions, "Packets arrive twice.",
     "duplicate 0.1% data"},
    {FaultKind::kReorder, "reorder", "reorder", "[by N]", kPacketOptions,
     "Packets arrive behind the N (1) that were sent after them.", "reorder by 3 0.5%"},
    {FaultKind::kHold, "hold", "hold", "", kPacketOptions,
     "Packets are kept until `release`, `clear` or the end of `for`. Without a share it keeps one "
     "packet, or `count`.",
     "hold packet 17 of qp 3"},
    {FaultKind::kCap, "cap", "cap", "RATE", kOptDirection | kOptQp | kOptAfter | kTimes,
     "The port moves no more than RATE; what it reports does not change.", "cap 500Mb/s tx"},
    {FaultKind::kUnwritten, "unwritten", "unwritten", "",
     kOptDirection | kOptRate | kOptPacket | kOptQp | kOptAfter | kTimes | kOptCount | kOptSeed,
     "Requests are acknowledged, but neither their bytes nor a receive's completion reach memory; "
     "the same "
     "goes for all that follows on the queue pair that got them, until it is reset.",
     "unwritten rx after 100 messages"},
    {FaultKind::kComplete, "complete", "complete", "status STATUS [vendor N]", kMessageOptions,
     "The next work request (or `count`) completes with STATUS and its queue pair goes to ERR. "
     "With `rx` the "
     "receive that the next message arrives for.",
     "complete status 12 after 100 messages"},
    {FaultKind::kWedge, "wedge", "wedge", "", kMessageOptions,
     "The next queue pair that sends or receives (or `count`) stops for good: no packet, no "
     "completion, no event.",
     "wedge qp 3 after 1000 messages"},
    {FaultKind::kKill, "kill", "kill", "", kMessageOptions,
     "Kills the process that uses the port with the next packet: `tx` before it is sent, `rx` "
     "before it is carried "
     "out.",
     "kill rx after 100 messages"},
    {FaultKind::kFailVerb, "fail", "fail", "CALL [STATE] ERROR", kVerbOptions,
     "A verbs call fails with ERROR; STATE limits modify_qp to changes to that state.",
     "fail reg_mr ENOMEM after 10"},
    {FaultKind::kHangVerb, "hang", "hang", "CALL [STATE] TIME", kVerbOptions,
     "A verbs call takes TIME longer.", "hang destroy_qp 60s"},
    {FaultKind::kEvents, "events", "events", "[EVENT] lost|late TIME|doubled", kTimes | kOptCount,
     "Asynchronous events of the port, or only EVENT, get lost, come late, or come twice.",
     "events late 2s for 10s"},
    {FaultKind::kDown, "down", "down", "", kEventfulOptions,
     "The cable is out. With `for` it is put back.", "down after 5000 messages"},
    {FaultKind::kUp, "up", "up", "", kEventfulOptions, "The cable is in.", "up event lost"},
    {FaultKind::kFlap, "flap", "flap", "every TIME [down TIME]", kEventfulOptions | kOptCount,
     "Down and up again and again; down for half of the time unless said.",
     "flap every 400ms for 20s"},
    {FaultKind::kSpeed, "speed", "speed", "RATE", kChangeOptions,
     "The port reports this rate; `cap` changes what it moves.", "speed 100Gb/s for 10s"},
    {FaultKind::kMtu, "mtu", "mtu", "256|512|1024|2048|4096", kChangeOptions,
     "The active MTU of the port changes.", "mtu 1024"},
    {FaultKind::kLid, "lid", "lid", "N", kEventfulOptions,
     "The port gets another LID (event lid_change).", "lid 17"},
    {FaultKind::kSmLid, "smlid", "smlid", "N", kEventfulOptions,
     "Another subnet manager takes over (event sm_change).", "smlid 2"},
    {FaultKind::kPkey, "pkey", "pkey", "INDEX VALUE", kEventfulOptions,
     "An entry of the P_Key table changes (event pkey_change); 0 empties it.", "pkey 1 0x8001"},
    {FaultKind::kGidSet, "gid_set", "gid set", "INDEX ADDRESS [ib|v1|v2]", kEventfulOptions,
     "An entry of the GID table becomes ADDRESS, IPv6 or IPv4 (event gid_change).",
     "gid set 3 10.0.0.7 v2"},
    {FaultKind::kGidRemove, "gid_remove", "gid remove", "INDEX", kEventfulOptions,
     "An entry of the GID table becomes empty (event gid_change).", "gid remove 3 for 1500ms"},
    {FaultKind::kGidMove, "gid_move", "gid move", "INDEX INDEX", kEventfulOptions,
     "An address moves to another index (event gid_change).", "gid move 3 8"},
    {FaultKind::kGidLinkLocal, "gid_linklocal", "gid linklocal", "", kEventfulOptions,
     "Only link-local addresses are left (event gid_change).", "gid linklocal for 1500ms"},
    {FaultKind::kEvent, "event", "event", "EVENT", kOptQp | kOptAfter | kOptAt,
     "Sends EVENT and changes nothing; qp_* and cq_err events need `qp N`.", "event qp_fatal qp 3"},
    {FaultKind::kRemove, "remove", "remove", "", kEventfulOptions,
     "The device goes away: device_fatal, then EIO from its calls.",
     "remove after 100 messages for 5s"},
    {FaultKind::kReturn, "return", "return", "", kOptAt | kOptAfter | kOptQp | kOptEvent,
     "A removed device is back, for those who open it anew.", "return at 10s"},
    {FaultKind::kQuirk, "quirk", "quirk", "QUIRK [off]", kChangeOptions,
     "Switches a habit of some providers on or off for the device.", "quirk no_uc"},
    {FaultKind::kRelease, "release", "release", "", 0, "Lets go of all held packets of the port.",
     "release"},
    {FaultKind::kClear, "clear", "clear", "[KIND]", 0,
     "Removes all faults of the port, or those of one kind; what had an end is undone at once.",
     "clear loss"},
    {FaultKind::kList, "list", "list", "", 0, "Lists the faults in force.", "list"},
};

constexpr FaultOptionRow kOptions[] = {
    {kOptDirection, "tx|rx|both", "Packets that leave the port, reach it, or both (both)."},
    {kOptClass, "data|acks|all",
     "Requests and the data of READ; acknowledgements, NAKs and results of atomics; or all (all)."},
    {kOptRate, "N%",
     "This share of packets (of calls), picked by a hash of seed, queue pair and packet number "
     "(100%)."},
    {kOptPacket, "packet N",
     "Packet N of each queue pair; the first is 1. Repeated packets count anew."},
    {kOptQp, "[of] qp N",
     "Only queue pair N of the device, in order of creation; the first is 0. `after` then counts "
     "what it has sent "
     "since it was made."},
    {kOptAfter, "after N messages|packets|bytes [sent|received]",
     "Starts when so much has passed the port since the command. Exactly N messages pass before "
     "it. `after 64KiB` "
     "means bytes. Acknowledgements do not count."},
    {kOptCalls, "after N [calls]", "Starts behind N such calls."},
    {kOptAt, "at TIME", "Starts at this time since the fabric's start."},
    {kOptFor, "for TIME", "Ends, and undoes a change, so long after it started."},
    {kOptCount, "count N", "Hits N packets (messages, calls, flaps) at most; `next` is `count 1`."},
    {kOptSeed, "seed N", "Another seed picks other packets (0)."},
    {kOptEvent, "event lost|early TIME|late TIME|doubled",
     "What becomes of the event that belongs to the change."},
};

constexpr NamedValue Verb(std::string_view name, VerbCall call) {
  return {name, static_cast<uint64_t>(call)};
}

constexpr NamedValue kVerbs[] = {
    Verb("any", VerbCall::kAny),
    Verb("open_device", VerbCall::kOpenDevice),
    Verb("close_device", VerbCall::kCloseDevice),
    Verb("query_device", VerbCall::kQueryDevice),
    Verb("query_port", VerbCall::kQueryPort),
    Verb("query_gid", VerbCall::kQueryGid),
    Verb("query_pkey", VerbCall::kQueryPkey),
    Verb("alloc_pd", VerbCall::kAllocPd),
    Verb("dealloc_pd", VerbCall::kDeallocPd),
    Verb("reg_mr", VerbCall::kRegMr),
    Verb("reg_dmabuf_mr", VerbCall::kRegDmabufMr),
    Verb("dereg_mr", VerbCall::kDeregMr),
    Verb("create_comp_channel", VerbCall::kCreateCompChannel),
    Verb("create_cq", VerbCall::kCreateCq),
    Verb("destroy_cq", VerbCall::kDestroyCq),
    Verb("poll_cq", VerbCall::kPollCq),
    Verb("req_notify_cq", VerbCall::kReqNotifyCq),
    Verb("create_qp", VerbCall::kCreateQp),
    Verb("modify_qp", VerbCall::kModifyQp),
    Verb("query_qp", VerbCall::kQueryQp),
    Verb("destroy_qp", VerbCall::kDestroyQp),
    Verb("post_send", VerbCall::kPostSend),
    Verb("post_recv", VerbCall::kPostRecv),
};
static_assert(std::size(kVerbs) == static_cast<size_t>(VerbCall::kCount));

constexpr NamedValue kErrnos[] = {
    {"EPERM", EPERM},
    {"ENOENT", ENOENT},
    {"EINTR", EINTR},
    {"EIO", EIO},
    {"ENXIO", ENXIO},
    {"EAGAIN", EAGAIN},
    {"ENOMEM", ENOMEM},
    {"EACCES", EACCES},
    {"EFAULT", EFAULT},
    {"EBUSY", EBUSY},
    {"ENODEV", ENODEV},
    {"EINVAL", EINVAL},
    {"EMFILE", EMFILE},
    {"ENOSPC", ENOSPC},
    {"ENOSYS", ENOSYS},
    {"ENODATA", ENODATA},
    {"EPROTONOSUPPORT", EPROTONOSUPPORT},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"ENETDOWN", ENETDOWN},
    {"ENETUNREACH", ENETUNREACH},
    {"ETIMEDOUT", ETIMEDOUT},
    {"ECONNREFUSED", ECONNREFUSED},
    {"EHOSTUNREACH", EHOSTUNREACH},
};

constexpr NamedValue Status(std::string_view name, WcStatus status) {
  return {name, static_cast<uint64_t>(status)};
}

constexpr NamedValue kStatuses[] = {
    Status("loc_len_err", WcStatus::kLocLenErr),
    Status("loc_qp_op_err", WcStatus::kLocQpOpErr),
    Status("loc_eec_op_err", WcStatus::kLocEecOpErr),
    Status("loc_prot_err", WcStatus::kLocProtErr),
    Status("wr_flush_err", WcStatus::kWrFlushErr),
    Status("mw_bind_err", WcStatus::kMwBindErr),
    Status("bad_resp_err", WcStatus::kBadRespErr),
    Status("loc_access_err", WcStatus::kLocAccessErr),
    Status("rem_inv_req_err", WcStatus::kRemInvReqErr),
    Status("rem_access_err", WcStatus::kRemAccessErr),
    Status("rem_op_err", WcStatus::kRemOpErr),
    Status("retry_exc_err", WcStatus::kRetryExcErr),
    Status("rnr_retry_exc_err", WcStatus::kRnrRetryExcErr),
    Status("loc_rdd_viol_err", WcStatus::kLocRddViolErr),
    Status("rem_inv_rd_req_err", WcStatus::kRemInvRdReqErr),
    Status("rem_abort_err", WcStatus::kRemAbortErr),
    Status("inv_eecn_err", WcStatus::kInvEecnErr),
    Status("inv_eec_state_err", WcStatus::kInvEecStateErr),
    Status("fatal_err", WcStatus::kFatalErr),
    Status("resp_timeout_err", WcStatus::kRespTimeoutErr),
    Status("general_err", WcStatus::kGeneralErr),
};

constexpr NamedValue Event(std::string_view name, AsyncEvent event) {
  return {name, static_cast<uint64_t>(event)};
}

constexpr NamedValue kEvents[] = {
    Event("cq_err", AsyncEvent::kCqErr),
    Event("qp_fatal", AsyncEvent::kQpFatal),
    Event("qp_req_err", AsyncEvent::kQpReqErr),
    Event("qp_access_err", AsyncEvent::kQpAccessErr),
    Event("comm_est", AsyncEvent::kCommEst),
    Event("sq_drained", AsyncEvent::kSqDrained),
    Event("path_mig", AsyncEvent::kPathMig),
    Event("path_mig_err", AsyncEvent::kPathMigErr),
    Event("device_fatal", AsyncEvent::kDeviceFatal),
    Event("port_active", AsyncEvent::kPortActive),
    Event("port_err", AsyncEvent::kPortErr),
    Event("lid_change", AsyncEvent::kLidChange),
    Event("pkey_change", AsyncEvent::kPkeyChange),
    Event("sm_change", AsyncEvent::kSmChange),
    Event("srq_err", AsyncEvent::kSrqErr),
    Event("srq_limit_reached", AsyncEvent::kSrqLimitReached),
    Event("qp_last_wqe_reached", AsyncEvent::kQpLastWqeReached),
    Event("client_reregister", AsyncEvent::kClientReregister),
    Event("gid_change", AsyncEvent::kGidChange),
};

constexpr NamedValue kQuirks[] = {
    {"no_uc", kQuirkNoUc},
    {"dead_after_reset", kQuirkDeadAfterReset},
    {"random_error_fields", kQuirkRandomErrorFields},
    {"short_cq", kQuirkShortCq},
    {"eio_after_removal", kQuirkEioAfterRemoval},
    {"retry7_forever", kQuirkRetry7Forever},
    {"hang_verbs", kQuirkHangVerbs},
};

constexpr NamedValue State(std::string_view name, QpState state) {
  return {name, static_cast<uint64_t>(state)};
}

constexpr NamedValue kQpStates[] = {
    State("reset", QpState::kReset), State("init", QpState::kInit), State("rtr", QpState::kRtr),
    State("rts", QpState::kRts),     State("sqd", QpState::kSqd),   State("sqe", QpState::kSqe),
    State("err", QpState::kErr),
};

constexpr NamedValue kGidTypes[] = {
    {"ib", static_cast<uint64_t>(GidType::kIb)},
    {"v1", static_cast<uint64_t>(GidType::kRoceV1)},
    {"v2", static_cast<uint64_t>(GidType::kRoceV2)},
};

constexpr NamedValue Log(std::string_view name, LogKind kind) {
  return {name, static_cast<uint64_t>(kind)};
}

constexpr NamedValue kLogKinds[] = {
    Log("none", LogKind::kNone),
    Log("fault_set", LogKind::kFaultSet),
    Log("fault_cleared", LogKind::kFaultCleared),
    Log("drop", LogKind::kDrop),
    Log("delay", LogKind::kDelay),
    Log("duplicate", LogKind::kDuplicate),
    Log("reorder", LogKind::kReorder),
    Log("hold", LogKind::kHold),
    Log("release", LogKind::kRelease),
    Log("fail", LogKind::kFail),
    Log("wedge", LogKind::kWedge),
    Log("kill", LogKind::kKill),
    Log("verb_failed", LogKind::kVerbFailed),
    Log("verb_hung", LogKind::kVerbHung),
    Log("port_state", LogKind::kPortState),
    Log("event", LogKind::kEvent),
    Log("event_lost", LogKind::kEventLost),
    Log("address", LogKind::kAddress),
    Log("device_removed", LogKind::kDeviceRemoved),
    Log("device_returned", LogKind::kDeviceReturned),
    Log("quirk", LogKind::kQuirk),
    Log("retransmit", LogKind::kRetransmit),
    Log("nak", LogKind::kNak),
    Log("qp_error", LogKind::kQpError),
    Log("unwritten", LogKind::kUnwritten),
};
static_assert(std::size(kLogKinds) == static_cast<size_t>(LogKind::kCount));
// Every kind but kNone has a row.
static_assert(std::size(kKinds) == static_cast<size_t>(FaultKind::kCount) - 1);

}  // namespace

std::span<const FaultKindRow> FaultKindRows() { return kKinds; }
std::span<const FaultOptionRow> FaultOptionRows() { return kOptions; }

const FaultKindRow* FindKind(FaultKind kind) {
  for (const FaultKindRow& row : kKinds) {
    if (row.kind == kind) return &row;
  }
  return nullptr;
}

std::span<const NamedValue> VerbNames() { return kVerbs; }
std::span<const NamedValue> ErrnoNames() { return kErrnos; }
std::span<const NamedValue> StatusNames() { return kStatuses; }
std::span<const NamedValue> EventNames() { return kEvents; }
std::span<const NamedValue> QuirkRows() { return kQuirks; }
std::span<const NamedValue> QpStateNames() { return kQpStates; }
std::span<const NamedValue> GidTypeNames() { return kGidTypes; }
std::span<const NamedValue> LogKindNames() { return kLogKinds; }

const NamedValue* FindName(std::span<const NamedValue> rows, std::string_view name) {
  for (const NamedValue& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const NamedValue* FindValue(std::span<const NamedValue> rows, uint64_t value) {
  for (const NamedValue& row : rows) {
    if (row.value == value) return &row;
  }
  return nullptr;
}

std::string JoinNames(std::span<const NamedValue> rows) {
  std::string text;
  for (const NamedValue& row : rows) {
    if (!text.empty()) text += ", ";
    text += row.name;
  }
  return text;
}

}  // namespace railhop::rdma
