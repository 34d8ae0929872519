// What the admin API tells and takes: the health of a process, its counters, its events, options.
//
// Plain structs and no behaviour, the same on both transports, in the bindings and in the tools; on
// the wire they are cc/proto/admin.proto, converted by codec.h. Names carry units: `_unix_ns` is
// the wall clock, `_ns` a duration, both nanoseconds. Zero, an empty text and -1 where it says so
// mean "not known" or "none". Enumerations have a word each (Word), which is what people and JSON
// see; a number that this version does not know is kUnknown.
#ifndef RAILHOP_CC_ADMIN_RECORDS_H_
#define RAILHOP_CC_ADMIN_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace railhop::admin {

// The version of the API, on the wire and in railhop_admin.h. It grows when something is added;
// what is there keeps its meaning.
inline constexpr uint32_t kApiVersion = 1;

// ---- Enumerations. The numbers are those of admin.proto.

enum class PortState : uint8_t {
  kUnknown = 0,
  kUp,        // carries data, or may
  kSuspect,   // in service, but a path over it is in doubt
  kDown,      // not active, or nothing gets through
  kHoldDown,  // answers again, and has to go on doing so before it is used
  kDraining,  // taken out of service by command; work under way still completes on it
  kHeld,      // out of service by command
  kRemoved,   // the device has failed or is gone
};

enum class PathState : uint8_t {
  kUnknown = 0,
  kUnproved,  // no probe has come back over it yet
  kGood,      // proved lately: may carry data
  kDoubted,   // carries data; a probe that is due soon decides
  kFailed,
  kHoldDown,  // answers again, and has to go on doing so
};

enum class ConnectionState : uint8_t {
  kUnknown = 0,
  kHealthy,      // on its own ports
  kOnBackup,     // moves, over other ports in part or whole
  kRecovering,   // lanes are being left or made; data waits meanwhile
  kNoPath,       // nothing can carry it at present
  kEnded,        // given up
  kUnprotected,  // without failover
};

enum class Direction : uint8_t { kUnknown = 0, kSend, kReceive };

// Of the whole process: the worst of its connections and ports.
enum class Verdict : uint8_t {
  kUnknown = 0,
  kOk,
  kDegraded,    // all moves, over fewer ports than there are
  kRecovering,  // a connection is recovering
  kNoPath,      // a connection has no path, or was given up
};

// Why a port, a path or a lane was left.
enum class Cause : uint8_t {
  kUnknown = 0,
  kNone,
  kCompletion,     // a work request ended in error
  kPostRefused,    // a work request was refused
  kPortDown,       // the local port is not active
  kDeviceFailed,   // the local device has failed or is gone
  kQueuePair,      // the device says that a queue pair or a completion queue has failed
  kStall,          // nothing gets through and nothing says why
  kPeer,           // the other end has left it
  kAddressChange,  // the port's address has changed
  kCommand,        // failover was asked for
  kDrain,          // drain was asked for
  kFailBack,       // back to the nearest port
};

enum class Blame : uint8_t {
  kUnknown = 0,
  kNobody,           // a command
  kLocalPort,        // the local port is not active: NIC, cable or switch
  kLocalNic,         // the local device has failed
  kLocalNicOrCable,  // nothing gets through over this local port, to any peer; it reads as active
  kPath,             // one pair of ports; others of both work
  kRemoteNic,
  kPeerProcess,
  kPeerHost,
  kConfiguration,  // this pair of ports never worked
};

enum class EventKind : uint8_t {
  kUnknown = 0,
  kPortState,         // port; text: the state
  kPathState,         // port, peer; text: the state
  kEpisodeBegun,      // cause, blame
  kLanesLeft,         // connection, epoch, cause; value: how many
  kResumed,           // connection, epoch: both ends have agreed; bytes: to be sent again
  kLanesAdded,        // connection, epoch; value: how many
  kLanesRetired,      // connection, epoch: left in order; value: how many
  kEpisodeRecovered,  // value: ns it took; bytes: sent again
  kNoPath,            // connection
  kGaveUp,            // connection
  kPeerLost,          // peer; text: why
  kSession,           // peer: the control channel came up or was lost
  kNoCover,           // port: memory cannot be registered there
  kCommand,           // text: what was asked for
  kOptionSet,         // text: NAME=VALUE
};

enum class Severity : uint8_t { kUnknown = 0, kInfo, kWarning };

enum class FailoverMode : uint8_t {
  kUnknown = 0,
  kDrain,  // what is under way completes first
  kNow,    // as a fault: lanes are fenced at once
};

