// The listening end of the handshake: a TCP port, and those who have called.
//
// Anybody may call a port. Until a caller has proved by a whole, authentic HELLO that it holds the
// handle, it is a stranger: it costs one descriptor and a few hundred bytes, has ten seconds, and
// whatever it does is counted and dropped without a word. A recorded HELLO is known by its nonce.
#ifndef RAILHOP_CC_RUNTIME_LISTENER_H_
#define RAILHOP_CC_RUNTIME_LISTENER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/control/frame_channel.h"
#include "cc/control/handle.h"
#include "cc/runtime/handshake_rules.h"
#include "cc/runtime/lane_builder.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

// Callers that came to nothing.
struct ListenerCounters {
  uint64_t junk = 0;         // said something that is no frame, or not authentic
  uint64_t silent = 0;       // did not say HELLO in time
  uint64_t gone = 0;         // left before HELLO was whole
  uint64_t replayed = 0;     // said a HELLO that has been said before
  uint64_t crowded_out = 0;  // dropped for newer strangers
};

// Not thread-safe.
class Listener {
 public:
  // `identity` and `device` outlive it. Errors: Internal.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(const Identity& identity,
                                                          const NetDevice& device,
                                                          const control::SocketAddress& address);

  ~Listener();

  // What the peers need.
  control::Handle MakeHandle() const;

  // Somebody who has called. Opaque outside.
  struct Caller {
    enum class State : uint8_t {
      kStranger,
      kRaising,   // HELLO is there, our queue pairs are on their way to RTS
      kAnswered,  // REPLY is out, READY is awaited
    };

    control::FrameChannel channel;
    State state = State::kStranger;
    int64_t deadline_ns = 0;
    std::unique_ptr<LaneBuilder> builder;
    control::EndDescription local;
    control::EndDescription peer;
  };

  // One step for every caller. A caller whose connection is complete, or null.
  // Errors, each told once: Unavailable (an authentic peer went away, refused, has another version;
  // or NCCL's own transport has called), Internal (local).
  absl::StatusOr<std::unique_ptr<Caller>> Step(int64_t now_ns);

  // The connection of a caller that Step gave, in place at `storage`, and a line for the log.
  static absl::StatusOr<datapath::RecvConnection*> Finish(Caller* caller, void* storage);
  static std::string Description(const Caller& caller);
  static const control::EndDescription& Peer(const Caller& caller);
  static const control::EndDescription& Local(const Caller& caller);
  // The same as the connecting end's ConnectAttempt::connection_id and secret.
  static uint64_t ConnectionId(const Caller& caller);
  const control::Secret& secret() const { return secret_; }

  const ListenerCounters& counters() const { return counters_; }

 private:
  Listener(const Identity& identity, const NetDevice& device);

  enum class Verdict : uint8_t { kWait, kDrop, kComplete };

  void AcceptCallers(int64_t now_ns);
  absl::StatusOr<Verdict> StepCaller(Caller* caller, int64_t now_ns);
  absl::StatusOr<Verdict> StepStranger(Caller* caller, int64_t now_ns);
  absl::StatusOr<Verdict> TakeHello(Caller* caller, int64_t now_ns);
  absl::Status Answer(Caller* caller, int64_t now_ns);
  absl::StatusOr<Verdict> StepRaising(Caller* caller, int64_t now_ns);
  absl::StatusOr<Verdict> StepAnswered(Caller* caller, int64_t now_ns);
  // Tells the caller and returns the error.
  absl::Status Refuse(Caller* caller, absl::Status why);

  const Identity& identity_;
  const NetDevice& device_;
  control::TcpSocket socket_;
  uint64_t listener_id_ = 0;
  uint64_t foreign_number_ = 0;
  control::Secret secret_ = {};
  std::vector<std::unique_ptr<Caller>> callers_;  // oldest first
  std::set<control::Nonce> nonces_;               // of every HELLO so far
  ListenerCounters counters_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_LISTENER_H_
