#include "python/railhop/_transport/messenger.h"

#include <time.h>

#include <chrono>
#include <utility>

#include "python/railhop/_transport/failure.h"
#include "python/railhop/_transport/plugin_handle.h"

namespace railhop::transport {

using netperf::kHandleBytes;
using SteadyClock = std::chrono::steady_clock;

namespace {

SteadyClock::time_point After(double seconds) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

void SleepUs(long us) {
  const timespec time = {0, us * 1000};
  nanosleep(&time, nullptr);
}

}  // namespace

Messenger::Messenger(std::unique_ptr<netperf::NetPlugin> plugin, int rank, int size, int lanes,
                     std::vector<std::string> kinds)
    : rank_(rank), lanes_(lanes), kinds_(std::move(kinds)), plugin_(std::move(plugin)) {
  CheckCall("devices", plugin_->Devices(&devices_));
  peers_.resize(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    Peer& peer = peers_[static_cast<size_t>(i)];
    if (i == rank) continue;
    peer.inbox = std::make_unique<Inbox>(i, &waiting_);
    for (int lane = 0; lane < lanes; ++lane) {
      peer.sends.push_back(std::make_unique<SendLane>(*plugin_));
      peer.recvs.push_back(std::make_unique<RecvLane>(*plugin_));
    }
  }
}

Messenger::~Messenger() { Close(0); }

std::string Messenger::Name(const char* call, int peer) const {
  return std::string(call) + " with rank " + std::to_string(peer);
}

std::string Messenger::KindName(uint32_t kind) const {
  return kind < kinds_.size() ? kinds_[kind] : std::to_string(kind);
}

std::string Messenger::Listen(int peer) {
  if (peer < 0 || static_cast<size_t>(peer) >= peers_.size() || peer == rank_) {
    throw Failure(FailureKind::kMismatch, "no rank " + std::to_string(peer) + " to listen for");
  }
  std::string handles;
  int lane = 0;
  for (auto& recv : peers_[static_cast<size_t>(peer)].recvs) {
    alignas(8) char handle[kHandleBytes] = {};
    CheckCall(Name("listen", peer), plugin_->Listen(lane++ % devices_, handle, &recv->listener));
    handles.append(handle, sizeof(handle));
  }
  return handles;
}

bool Messenger::Connect(const std::vector<std::string>& handles, double seconds) {
  const auto deadline = After(seconds);
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.inbox == nullptr || !peer.handles.empty()) continue;
    if (i >= handles.size() || handles[i].size() != kHandleBytes * static_cast<size_t>(lanes_)) {
      throw Failure(FailureKind::kMismatch, "rank " + std::to_string(i) + " does not offer " +
                                                std::to_string(lanes_) + " lanes");
    }
    for (int lane = 0; lane < lanes_; ++lane) {
      peer.handles.push_back(
          handles[i].substr(static_cast<size_t>(lane) * kHandleBytes, kHandleBytes));
    }
  }
  while (true) {
    int missing = 0;
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      for (size_t lane = 0; lane < peer.sends.size(); ++lane) {
        SendLane& send = *peer.sends[lane];
        RecvLane& recv = *peer.recvs[lane];
        if (send.comm == nullptr) {
          CheckCall(Name("connect", static_cast<int>(i)),
                    plugin_->Connect(static_cast<int>(lane) % devices_, peer.handles[lane].data(),
                                     &send.comm));
        }
        if (recv.comm == nullptr) {
          CheckCall(Name("accept", static_cast<int>(i)),
                    plugin_->Accept(recv.listener, &recv.comm));
        }
        missing += (send.comm == nullptr) + (recv.comm == nullptr);
      }
    }
    if (missing == 0) break;
    if (SteadyClock::now() > deadline) return false;
    SleepUs(500);
  }
  if (!connected_) RegisterAll();
  return true;
}

void Messenger::RegisterAll() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    for (size_t lane = 0; lane < peers_[i].sends.size(); ++lane) {
      const std::string name = Name("regMr", static_cast<int>(i));
      CheckCall(name, peers_[i].sends[lane]->Register());
      CheckCall(name, peers_[i].recvs[lane]->Register());
      reports_.push_back(
          {static_cast<int>(i), static_cast<int>(lane), static_cast<int>(lane) % devices_, {}, {}});
    }
  }
  connected_ = true;
  thread_ = std::thread([this] { Run(); });
}

std::shared_ptr<Operation> Messenger::Submit(std::shared_ptr<Operation> operation) {
  const bool fits = operation->peer >= (operation->sends ? 0 : -1) &&
                    operation->peer < static_cast<int>(peers_.size()) && operation->peer != rank_;
  if (!fits) {
    throw Failure(FailureKind::kMismatch, "no rank " + std::to_string(operation->peer) +
                                              " to talk to: " + std::to_string(peers_.size()) +
                                              " ranks, and this is rank " + std::to_string(rank_));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!connected_ || closing_ || ended_) {
    throw Failure(FailureKind::kClosed,
                  connected_ ? "the group is closed" : "the group is not connected");
  }
  submissions_.push_back({operation, false});
  submitted_.notify_one();
  return operation;
}

std::shared_ptr<Operation> Messenger::Send(int peer, uint32_t kind, uint64_t tag, const void* data,
                                           size_t size) {
  auto operation = std::make_shared<Operation>();
  operation->sends = true;
  operation->peer = peer;
  operation->kind = kind;
  operation->tag = tag;
  operation->data = static_cast<uint8_t*>(const_cast<void*>(data));
  operation->size = size;
  return Submit(std::move(operation));
}

std::shared_ptr<Operation> Messenger::Receive(int peer, uint32_t kind, uint64_t tag, void* data,
                                              size_t size) {
  auto operation = std::make_shared<Operation>();
  operation->peer = peer;
  operation->kind = kind;
  operation->tag = tag;
  operation->data = static_cast<uint8_t*>(data);
  operation->size = size;
  return Submit(std::move(operation));
}

bool Messenger::Wait(const Operation& operation, double seconds) {
  {
    std::unique_lock<std::mutex> lock(done_mutex_);
    const bool over = done_.wait_until(
        lock, After(seconds), [&] { return operation.done.load(std::memory_order_acquire); });
    if (!over) return false;
  }
  if (!operation.problem.empty()) throw Failure(operation.failure, operation.problem);
  return true;
}

void Messenger::Cancel(const std::shared_ptr<Operation>& operation) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (operation->done.load(std::memory_order_acquire)) return;
    if (!ended_) {
      submissions_.push_back({operation, true});
      submitted_.notify_one();
    }
  }
  // The thread ends every operation before it ends itself.
  std::unique_lock<std::mutex> lock(done_mutex_);
  done_.wait(lock, [&] { return operation->done.load(std::memory_order_acquire); });
}

void Messenger::Close(double seconds) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closing_) goodbye_s_ = seconds;
    closing_ = true;
    submitted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  if (plugin_ == nullptr) return;
  for (Peer& peer : peers_) {
    for (auto& send : peer.sends) send->Close();
    for (auto& recv : peer.recvs) recv->Close();
  }
  plugin_->Finalize();
  plugin_.reset();
}

bool Messenger::closed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return closing_ || ended_;
}

std::vector<LaneReport> Messenger::Report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reports_;
}

std::vector<Dip> Messenger::Dips() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {dips_.begin(), dips_.end()};
}

}  // namespace railhop::transport
