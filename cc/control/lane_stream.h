// Streams over the lanes of a LaneCarrier: hands what has come to the stream that it belongs to.
#ifndef RAILHOP_CC_CONTROL_LANE_STREAM_H_
#define RAILHOP_CC_CONTROL_LANE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "cc/control/byte_stream.h"
#include "cc/control/lane_carrier.h"

namespace railhop::control {

class LaneStream;

// Not thread-safe. Outlives its streams.
class LaneStreams {
 public:
  // `carrier` outlives it.
  explicit LaneStreams(LaneCarrier* carrier) : carrier_(carrier) {}

  uint64_t Generation(engine::InstanceId peer) { return carrier_->Generation(peer); }
  // A stream over the way that there is now; null if there is none or one is open already.
  std::unique_ptr<LaneStream> Open(engine::InstanceId peer);
  // Whether any stream is open: nothing says when something comes over a lane, so one has to look.
  bool any_open() const { return open_ > 0; }
  // Takes in what has come. Peers whose open stream has something, and peers that have none open
  // but send: those want to be answered (Open).
  void Pump(std::set<engine::InstanceId>* ready, std::set<engine::InstanceId>* strangers);

 private:
  friend class LaneStream;
  struct Inbox {
    uint64_t generation = 0;
    std::deque<uint8_t> bytes;
    LaneStream* stream = nullptr;
  };

  LaneCarrier* const carrier_;
  std::map<engine::InstanceId, Inbox> inboxes_;
  int open_ = 0;
};

class LaneStream : public ByteStream {
 public:
  LaneStream(LaneStreams* streams, engine::InstanceId peer, uint64_t generation)
      : streams_(streams), peer_(peer), generation_(generation) {}
  ~LaneStream() override;

  Progress FinishConnect() override;
  Progress Send(const uint8_t* data, size_t size, size_t* moved) override;
  Progress Receive(uint8_t* data, size_t size, size_t* moved) override;
  void ShutdownWrite() override {}
  int fd() const override { return -1; }
  std::string Where() const override { return "a lane"; }
  int error() const override;

 private:
  LaneStreams* const streams_;
  const engine::InstanceId peer_;
  const uint64_t generation_;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_LANE_STREAM_H_
