// The admin API as C++ calls, in the process itself or on another process of this node.
//
// In the process: the plugin that NCCL has loaded is found among the loaded libraries and called
// through railhop_admin.h; nothing is loaded that is not there. On another process: over its unix
// socket (sockets.h), with a deadline for each call.
//
// Errors of all calls, beside those named at each: kNotLoaded (in process: no plugin), kStaleSocket
// (the process has gone), kPermission, kTimeout, kInternal. A call that has failed may be repeated.
#ifndef RAILHOP_CC_ADMIN_CLIENT_H_
#define RAILHOP_CC_ADMIN_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/admin/records.h"
#include "cc/admin/reply.h"
#include "cc/admin/sockets.h"

namespace railhop::admin {

inline constexpr int64_t kTimeoutNsDefault = 10'000'000'000;

// Carries the bytes of a request there and of its response back: one of two transports.
class Caller {
 public:
  virtual ~Caller() = default;
  // Any thread, several at once. `timeout_ns` from now.
  virtual Reply<std::string> Call(const std::string& request, int64_t timeout_ns) = 0;
};

// Thread-safe: several threads may wait in calls at once.
class Client {
 public:
  // The plugin of this process. Errors: kNotLoaded.
  static Reply<std::unique_ptr<Client>> InProcess();
  // A socket by its path. Connects once, so that a wrong one is told at once.
  static Reply<std::unique_ptr<Client>> AtSocket(const std::string& path,
                                                 int64_t timeout_ns = kTimeoutNsDefault);
  // A process of this node. Errors: kNotFound (no such process, or none with the plugin).
  static Reply<std::unique_ptr<Client>> ForPid(int64_t pid, int64_t timeout_ns = kTimeoutNsDefault);
  // The only process of a job on this node. Errors: kNotFound (lists the jobs that there are),
  // kInvalid (several: lists their pids).
  static Reply<std::unique_ptr<Client>> ForJob(const std::string& job,
                                               int64_t timeout_ns = kTimeoutNsDefault);

  explicit Client(std::unique_ptr<Caller> caller, std::string name, int64_t timeout_ns)
      : caller_(std::move(caller)), name_(std::move(name)), timeout_ns_(timeout_ns) {}

  Reply<Process> GetProcess();
  Reply<Health> GetHealth();
  Reply<Stats> GetStats();
  // Entries with serial > after, oldest first, at most `limit` (1..4096). With wait_ns > 0 it waits
  // so long for the first if there is none; at most a minute at a time: ask again.
  Reply<EventList> GetEvents(uint64_t after = 0, uint32_t limit = 1024, int64_t wait_ns = 0);

  // Targets: "mlx5_0:1" (a port), "mlx5_0" (all ports of a device), "connection:<hex id>".
  // Errors: kNotFound (lists what there is), kRefused (it would leave a connection without a path;
  // failover is off), kInvalid. After an error nothing has changed.

  // The target's traffic moves to other ports; a port or device stays out of service until Release.
  // Of a connection: leaves the ports that carry it now, for others, until FailBack.
  Reply<Outcome> ForceFailover(const std::string& target, FailoverMode mode);
  // Back to the nearest ports that answer, without waiting for the hold-down. "" = all.
  Reply<Outcome> FailBack(const std::string& target = "");
  // Out of service until Release, in order: as ForceFailover with kDrain, of a port or device.
  Reply<Outcome> Hold(const std::string& target);
  // Into service again, once it is proved.
  Reply<Outcome> Release(const std::string& target);

  // Every option with what is in force, in the order of docs/reference/environment.md.
  Reply<std::vector<Option>> GetConfig();
  // Errors: kNotFound (no such option), kRefused (not while it runs), kInvalid (names the range).
  Reply<Option> SetOption(const std::string& name, const std::string& value);

  // "this process", or the socket's path.
  const std::string& name() const { return name_; }
  int64_t timeout_ns() const { return timeout_ns_; }

 private:
  const std::unique_ptr<Caller> caller_;
  const std::string name_;
  const int64_t timeout_ns_;
};

// A socket that was found, and what came of asking the process behind it who it is.
struct FoundProcess {
  FoundSocket socket;
  Reply<Process> process;
};

// All of this node that this user may look for, by pid; each is asked who it is, for so long at
// most. Stale sockets and those of others are among them, with their failure. Errors: what
// FolderProblem says of RAILHOP_ADMIN_DIR, if that is set.
Reply<std::vector<FoundProcess>> FindProcesses(int64_t timeout_ns = 1'000'000'000);

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_CLIENT_H_
