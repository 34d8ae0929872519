#include "cc/netperf/testdata/loopback.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "cc/base/clock.h"

namespace railhop::netperf::loopback {
namespace {

constexpr int kSuccess = 0;
constexpr int kSystemError = 2;
constexpr int kInternalError = 3;
constexpr int kRemoteError = 6;
constexpr size_t kChunkBytes = 16384;
constexpr int64_t kPauseNs = 500'000'000;

// From the receiver: a group of receives is there.
struct Announcement {
  int n = 0;
  int tags[kGroupMax] = {};
  size_t sizes[kGroupMax] = {};
};

// From the sender, with bytes behind it.
struct Chunk {
  uint64_t group = 0;
  int part = 0;
  size_t size = 0;  // of the message
  size_t offset = 0;
};

struct Name {
  const char* word;
  Fault fault;
};
constexpr Name kNames[] = {
    {"corrupt", Fault::kCorrupt},
    {"short", Fault::kShort},
    {"behind", Fault::kBehind},
    {"before", Fault::kBefore},
    {"duplicate", Fault::kDuplicate},
    {"late", Fault::kLate},
    {"early_done", Fault::kEarlyDone},
    {"error", Fault::kError},
    {"hang", Fault::kHang},
    {"stuck", Fault::kStuck},
    {"die", Fault::kDie},
    {"pause", Fault::kPause},
    {"init", Fault::kInit},
    {"no_device", Fault::kNoDevice},
    {"close", Fault::kClose},
};

Fault TheFault() {
  const char* word = getenv("LOOPBACK_FAULT");
  if (word == nullptr) return Fault::kNone;
  for (const Name& name : kNames) {
    if (strcmp(name.word, word) == 0) return name.fault;
  }
  fprintf(stderr, "LOOPBACK_FAULT=%s: no such fault\n", word);
  abort();
}

uint64_t FaultGroup() {
  const char* text = getenv("LOOPBACK_AT");
  return text == nullptr ? 5 : strtoull(text, nullptr, 10);
}

bool Hits(Fault fault, uint64_t group) { return group == FaultGroup() && TheFault() == fault; }

}  // namespace

struct Listener {
  int socket = -1;
};

struct Request {
  Connection* connection = nullptr;
  bool is_send = false;
  uint64_t group = 0;
  // A send.
  const uint8_t* data = nullptr;
  int part = 0;
  size_t size = 0;
  size_t sent = 0;
  bool empty_sent = false;
  // A receive.
  int n = 0;
  uint8_t* places[kGroupMax] = {};
  size_t room[kGroupMax] = {};
  size_t sizes[kGroupMax] = {};
  size_t arrived[kGroupMax] = {};
  bool seen[kGroupMax] = {};
  int64_t complete_ns = 0;
};

struct Connection {
  int socket = -1;
  uint64_t next_group = 0;
  // Of the sender: groups announced, with the parts not yet sent.
  std::deque<Announcement> announced;
  std::vector<bool> used;
  Request* held = nullptr;  // kEarlyDone: told to be done, not sent
  // Of the receiver, in order.
  std::deque<Request*> posted;
  std::vector<uint8_t> last;  // kDuplicate: the bytes of the message before
};

namespace {

bool Readable(int socket, void* data, size_t size, ssize_t* got) {
  *got = recv(socket, data, size, MSG_DONTWAIT);
  return *got > 0;
}

// The bytes of a send, as far as the socket takes them.
int Push(Request* request) {
  while (request->sent < request->size || !request->empty_sent) {
    uint8_t packet[sizeof(Chunk) + kChunkBytes];
    const size_t bytes = std::min(kChunkBytes, request->size - request->sent);
    const Chunk chunk{request->group, request->part, request->size, request->sent};
    memcpy(packet, &chunk, sizeof(chunk));
    memcpy(packet + sizeof(chunk), request->data + request->sent, bytes);
    if (send(request->connection->socket, packet, sizeof(chunk) + bytes,
             MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      return errno == EAGAIN ? kSuccess : kRemoteError;
    }
    request->sent += bytes;
    request->empty_sent = true;
  }
  return kSuccess;
}

bool Pushed(const Request* request) {
  return request->empty_sent && request->sent == request->size;
}

void Place(Connection* connection, const Chunk& chunk, const uint8_t* bytes, size_t size) {
  for (Request* request : connection->posted) {
    if (request->group != chunk.group || Hits(Fault::kLate, chunk.group)) continue;
    memcpy(request->places[chunk.part] + chunk.offset, bytes, size);
    request->sizes[chunk.part] = chunk.size;
    request->arrived[chunk.part] += size;
    request->seen[chunk.part] = true;
  }
}

// Takes what has come for any receive of the connection.
int Pull(Connection* connection) {
  uint8_t packet[sizeof(Chunk) + kChunkBytes];
  ssize_t got = 0;
  while (Readable(connection->socket, packet, sizeof(packet), &got)) {
    Chunk chunk;
    memcpy(&chunk, packet, sizeof(chunk));
    Place(connection, chunk, packet + sizeof(chunk), static_cast<size_t>(got) - sizeof(chunk));
  }
  return got < 0 && errno == EAGAIN ? kSuccess : kRemoteError;
}

bool Complete(const Request* request) {
  for (int part = 0; part < request->n; ++part) {
    if (!request->seen[part] || request->arrived[part] < request->sizes[part]) return false;
  }
  return true;
}

// Breaks what came in a receive.
void Spoil(Request* request) {
  uint8_t* place = request->places[0];
  const size_t size = request->sizes[0];
  if (Hits(Fault::kCorrupt, request->group)) place[size / 2] ^= 1;
  if (Hits(Fault::kShort, request->group)) --request->sizes[0];
  if (Hits(Fault::kBehind, request->group)) place[request->room[0] + 3] ^= 1;
  if (Hits(Fault::kBefore, request->group)) place[-3] ^= 1;
  std::vector<uint8_t>& last = request->connection->last;
  if (Hits(Fault::kDuplicate, request->group)) memcpy(place, last.data(), last.size());
  if (TheFault() == Fault::kDuplicate) last.assign(place, place + size);
}

int TestSend(Request* request, int* done, int* sizes) {
  if (Hits(Fault::kEarlyDone, request->group) && request->size > 0) {
    // The caller may overwrite its buffer from now on; the bytes go at the next call.
    request->connection->held = request;
    *done = 1;
    return kSuccess;
  }
  Connection* connection = request->connection;
  if (connection->held != nullptr) {
    const int result = Push(connection->held);
    if (result != kSuccess) return result;
    if (!Pushed(connection->held)) return kSuccess;
    delete connection->held;
    connection->held = nullptr;
  }
  const int result = Push(request);
  if (result != kSuccess || !Pushed(request)) return result;
  *done = 1;
  if (sizes != nullptr) sizes[0] = static_cast<int>(request->size);
  delete request;
  return kSuccess;
}

// Whether the receive may be told to be done.
int Obstacle(Request* request, bool* wait) {
  *wait = false;
  if (Hits(Fault::kError, request->group)) return kRemoteError;
  if (Hits(Fault::kDie, request->group)) _exit(3);
  if (Hits(Fault::kHang, request->group)) *wait = true;
  while (Hits(Fault::kStuck, request->group)) pause();
  if (Hits(Fault::kPause, request->group)) {
    if (request->complete_ns == 0) request->complete_ns = RealClock().NowNs();
    *wait = RealClock().NowNs() - request->complete_ns < kPauseNs;
  }
  return kSuccess;
}

int TestReceive(Request* request, int* done, int* sizes) {
  Connection* connection = request->connection;
  const bool late = Hits(Fault::kLate, request->group);
  const int result = Pull(connection);
  if (!Complete(request) && !late) return result;
  bool wait = false;
  const int obstacle = Obstacle(request, &wait);
  if (obstacle != kSuccess || wait) return obstacle;
  if (late) {
    for (int part = 0; part < request->n; ++part) request->sizes[part] = request->room[part];
  } else {
    Spoil(request);
  }
  *done = 1;
  for (int part = 0; part < request->n && sizes != nullptr; ++part) {
    sizes[part] = static_cast<int>(request->sizes[part]);
  }
  connection->posted.pop_front();
  delete request;
  return kSuccess;
}

// What is in a handle.
struct Address {
  socklen_t size = 0;
  char bytes[32] = {};  // of a sockaddr_un with an abstract name: nothing is left behind
};

}  // namespace

int Init() { return TheFault() == Fault::kInit ? kSystemError : kSuccess; }

int Devices(int* count) {
  *count = TheFault() == Fault::kNoDevice ? 0 : kDevices;
  return kSuccess;
}

int Listen(void* handle, Listener** listener) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // Without a name the kernel gives an abstract one that nobody has: process numbers may be those
  // of another namespace.
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof(sa_family_t);
  bool good = bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  size = sizeof(address);
  good = good && listen(fd, 16) == 0 &&
         getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!good) {
    close(fd);
    return kSystemError;
  }
  Address where;
  where.size = size;
  memcpy(where.bytes, &address, size);
  memcpy(handle, &where, sizeof(where));
  *listener = new Listener{fd};
  return kSuccess;
}