// Why a call gave no result. The text beside it is one line that says what to do.
enum class ErrorCode : uint8_t {
  kUnknown = 0,
  kInvalid,      // the request or a value in it means nothing: names it and what is allowed
  kNotFound,     // no such process, job, port, device, connection or option: lists what there is
  kNotLoaded,    // the plugin is not in this process, or is not started
  kStaleSocket,  // a socket that nobody listens on
  kPermission,   // the job of another user
  kRefused,      // it would do harm, or cannot be done as things are; nothing has changed
  kTimeout,      // no answer in time
  kInternal,     // the system or the other end misbehaves
};

const char* Word(PortState state);
const char* Word(PathState state);
const char* Word(ConnectionState state);
const char* Word(Direction direction);
const char* Word(Verdict verdict);
const char* Word(Cause cause);
const char* Word(Blame blame);
const char* Word(EventKind kind);
const char* Word(Severity severity);
const char* Word(FailoverMode mode);
const char* Word(ErrorCode code);
// A phrase for a sentence: "the port is down".
const char* Phrase(Cause cause);
const char* Phrase(Blame blame);

// ---- Records.

struct Process {
  int64_t pid = 0;
  std::string host;
  std::string job;      // RAILHOP_JOB_ID, SLURM_JOB_ID or TORCHELASTIC_RUN_ID; "" if none is set
  std::string program;  // as its command line begins
  std::string version;  // of Railhop
  uint32_t api_version = 0;
  std::string instance;       // hex: what peers call this process
  int64_t start_unix_ns = 0;  // of the transport
  int64_t now_unix_ns = 0;
  bool failover = false;  // RAILHOP_FAILOVER
  bool running = false;   // the transport is started: there are devices
  friend bool operator==(const Process&, const Process&) = default;
};

struct Device {
  std::string name;        // "mlx5_0"
  std::string pci;         // "0000:81:00.0"; "" if it has none
  int32_t numa_node = -1;  // -1 = not known
  bool removed = false;
  friend bool operator==(const Device&, const Device&) = default;
};

struct Port {
  std::string name;  // "mlx5_0:1"
  std::string device;
  uint32_t number = 1;
  PortState state = PortState::kUnknown;
  Cause cause = Cause::kNone;  // of the state
  int64_t since_unix_ns = 0;   // of the state; 0 = since the start
  std::string link_layer;      // "Ethernet" or "InfiniBand"
  uint32_t speed_mbps = 0;
  uint32_t mtu_bytes = 0;
  std::string gid;  // "fe80::1" form
  uint32_t lid = 0;
  int32_t rail = -1;
  bool covered = false;       // every connection may move to it
  uint32_t connections = 0;   // with lanes on it
  uint32_t lanes = 0;         // of them
  uint32_t lanes_backup = 0;  // for connections whose own port is another
  uint32_t flaps = 0;
  int64_t hold_down_ns = 0;  // left to go, in kHoldDown
  bool held_by_command = false;
  friend bool operator==(const Port&, const Port&) = default;
};

struct Path {
  std::string port;  // of this process
  std::string peer_host;
  std::string peer_instance;  // hex
  std::string peer_port;      // "" until the peer has told its ports
  PathState state = PathState::kUnknown;
  int64_t since_unix_ns = 0;
  int64_t last_answer_unix_ns = 0;  // of a probe; 0 = none yet
  uint64_t probes_sent = 0;
  uint64_t probes_lost = 0;
  uint32_t flaps = 0;
  friend bool operator==(const Path&, const Path&) = default;
};

struct Connection {
  std::string id;  // hex; with the direction it is unique in the process
  Direction direction = Direction::kUnknown;
  std::string peer_host;
  std::string peer_instance;  // hex
  std::string label;          // "mlx5_0 -> node-17 mlx5_0"
  ConnectionState state = ConnectionState::kUnknown;
  uint32_t epoch = 0;
  std::vector<std::string> ports;       // that carry it now
  std::vector<std::string> home_ports;  // that it was made for
  uint32_t lanes = 0;
  uint32_t lanes_backup = 0;
  uint64_t bytes = 0;        // sent or received
  uint64_t messages = 0;     // NCCL's sends or receives that have begun
  uint32_t outstanding = 0;  // work requests that are posted and not completed
  int64_t hindered_ns = 0;   // for so long it has not moved; 0 = it moves
  uint64_t episodes = 0;     // that it was touched by
  std::string reason;        // of the end, in kEnded; in kNoPath: ports held by command
  friend bool operator==(const Connection&, const Connection&) = default;
};

