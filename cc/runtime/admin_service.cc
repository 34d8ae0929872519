#include "cc/runtime/admin_service.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/admin/codec.h"
#include "cc/admin/frame.h"
#include "cc/admin/sockets.h"
#include "cc/base/blocked_signals.h"
#include "cc/base/clock.h"
#include "cc/base/status_macros.h"
#include "cc/base/units.h"
#include "cc/runtime/stale_sockets.h"

namespace railhop::runtime {
namespace {

constexpr size_t kLengthBytes = admin::kLengthBytes;
constexpr int kBacklog = 64;
// A client that takes nothing of an answer for so long is dropped, or says nothing more of a
// question that it has begun; so is one that has asked nothing.
constexpr int64_t kStuckNs = 10 * kNsPerSecond;
constexpr int64_t kIdleNs = 600 * kNsPerSecond;
constexpr int kLastEventsPollMs = 10;
// So many times the time that they are waited for after their last word, those that follow are not
// taken to do so any more.
constexpr int64_t kFollowTimes = 5;
// While no more clients are let in: the next look.
constexpr int kFullPauseMs = 100;
constexpr int kBindTries = 3;
constexpr size_t kReadBytes = 16 << 10;

int64_t NowNs() { return RealClock().NowNs(); }

// ---- Descriptors that a forked child must not keep.

constexpr size_t kForkFds = AdminService::kClientsMax + 8;
std::array<std::atomic<int>, kForkFds>& ForkFds() {
  static auto* const fds = [] {
    auto* const made = new std::array<std::atomic<int>, kForkFds>;
    for (std::atomic<int>& fd : *made) fd.store(-1);
    pthread_atfork(nullptr, nullptr, [] {
      for (std::atomic<int>& fd : ForkFds()) {
        const int open = fd.exchange(-1);
        if (open >= 0) close(open);
      }
    });
    return made;
  }();
  return *fds;
}

// From the moment that it is there; false: no room.
bool Guard(int fd) {
  for (std::atomic<int>& place : ForkFds()) {
    int none = -1;
    if (place.compare_exchange_strong(none, fd)) return true;
  }
  return false;
}

void CloseGuarded(int fd) {
  if (fd < 0) return;
  for (std::atomic<int>& place : ForkFds()) {
    int mine = fd;
    if (place.compare_exchange_strong(mine, -1)) break;
  }
  close(fd);
}

// ---- The directory.

absl::Status Unusable(const std::string& directory, const std::string& why) {
  return absl::UnavailableError(absl::StrCat(directory, ": ", why));
}

// Makes it if need be; *made says whether. Errors: Unavailable.
absl::Status PrepareDirectory(const std::string& directory, bool* made) {
  *made = mkdir(directory.c_str(), 0700) == 0;
  if (!*made && errno != EEXIST) return Unusable(directory, strerror(errno));
  struct stat about = {};
  // Not through a link that somebody else may have put there.
  if (lstat(directory.c_str(), &about) != 0) return Unusable(directory, strerror(errno));
  if (!S_ISDIR(about.st_mode)) return Unusable(directory, "is no directory");
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return Unusable(directory, absl::StrCat("belongs to another user (", about.st_uid, ")"));
  }
  if ((about.st_mode & 022) != 0) return Unusable(directory, "others may write there");
  return absl::OkStatus();
}

// Whether the socket of this process's number that is there is an earlier process's, which has
// gone.
absl::Status MayReplace(const std::string& directory, const std::string& path,
                        const sockaddr_un& address) {
  const int error = ErrorOfConnecting(address);
  if (error == 0) {
    return Unusable(directory, absl::StrCat("another process answers at ", path,
                                            ": containers that share this directory count "
                                            "their processes alike; set RAILHOP_ADMIN_DIR"));
  }
  if (error != ECONNREFUSED) {
    return Unusable(directory, absl::StrCat("whether anybody answers at ", path,
                                            " cannot be told: ", strerror(error)));
  }
  if (IsOfThisNode(FileSystemOf(directory))) return absl::OkStatus();
  return Unusable(directory, absl::StrCat(path,
                                          " may be that of a process of another node: set "
                                          "RAILHOP_ADMIN_DIR to a directory of this node"));
}

}  // namespace

