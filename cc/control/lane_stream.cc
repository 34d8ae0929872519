#include "cc/control/lane_stream.h"

#include <algorithm>
#include <cerrno>
#include <vector>

namespace railhop::control {
namespace {

// Of one peer, not yet read. A session over a lane carries little; beyond, it is no session.
constexpr size_t kInboxBytesMax = 4 << 20;

}  // namespace

std::unique_ptr<LaneStream> LaneStreams::Open(engine::InstanceId peer) {
  const uint64_t generation = carrier_->Generation(peer);
  if (generation == 0) return nullptr;
  Inbox& inbox = inboxes_[peer];
  if (inbox.stream != nullptr) return nullptr;
  if (inbox.generation != generation) inbox = {.generation = generation, .bytes = {}};
  auto stream = std::make_unique<LaneStream>(this, peer, generation);
  inbox.stream = stream.get();
  ++open_;
  return stream;
}

void LaneStreams::Pump(std::set<engine::InstanceId>* ready,
                       std::set<engine::InstanceId>* strangers) {
  LaneCarrier::Chunk chunk;
  while (carrier_->Receive(&chunk)) {
    Inbox& inbox = inboxes_[chunk.peer];
    // An open stream of another generation sees by itself that it has ended.
    if (inbox.generation != chunk.generation) {
      if (inbox.stream != nullptr) continue;
      inbox = {.generation = chunk.generation, .bytes = {}};
    }
    if (inbox.bytes.size() + chunk.bytes.size() > kInboxBytesMax) continue;
    inbox.bytes.insert(inbox.bytes.end(), chunk.bytes.begin(), chunk.bytes.end());
  }
  for (const auto& [peer, inbox] : inboxes_) {
    if (inbox.stream != nullptr) {
      ready->insert(peer);  // also to send what did not go, and to see that it has ended
    } else if (!inbox.bytes.empty()) {
      strangers->insert(peer);
    }
  }
}

LaneStream::~LaneStream() {
  LaneStreams::Inbox& inbox = streams_->inboxes_[peer_];
  --streams_->open_;
  inbox.stream = nullptr;
  inbox.bytes.clear();
}

ByteStream::Progress LaneStream::FinishConnect() {
  return streams_->carrier_->Generation(peer_) == generation_ ? Progress::kMore : Progress::kClosed;
}

ByteStream::Progress LaneStream::Send(const uint8_t* data, size_t size, size_t* moved) {
  *moved = 0;
  if (FinishConnect() == Progress::kClosed) return Progress::kClosed;
  *moved = streams_->carrier_->Send(peer_, generation_, {data, size});
  return *moved > 0 ? Progress::kMore : Progress::kBlocked;
}

ByteStream::Progress LaneStream::Receive(uint8_t* data, size_t size, size_t* moved) {
  std::deque<uint8_t>& bytes = streams_->inboxes_[peer_].bytes;
  *moved = std::min(size, bytes.size());
  if (*moved == 0) {
    return FinishConnect() == Progress::kClosed ? Progress::kClosed : Progress::kBlocked;
  }
  const auto end = bytes.begin() + static_cast<ptrdiff_t>(*moved);
  std::copy(bytes.begin(), end, data);
  bytes.erase(bytes.begin(), end);
  return Progress::kMore;
}

int LaneStream::error() const { return ENETDOWN; }

}  // namespace railhop::control