// One fault of a port or a path, however many connections it touches.
struct Episode {
  uint64_t id = 0;
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;  // 0 = open
  std::string port;
  std::string peer_host;  // "" if it is not about one peer
  std::string peer_port;
  Cause cause = Cause::kNone;
  Blame blame = Blame::kUnknown;
  uint32_t connections = 0;
  uint64_t bytes_resent = 0;
  int64_t detect_ns = 0;  // the last sign of life before it to the decision; 0 = told at once
  int64_t agree_ns =
      0;  // the decision to the first connection's agreement of both ends; 0 = not yet
  int64_t resume_ns = 0;  // the decision until all connections move again; 0 = not yet
  std::vector<std::string> ports_after;  // that carry now what it had
  bool recovered = false;
  friend bool operator==(const Episode&, const Episode&) = default;
};

struct Health {
  Process process;
  Verdict verdict = Verdict::kUnknown;
  std::vector<Device> devices;
  std::vector<Port> ports;
  std::vector<Path> paths;
  std::vector<Connection> connections;
  std::vector<Episode> episodes;  // the last 64, oldest first
  friend bool operator==(const Health&, const Health&) = default;
};

// All counters are of the process's life and never go back.
struct PortStats {
  std::string name;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t sent_messages = 0;  // stripes: what went over this port of NCCL's messages
  uint64_t received_messages = 0;
  uint64_t resent_bytes = 0;
  uint64_t stalls = 0;
  uint64_t faults = 0;  // episodes that began on it
  friend bool operator==(const PortStats&, const PortStats&) = default;
};

struct CauseCount {
  Cause cause = Cause::kUnknown;
  uint64_t count = 0;
  friend bool operator==(const CauseCount&, const CauseCount&) = default;
};

struct Histogram {
  std::string name;              // detect, agree, resume, probe
  std::string unit;              // "ns"
  std::vector<uint64_t> bounds;  // upper ones, inclusive; one less than counts
  std::vector<uint64_t> counts;  // of each bucket, not summed up; the last is above all bounds
  uint64_t count = 0;
  uint64_t sum = 0;
  uint64_t max = 0;
  friend bool operator==(const Histogram&, const Histogram&) = default;
};

struct Stats {
  Process process;
  std::vector<PortStats> ports;
  std::vector<CauseCount> faults;  // episodes by cause
  uint64_t episodes_begun = 0;
  uint64_t episodes_recovered = 0;
  uint64_t gave_up = 0;  // connections
  uint64_t bytes_resent = 0;
  uint64_t stripes_resent = 0;
  uint64_t probes_sent = 0;
  uint64_t probes_answered = 0;
  uint64_t probes_lost = 0;
  uint64_t stale_messages = 0;    // of the control channel: of an old epoch, or of nothing known
  uint64_t refused_messages = 0;  // that no honest peer sends
  std::vector<Histogram> histograms;
  friend bool operator==(const Stats&, const Stats&) = default;
};

struct Event {
  uint64_t serial = 0;  // from 1, without gaps
  int64_t time_unix_ns = 0;
  EventKind kind = EventKind::kUnknown;
  Severity severity = Severity::kUnknown;
  uint64_t episode = 0;  // 0 = none
  std::string port;
  std::string peer_host;
  std::string peer_port;
  std::string connection;  // hex
  Direction direction = Direction::kUnknown;
  uint32_t epoch = 0;
  Cause cause = Cause::kNone;
  Blame blame = Blame::kUnknown;
  uint64_t value = 0;
  uint64_t bytes = 0;
  std::string text;
  friend bool operator==(const Event&, const Event&) = default;
};

struct EventList {
  std::vector<Event> events;  // oldest first
  uint64_t gone = 0;          // that were asked for and are not kept any more
  uint64_t last_serial = 0;   // of all that there are
  friend bool operator==(const EventList&, const EventList&) = default;
};

struct Option {
  std::string name;
  std::string value;
  std::string default_value;
  std::string source;  // "default", "environment", "/etc/nccl.conf:3", "command"
  std::string unit;
  std::string range;
  std::string doc;
  bool changeable = false;  // while it runs
  std::string note;         // after a change: what comes of it besides; "" = nothing
  friend bool operator==(const Option&, const Option&) = default;
};

// What a command has done.
struct Outcome {
  std::vector<std::string> ports;  // that it concerned
  uint32_t connections = 0;        // that had lanes there
  std::string text;                // one line for a person
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Why there is no result.
struct Failure {
  ErrorCode code = ErrorCode::kUnknown;
  std::string message;  // one line, no full stop
  friend bool operator==(const Failure&, const Failure&) = default;
};

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_RECORDS_H_