int Connect(void* handle, Connection** connection) {
  *connection = nullptr;
  Address where;
  memcpy(&where, handle, sizeof(where));
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(where.bytes), where.size) != 0) {
    const bool busy = errno == EAGAIN;
    close(fd);
    return busy ? kSuccess : kRemoteError;
  }
  *connection = new Connection;
  (*connection)->socket = fd;
  return kSuccess;
}

int Accept(Listener* listener, Connection** connection) {
  *connection = nullptr;
  const int fd = accept4(listener->socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return errno == EAGAIN ? kSuccess : kSystemError;
  *connection = new Connection;
  (*connection)->socket = fd;
  return kSuccess;
}

int Send(Connection* connection, const void* data, size_t size, int tag, Request** request) {
  *request = nullptr;
  Announcement announcement;
  ssize_t got = 0;
  while (Readable(connection->socket, &announcement, sizeof(announcement), &got)) {
    connection->announced.push_back(announcement);
  }
  if (got == 0) return kRemoteError;
  if (connection->announced.empty()) return kSuccess;
  const Announcement& next = connection->announced.front();
  connection->used.resize(static_cast<size_t>(next.n));
  for (int part = 0; part < next.n; ++part) {
    if (next.tags[part] != tag || connection->used[static_cast<size_t>(part)]) continue;
    if (size > next.sizes[part]) return kInternalError;
    connection->used[static_cast<size_t>(part)] = true;
    auto* made = new Request;
    made->connection = connection;
    made->is_send = true;
    made->group = connection->next_group;
    made->data = static_cast<const uint8_t*>(data);
    made->part = part;
    made->size = size;
    *request = made;
    if (TheFault() != Fault::kEarlyDone && Push(made) != kSuccess) return kRemoteError;
    break;
  }
  if (std::find(connection->used.begin(), connection->used.end(), false) ==
      connection->used.end()) {
    connection->announced.pop_front();
    connection->used.clear();
    ++connection->next_group;
  }
  return kSuccess;
}

int Receive(Connection* connection, int n, void** data, const size_t* sizes, const int* tags,
            Request** request) {
  *request = nullptr;
  Announcement announcement;
  announcement.n = n;
  auto* made = new Request;
  made->connection = connection;
  made->group = connection->next_group;
  made->n = n;
  for (int part = 0; part < n; ++part) {
    announcement.tags[part] = tags[part];
    announcement.sizes[part] = sizes[part];
    made->places[part] = static_cast<uint8_t*>(data[part]);
    made->room[part] = sizes[part];
  }
  if (send(connection->socket, &announcement, sizeof(announcement), MSG_DONTWAIT | MSG_NOSIGNAL) <
      0) {
    delete made;
    return errno == EAGAIN ? kSuccess : kRemoteError;
  }
  ++connection->next_group;
  connection->posted.push_back(made);
  *request = made;
  return kSuccess;
}

int Test(Request* request, int* done, int* sizes) {
  *done = 0;
  return request->is_send ? TestSend(request, done, sizes) : TestReceive(request, done, sizes);
}

int Close(Connection* connection, bool receives) {
  for (Request* request : connection->posted) delete request;
  delete connection->held;
  close(connection->socket);
  delete connection;
  return receives && TheFault() == Fault::kClose ? kInternalError : kSuccess;
}

int CloseListener(Listener* listener) {
  close(listener->socket);
  delete listener;
  return kSuccess;
}

}  // namespace railhop::netperf::loopback
