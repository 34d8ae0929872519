// Who is to blame for an episode: decided by the evidence, named in one line. Pure.
#ifndef RAILHOP_CC_ENGINE_VERDICT_H_
#define RAILHOP_CC_ENGINE_VERDICT_H_

#include <cstdint>
#include <vector>

#include "cc/engine/ids.h"

namespace railhop::engine {

enum class Blame : uint8_t {
  kUnknown = 0,
  kNobody,           // command, drain, fail back
  kLocalPort,        // local NIC or its cable or switch port: the port is not active
  kLocalNic,         // the local device has failed
  kLocalNicOrCable,  // nothing gets through over this local port, to any peer; it reads as active
  kPath,             // one peer, one pair of ports, others of both work
  kRemoteNic,        // nothing gets through to that port of the peer, from any of ours
  kPeerProcess,
  kPeerHost,
  kConfiguration,  // the peer is there, but this pair of ports never worked
};
const char* BlameText(Blame blame);

// What is known of one path when the question is asked.
struct PathEvidence {
  InstanceId peer = 0;
  PathId path;
  bool answers = false;  // a probe came back within the last threshold
  bool ever_answered = false;
  bool known = false;  // it was probed at all
};

struct Evidence {
  InstanceId peer = 0;
  PathId path;  // the one that failed
  Cause cause = Cause::kNone;
  bool local_port_active = true;  // as read
  bool local_device_failed = false;
  bool remote_port_down = false;  // the peer's word
  bool remote_device_failed = false;
  bool peer_said_goodbye = false;
  bool peer_refused = false;  // FIN, refusal or another instance on all its addresses
  bool channel_up = true;
  std::vector<PathEvidence> paths;  // all that this process knows, to all peers
};

Blame Judge(const Evidence& evidence);

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_VERDICT_H_
