// Messages between processes, as the driver sees them: one session for each peer, whatever carries
// it. SessionHub does it over TCP (and over a probe's queue pair when no TCP path is left), the
// simulator over its own network.
#ifndef RAILHOP_CC_CONTROL_CHANNEL_H_
#define RAILHOP_CC_CONTROL_CHANNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/control/handle.h"
#include "cc/control/socket_address.h"
#include "cc/engine/ids.h"
#include "cc/engine/messages.h"

namespace railhop::control {

struct ChannelEvent {
  enum class Kind : uint8_t {
    kMessage,
    kUp,      // a session is there; what was sent before it may be lost
    kDown,    // it is lost (not death)
    kDead,    // refused or closed on all known addresses, or another instance is there
    kSilent,  // nothing was heard for the heartbeat's bound on any carrier
  };
  Kind kind = Kind::kMessage;
  engine::InstanceId peer = 0;
  engine::Message message;  // kMessage
  std::string text;         // why, for a person
};

// One thread.
class Channel {
 public:
  virtual ~Channel() = default;

  // A connection with this peer exists: its secret (from NCCL's handle) may authenticate a session.
  // The first one starts the session. The peer may be this process itself.
  virtual void Add(engine::InstanceId peer, engine::ConnectionId connection, const Secret& secret,
                   const std::vector<SocketAddress>& addresses) = 0;
  // The last one gone: Goodbye is said and the session ends.
  virtual void Remove(engine::InstanceId peer, engine::ConnectionId connection) = 0;

  // Queued in order, never waits. Without a session it is lost: false.
  virtual bool Send(engine::InstanceId peer, const engine::Message& message) = 0;
  virtual bool IsUp(engine::InstanceId peer) const = 0;

  // Sends what is queued, takes what has come.
  virtual std::vector<ChannelEvent> Poll(int64_t now_ns) = 0;
  // When Poll is wanted though nothing comes in.
  virtual int64_t next_due() const = 0;
  // Readable when Poll has work; -1 if there is none.
  virtual int wait_fd() const = 0;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_CHANNEL_H_
