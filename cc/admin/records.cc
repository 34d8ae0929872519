#include "cc/admin/records.h"

namespace railhop::admin {
namespace {

template <typename Enum, int n>
const char* At(const char* const (&words)[n], Enum value) {
  return static_cast<int>(value) < n ? words[static_cast<int>(value)] : words[0];
}

}  // namespace

const char* Word(PortState value) {
  static const char* const kWords[] = {"unknown",   "up",       "suspect", "down",
                                       "hold_down", "draining", "held",    "removed"};
  return At(kWords, value);
}

const char* Word(PathState value) {
  static const char* const kWords[] = {"unknown", "unproved", "good",
                                       "doubted", "failed",   "hold_down"};
  return At(kWords, value);
}

const char* Word(ConnectionState value) {
  static const char* const kWords[] = {"unknown", "healthy", "on_backup",  "recovering",
                                       "no_path", "ended",   "unprotected"};
  return At(kWords, value);
}

const char* Word(Direction value) {
  static const char* const kWords[] = {"unknown", "send", "receive"};
  return At(kWords, value);
}

const char* Word(Verdict value) {
  static const char* const kWords[] = {"unknown", "ok", "degraded", "recovering", "no_path"};
  return At(kWords, value);
}

const char* Word(Cause value) {
  static const char* const kWords[] = {"unknown",   "none",           "completion", "post_refused",
                                       "port_down", "device_failed",  "queue_pair", "stall",
                                       "peer",      "address_change", "command",    "drain",
                                       "fail_back"};
  return At(kWords, value);
}

const char* Word(Blame value) {
  static const char* const kWords[] = {
      "unknown", "nobody",     "local_port",   "local_nic", "local_nic_or_cable",
      "path",    "remote_nic", "peer_process", "peer_host", "configuration"};
  return At(kWords, value);
}

const char* Word(EventKind value) {
  static const char* const kWords[] = {
      "unknown",           "port_state", "path_state",  "episode_begun",
      "lanes_left",        "resumed",    "lanes_added", "lanes_retired",
      "episode_recovered", "no_path",    "gave_up",     "peer_lost",
      "session",           "no_cover",   "command",     "option_set"};
  return At(kWords, value);
}

const char* Word(Severity value) {
  static const char* const kWords[] = {"unknown", "info", "warning"};
  return At(kWords, value);
}

const char* Word(FailoverMode value) {
  static const char* const kWords[] = {"unknown", "drain", "now"};
  return At(kWords, value);
}

const char* Word(ErrorCode value) {
  static const char* const kWords[] = {"unknown",    "invalid",      "not_found",
                                       "not_loaded", "stale_socket", "permission",
                                       "refused",    "timeout",      "internal"};
  return At(kWords, value);
}

const char* Phrase(Cause cause) {
  static const char* const kPhrases[] = {"a cause that this version does not know",
                                         "no cause",
                                         "a work request ended in error",
                                         "a work request was refused",
                                         "the port is down",
                                         "the device has failed",
                                         "a queue pair has failed",
                                         "nothing gets through and nothing says why",
                                         "the other end has left it",
                                         "the port's address has changed",
                                         "failover was asked for",
                                         "drain was asked for",
                                         "back to the nearest port"};
  return At(kPhrases, cause);
}

const char* Phrase(Blame blame) {
  static const char* const kPhrases[] = {"not known who is to blame",
                                         "asked for by a person",
                                         "the local port: NIC, cable or switch",
                                         "the local NIC",
                                         "the local NIC or its cable",
                                         "the path between two ports",
                                         "the peer's NIC or its cable",
                                         "the peer's process",
                                         "the peer's host",
                                         "the configuration: this pair of ports never worked"};
  return At(kPhrases, blame);
}

}  // namespace railhop::admin
