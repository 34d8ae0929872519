#include "cc/sim/verbs_table.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cc/sim/verbs_objects.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kIdleNs = 1'000'000;

World* g_world = nullptr;
Host* g_host = nullptr;
VerbsActors* g_actors = nullptr;

}  // namespace

World* VerbsWorld() { return g_world; }
Host* VerbsHost() { return g_host; }
VerbsActors* Actors() { return g_actors; }

void SetVerbsActors(VerbsActors* actors) { g_actors = actors; }
Context* CoreOf(ibv_context* context) { return Of(context)->core; }
Nic* NicOf(ibv_context* context) { return Of(context)->core->nic(); }

void SetVerbsWorld(World* world, Host* host) {
  g_world = world;
  g_host = host;
}

uint64_t VerbsNowNs() { return g_world->loop().now_ns(); }

void VerbsIdle() {
  EventLoop& loop = g_world->loop();
  loop.RunUntil(std::min(loop.next_ns(), loop.now_ns() + kIdleNs));
}

int NewEventFd() { return g_actors != nullptr ? -1 : eventfd(0, EFD_CLOEXEC); }

void SetReadable(int fd, bool readable) {
  if (fd < 0) return;
  pollfd state = {fd, POLLIN, 0};
  const bool is_readable = poll(&state, 1, 0) == 1;
  if (is_readable == readable) return;
  if (readable) {
    (void)eventfd_write(fd, 1);
  } else {
    eventfd_t count = 0;
    (void)eventfd_read(fd, &count);
  }
}

bool Blocks(int fd) { return fd >= 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0; }
void SetAgain() { errno = EAGAIN; }

const VerbsFunctions& SimVerbs() {
  static const VerbsFunctions table = [] {
    VerbsFunctions made;
    FillDeviceVerbs(&made);
    FillQueueVerbs(&made);
    FillQueuePairVerbs(&made);
    return made;
  }();
  return table;
}

}  // namespace railhop::sim
