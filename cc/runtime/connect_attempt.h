// The connecting end of the handshake: from NCCL's handle to a sending connection, one step for
// each call of NCCL's connect.
//
//   calling --TCP--> greeting --HELLO sent--> waiting --REPLY--> raising --lanes in RTS, READY
//   sent-->
//
// What goes wrong before the listener has answered (refused, timed out, closed) is tried again
// after a pause, as NCCL does, since ranks start at different times; whoever listens may also take
// minutes to look. Afterwards it ends the attempt.
#ifndef RAILHOP_CC_RUNTIME_CONNECT_ATTEMPT_H_
#define RAILHOP_CC_RUNTIME_CONNECT_ATTEMPT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/control/frame_channel.h"
#include "cc/control/handle.h"
#include "cc/runtime/handshake_rules.h"
#include "cc/runtime/lane_builder.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

// Not thread-safe.
class ConnectAttempt {
 public:
  // All outlive it.
  ConnectAttempt(const Identity& identity, const NetDevice& device, const control::Handle& handle,
                 int traffic_class);

  // true = the lanes are up: call Finish. false = call again.
  // Errors: Unavailable (not reached, gone, refused, another plugin), Internal (local).
  absl::StatusOr<bool> Step(int64_t now_ns);

  // The connection, in place at `storage`.
  datapath::SendConnection* Finish(void* storage);
  // Valid once Step has given true.
  const control::EndDescription& peer() const { return peer_; }
  const control::EndDescription& local() const { return local_; }
  uint64_t connection_id() const { return control::ConnectionIdOf(local_.nonce); }
  const control::Secret& secret() const { return handle_.secret; }
  // For the log.
  std::string Description() const;

 private:
  enum class State : uint8_t { kIdle, kCalling, kGreeting, kWaiting, kRaising, kReady, kForeign };

  absl::StatusOr<bool> StepForeign(int64_t now_ns);
  absl::Status Call(int64_t now_ns);
  absl::Status CallProgress(int64_t now_ns);
  absl::Status Greet();
  absl::Status Await(int64_t now_ns);
  absl::Status TakeReply();
  absl::Status Raise(int64_t now_ns);
  // Pauses before another call, or gives up.
  absl::Status Again(int64_t now_ns, int error_number);
  absl::Status ForeignHandle() const;
  control::Authenticator OutAuth() const;
  std::string Where() const;

  const Identity& identity_;
  const NetDevice& device_;
  const control::Handle handle_;
  const control::HandleKind handle_kind_;
  uint8_t service_level_ = 0;
  uint8_t traffic_class_ = 0;

  State state_ = State::kIdle;
  int failures_ = 0;
  int64_t call_at_ns_ = 0;
  int64_t deadline_ns_ = 0;
  control::FrameChannel channel_;
  std::unique_ptr<LaneBuilder> builder_;
  control::EndDescription local_;
  control::EndDescription peer_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_CONNECT_ATTEMPT_H_
