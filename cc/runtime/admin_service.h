// The admin API on a unix socket: one thread, which takes requests and gives the desk's answers.
//
// It survives any bytes. A client that is slow, dead or silent holds up nobody: nothing here waits
// for a single one, and what cannot be sent waits in its own buffer, one answer at most. Only the
// user and root are served (SO_PEERCRED; the file's mode says the same).
//
// The hard case is fork: a child has the same descriptors, and as long as it holds them a socket
// whose process has ended still looks alive. So the child closes them at once.
#ifndef RAILHOP_CC_RUNTIME_ADMIN_SERVICE_H_
#define RAILHOP_CC_RUNTIME_ADMIN_SERVICE_H_

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/admin/requests.h"
#include "cc/runtime/admin_desk.h"

namespace railhop::runtime {

class AdminService {
 public:
  // Clients at once. One more takes the place of one that is idle, or is told that it is too many.
  static constexpr int kClientsMax = 32;

  // How long those that follow the events are waited for at the end, to hear the last of them.
  static constexpr int64_t kLastEventsNs = 200'000'000;

  // Makes <pid>.sock in the first of these directories that can be used, mode 0600, in place of
  // what an earlier process of this number has left there; starts the thread ("railhop-admin").
  // `desk` outlives it. Errors: Unavailable (none can be used: says why, of each).
  static absl::StatusOr<std::unique_ptr<AdminService>> Start(
      AdminDesk* desk, const std::vector<std::string>& directories,
      int64_t last_events_ns = kLastEventsNs);
  // Ends the thread, removes the socket, and its directory if it is empty and was made here. Who
  // follows the events, and has asked not long ago, may first ask until it has heard the last.
  ~AdminService();
  AdminService(const AdminService&) = delete;
  AdminService& operator=(const AdminService&) = delete;

  const std::string& path() const { return path_; }

 private:
  struct Client {
    int fd = -1;
    std::string in;
    std::string out;
    size_t sent = 0;
    bool allowed = false;
    bool closing = false;  // once `out` is sent
    bool asked = false;    // a whole request has come
    int64_t active_at = 0;
    // An events request that waits; wait_until 0 = none.
    admin::GetEvents waits_for;
    int64_t wait_until = 0;
    bool follows = false;  // has waited for events
  };

  AdminService(AdminDesk* desk, int64_t last_events_ns);
  absl::Status Bind(const std::string& directory);
  void Run();
  void Wake() const;
  int NextTimeoutMs(int64_t now) const;
  void Accept(int64_t now);
  bool MakeRoom(int64_t now);
  static void TurnAway(int fd);
  void TellTheLast();
  static pollfd PollOf(const Client& client);
  // False: it is over.
  bool Serve(Client* client, short ready, int64_t now);
  bool Read(Client* client, int64_t now);
  bool Write(Client* client, int64_t now);
  static bool HasRequest(const Client& client);
  bool TakeRequest(Client* client, int64_t now);
  void TakeEvents(Client* client, bool over, int64_t now);
  void Reply(Client* client, const admin::Response& response);
  void Drop(size_t index);

  AdminDesk* const desk_;
  const int64_t last_events_ns_;
  const pid_t owner_;
  std::string path_;
  std::string made_directory_;  // "" = it was there
  int listener_ = -1;
  int wake_ = -1;
  std::atomic<bool> stopping_ = false;
  std::vector<Client> clients_;  // the thread's
  std::thread thread_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_ADMIN_SERVICE_H_