AdminService::AdminService(AdminDesk* desk, int64_t last_events_ns)
    : desk_(desk),
      last_events_ns_(last_events_ns),
      owner_(getpid()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

absl::StatusOr<std::unique_ptr<AdminService>> AdminService::Start(
    AdminDesk* desk, const std::vector<std::string>& directories, int64_t last_events_ns) {
  std::unique_ptr<AdminService> service(new AdminService(desk, last_events_ns));
  std::vector<std::string> refusals;
  for (const std::string& directory : directories) {
    absl::Status bound;
    for (int i = 0; i < kBindTries; ++i) {
      bound = service->Bind(directory);
      if (bound.ok() || !absl::IsNotFound(bound)) break;
    }
    if (bound.ok()) break;
    refusals.emplace_back(bound.message());
  }
  if (service->listener_ < 0) return absl::UnavailableError(absl::StrJoin(refusals, "; "));
  AdminService* const raw = service.get();
  desk->SetWaker([raw] { raw->Wake(); });
  {
    const BlockedSignals blocked;
    service->thread_ = std::thread([raw] { raw->Run(); });
  }
  pthread_setname_np(service->thread_.native_handle(), "railhop-admin");
  return service;
}

// Errors: Unavailable, NotFound (the directory has gone in between: again).
absl::Status AdminService::Bind(const std::string& directory) {
  bool made = false;
  RAILHOP_RETURN_IF_ERROR(PrepareDirectory(directory, &made));
  const std::string path = admin::SocketPath(directory, owner_);
  const admin::SocketName name(path);
  if (name.short_path().empty()) return Unusable(directory, "the path is too long for a socket");
  const sockaddr_un address = AddressOf(name);
  struct stat about = {};
  if (lstat(path.c_str(), &about) == 0) {
    RAILHOP_RETURN_IF_ERROR(MayReplace(directory, path, address));
    unlink(path.c_str());
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Unusable(directory, strerror(errno));
  if (!Guard(fd)) {
    close(fd);
    return Unusable(directory, "too many admin sockets in this process");
  }
  int error = 0;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    error = errno;
  } else if (chmod(path.c_str(), 0600) != 0 || listen(fd, kBacklog) != 0) {
    // Nobody gets in before listen.
    error = errno;
    unlink(path.c_str());
  }
  if (error != 0) {
    CloseGuarded(fd);
    return error == ENOENT ? absl::NotFoundError(absl::StrCat(directory, " has gone"))
                           : Unusable(directory, strerror(error));
  }
  listener_ = fd;
  path_ = path;
  if (made) made_directory_ = directory;
  return absl::OkStatus();
}

AdminService::~AdminService() {
  if (getpid() != owner_) {
    // A forked child: no thread, and neither the socket nor its descriptors are its own.
    if (thread_.joinable()) thread_.detach();
    if (wake_ >= 0) close(wake_);
    return;
  }
  desk_->SetWaker(nullptr);
  // Before any connection is closed: who then calls again finds nothing, and knows that this is the
  // end and no fault.
  if (listener_ >= 0) unlink(path_.c_str());
  stopping_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
  for (const Client& client : clients_) {
    if (client.wait_until != 0) desk_->EndWaiting();
    CloseGuarded(client.fd);
  }
  CloseGuarded(listener_);
  if (!made_directory_.empty()) rmdir(made_directory_.c_str());
  if (wake_ >= 0) close(wake_);
}

void AdminService::Wake() const {
  const uint64_t one = 1;
  // Full means that it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

int AdminService::NextTimeoutMs(int64_t now) const {
  int64_t due = now + kNsPerSecond;
  for (const Client& client : clients_) {
    if (client.wait_until != 0) due = std::min(due, client.wait_until);
    if (HasRequest(client)) return 0;
  }
  return static_cast<int>(std::max<int64_t>(due - now, 0) / kNsPerMs + 1);
}

void AdminService::Run() {
  const std::string directory = path_.substr(0, path_.rfind('/'));
  SweepStaleSockets(directory, FileSystemOf(directory));
  std::vector<pollfd> fds;
  while (!stopping_) {
    fds.assign({{.fd = wake_, .events = POLLIN, .revents = 0},
                {.fd = listener_, .events = static_cast<short>(POLLIN), .revents = 0}});
    for (const Client& client : clients_) fds.push_back(PollOf(client));
    poll(fds.data(), fds.size(), NextTimeoutMs(NowNs()));
    uint64_t count;
    [[maybe_unused]] const ssize_t taken = read(wake_, &count, sizeof(count));
    const int64_t now = NowNs();
    const size_t polled = fds.size() - 2;
    for (size_t i = polled; i-- > 0;) {
      Client& client = clients_[i];
      bool lives = Serve(&client, fds[i + 2].revents, now);
      const int64_t bound = client.out.empty() && client.in.empty() ? kIdleNs : kStuckNs;
      if (client.wait_until == 0 && now - client.active_at > bound) lives = false;
      if (!lives) Drop(i);
    }
    if (fds[1].revents != 0) Accept(now);
  }
  TellTheLast();
}

// Events may come and the process end while one that follows is between an answer and its next
// question: it may ask until it has heard all, for a moment. The others are let go at once.
void AdminService::TellTheLast() {
  const int64_t deadline = NowNs() + last_events_ns_;
  std::vector<pollfd> fds;
  while (true) {
    const int64_t now = NowNs();
    for (size_t i = clients_.size(); i-- > 0;) {
      Client& client = clients_[i];
      const short ready = i < fds.size() ? fds[i].revents : static_cast<short>(0);
      const bool follows =
          client.follows &&
          (client.wait_until != 0 || now - client.active_at < kFollowTimes * last_events_ns_);
      // One that waits after that has heard all.
      if (!follows || !Serve(&client, ready, now) || client.wait_until != 0) Drop(i);
    }
    if (clients_.empty() || now >= deadline) return;
    fds.clear();
    for (const Client& client : clients_) fds.push_back(PollOf(client));
    poll(fds.data(), fds.size(), kLastEventsPollMs);
  }
}

// Who has not taken its answer is not listened to, nor who has asked more already.
pollfd AdminService::PollOf(const Client& client) {
  const short events = !client.out.empty() ? POLLOUT : HasRequest(client) ? 0 : POLLIN;
  return {.fd = client.fd, .events = events, .revents = 0};
}

bool AdminService::Serve(Client* client, short ready, int64_t now) {
  if (ready != 0 && !(client->out.empty() ? Read(client, now) : Write(client, now))) return false;
  // One for each in turn.
  if (HasRequest(*client) && !TakeRequest(client, now)) return false;
  if (client->wait_until == 0) return true;
  TakeEvents(client, now >= client->wait_until, now);
  return client->out.empty() || Write(client, now);
}

// One place at least: of those that have begun a question and not ended it, else those that have
// never asked, else those that are idle; the oldest. Those that wait for events keep theirs, and so
// does who was answered just now and is likely to ask again: were they thrown out, they would come
// again and throw out others.
bool AdminService::MakeRoom(int64_t now) {
  if (clients_.size() < static_cast<size_t>(kClientsMax)) return true;
  size_t victim = clients_.size();
  std::pair<int, int64_t> best;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = clients_[i];
    if (!client.out.empty() || client.wait_until != 0 || HasRequest(client)) continue;
    const int rank = !client.in.empty() ? 0 : client.asked ? 2 : 1;
    if (rank == 2 && now - client.active_at < kNsPerSecond) continue;
    const std::pair<int, int64_t> order(rank, client.active_at);
    if (victim == clients_.size() || order < best) {
      victim = i;
      best = order;
    }
  }
  if (victim == clients_.size()) return false;
  Drop(victim);
  return true;
}

// Says so to one that is not let in: a new socket has room for it.
void AdminService::TurnAway(int fd) {
  const std::string answer = admin::Framed(admin::EncodeResponse(
      admin::Failure{.code = admin::ErrorCode::kRefused,
                     .message = absl::StrCat("too many clients: ", kClientsMax,
                                             " are served at once, and all of these ask or wait "
                                             "for events; try again")}));
  [[maybe_unused]] const ssize_t sent = send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  close(fd);
}

void AdminService::Accept(int64_t now) {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // No descriptors left: not again and again at once.
    if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, kFullPauseMs);
    return;
  }
  if (!MakeRoom(now) || !Guard(fd)) {
    TurnAway(fd);
    return;
  }
  Client client;
  client.fd = fd;
  client.active_at = now;
  ucred peer = {};
  socklen_t size = sizeof peer;
  client.allowed = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                   (peer.uid == geteuid() || peer.uid == 0);
  clients_.push_back(std::move(client));
  if (clients_.back().allowed) return;
  Reply(&clients_.back(),
        admin::Failure{.code = admin::ErrorCode::kPermission,
                       .message = absl::StrCat("this job belongs to user ", geteuid(),
                                               ": only that user and root may ask it")});
  clients_.back().closing = true;
  if (!Write(&clients_.back(), now)) Drop(clients_.size() - 1);
}

