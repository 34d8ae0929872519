// One stream with somebody: its frames in both directions, and, once both ends have greeted each
// other, key and counters. Who it is with, and whether it is the session, the owner knows.
#ifndef RAILHOP_CC_CONTROL_SESSION_LINK_H_
#define RAILHOP_CC_CONTROL_SESSION_LINK_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cc/control/byte_stream.h"
#include "cc/control/session_wire.h"
#include "cc/engine/ids.h"

namespace railhop::control {

class SessionLink;

// The descriptors that are waited for. Not thread-safe.
class PollSet {
 public:
  PollSet();
  ~PollSet();
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  // -1 if the system gave none: nothing can be polled then.
  int fd() const { return fd_; }
  // `link` null: the listener.
  void Add(int fd, SessionLink* link);
  void WantWrite(int fd, SessionLink* link, bool wanted);
  void Remove(int fd);
  // The links that are ready now; *listener tells whether the listener is.
  std::vector<SessionLink*> Ready(bool* listener);

 private:
  const pid_t owner_;  // a child that was forked shares the set, and must not change it
  int fd_ = -1;
};

// Not thread-safe.
class SessionLink {
 public:
  enum class Event : uint8_t {
    kNothing,
    kFrame,   // frame() is whole, until the next Receive
    kJunk,    // what came is no frame
    kClosed,  // by the other end, or broken
  };

  // `polls` outlives it.
  SessionLink(std::unique_ptr<ByteStream> stream, PollSet* polls);
  ~SessionLink();
  SessionLink(const SessionLink&) = delete;
  SessionLink& operator=(const SessionLink&) = delete;

  ByteStream& stream() { return *stream_; }
  const ByteStream& stream() const { return *stream_; }

  // The peer that it belongs to, for whoever finds it ready; 0: a stranger.
  engine::InstanceId peer = 0;
  // Something may have come; for whoever has many of them.
  bool ready = true;

  // It is on its way: ready once it is there, or never will be. Until something is flushed.
  void AwaitConnect();

  // Before the session: bytes of a greeting.
  void Queue(const std::string& bytes) { outgoing_ += bytes; }
  // From now on: frames with this key. `payload_bytes_max` is what may come in one.
  void Secure(const SessionKey& key, bool is_caller, size_t payload_bytes_max);
  // The other end has shown that it has the key.
  void Trust() { parser_.AllowMessages(kBatchBytesMax); }
  bool is_caller() const { return is_caller_; }
  // payload: a batch, at most kBatchBytesMax.
  void QueueMessages(absl::Span<const uint8_t> payload);

  // Sends what is queued as far as it goes; false: the stream is broken.
  bool Flush();
  size_t queued_bytes() const { return outgoing_.size() - sent_; }

  // Reads at most `budget` bytes since the last SetBudget; what is left stays for the next round.
  void SetBudget(size_t bytes) { budget_ = bytes; }
  Event Receive();
  const SessionFrame& frame() const { return parser_.frame(); }
  // Of MESSAGES that came: right code, and the counter that is due. Null = yes; else why not. To be
  // called once for each frame.
  const char* Reject();

 private:
  void UpdatePoll();

  const std::unique_ptr<ByteStream> stream_;
  PollSet* const polls_;
  bool wants_write_ = false;

  std::string outgoing_;
  size_t sent_ = 0;
  std::vector<uint8_t> incoming_;  // read behind the present frame; `taken_` of it are used
  size_t taken_ = 0;
  size_t budget_ = 0;
  SessionParser parser_;

  SessionKey key_ = {};
  bool is_caller_ = false;
  uint64_t sent_counter_ = 0;
  uint64_t received_counter_ = 0;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SESSION_LINK_H_