void AdminService::Drop(size_t index) {
  if (clients_[index].wait_until != 0) desk_->EndWaiting();
  CloseGuarded(clients_[index].fd);
  clients_.erase(clients_.begin() + static_cast<ptrdiff_t>(index));
}

bool AdminService::Read(Client* client, int64_t now) {
  char bytes[kReadBytes];
  const ssize_t n = recv(client->fd, bytes, sizeof bytes, 0);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  client->active_at = now;
  client->in.append(bytes, static_cast<size_t>(n));
  // One that has asked for events and waits says nothing more.
  return client->wait_until == 0 || client->in.size() <= admin::kRequestBytesMax;
}

// Whether the next request is there, whole or too long to be taken, and may be answered now.
bool AdminService::HasRequest(const Client& client) {
  if (!client.out.empty() || client.wait_until != 0 || client.in.size() < kLengthBytes) {
    return false;
  }
  const size_t length = admin::LengthAt(client.in);
  return length > admin::kRequestBytesMax || client.in.size() >= kLengthBytes + length;
}

bool AdminService::TakeRequest(Client* client, int64_t now) {
  client->asked = true;
  const size_t length = admin::LengthAt(client->in);
  if (length > admin::kRequestBytesMax) {
    Reply(client, admin::Failure{.code = admin::ErrorCode::kInvalid,
                                 .message = "the request is too long: what asks is no client of "
                                            "the admin API"});
    client->closing = true;
    return Write(client, now);
  }
  const admin::Reply<admin::Request> request =
      admin::DecodeRequest(std::string_view(client->in).substr(kLengthBytes, length));
  client->in.erase(0, kLengthBytes + length);
  if (!request.ok()) {
    Reply(client, request.failure());
    return Write(client, now);
  }
  const auto* const events = std::get_if<admin::GetEvents>(&*request);
  if (events != nullptr && events->wait_ns > 0) {
    client->waits_for = *events;
    client->wait_until = now + std::min(events->wait_ns, admin::kWaitNsMax);
    client->follows = true;
    desk_->BeginWaiting();
    return true;  // Run looks at once
  }
  Reply(client, desk_->Answer(*request));
  return Write(client, now);
}

void AdminService::TakeEvents(Client* client, bool over, int64_t now) {
  const admin::Response response = desk_->Answer(client->waits_for);
  const auto* const list = std::get_if<admin::EventList>(&response);
  if (list != nullptr && list->events.empty() && !over) return;
  client->wait_until = 0;
  client->active_at = now;
  desk_->EndWaiting();
  Reply(client, response);
}

void AdminService::Reply(Client* client, const admin::Response& response) {
  client->out = admin::Framed(admin::EncodeResponse(response));
  client->sent = 0;
}

bool AdminService::Write(Client* client, int64_t now) {
  while (client->sent < client->out.size()) {
    const ssize_t n = send(client->fd, client->out.data() + client->sent,
                           client->out.size() - client->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    client->sent += static_cast<size_t>(n);
    client->active_at = now;
  }
  client->out.clear();
  client->sent = 0;
  return !client->closing;
}

}  // namespace railhop::runtime
