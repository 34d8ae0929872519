// Both ends of a connection in a test, over NICs that do what the test says: packets wait until
// they are delivered, lost, or overtaken, and the keys, buffers and queue pairs that each names are
// checked when it lands.
//
// The test plays the driver: it fences, carries records over, and makes lanes.
#ifndef RAILHOP_CC_DATAPATH_TESTING_TWO_ENDS_H_
#define RAILHOP_CC_DATAPATH_TESTING_TWO_ENDS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/datapath/fake_nic.h"
#include "cc/datapath/recv_connection.h"
#include "cc/datapath/send_connection.h"

namespace railhop::datapath {

class TwoEnds {
 public:
  struct Shape {
    int devices = 1;  // of the connection
    int lanes = 1;
    int spare = 2;  // NICs more, at each end
    ConnectionRules rules = {.failover = true};
    bool flush = false;
    bool cover_spares = true;
  };
  static constexpr size_t kGuard = 512;

  explicit TwoEnds(const Shape& shape, size_t bytes = 1 << 20);
  ~TwoEnds();
  TwoEnds(const TwoEnds&) = delete;
  TwoEnds& operator=(const TwoEnds&) = delete;

  // ---- NCCL's side.

  Transfer* Receive(size_t offset, size_t size, int tag = 1);
  // Several receives in one transfer: {offset, size}, tags 1, 2, ...
  Transfer* ReceiveGroup(const std::vector<std::pair<size_t, size_t>>& buffers);
  SendRequest* Send(size_t offset, size_t size, int tag = 1);
  bool IsSent(SendRequest* request);
  // The sizes, or empty if it is not done.
  std::vector<int> Received(Transfer* request);

  // ---- The wire. An end's NICs are numbered as its physical devices.

  // How a packet fares.
  enum class Fate {
    kArrives,        // carried out; not acknowledged yet
    kLost,           // neither
    kOnlyConfirmed,  // acknowledged, and never written: a dying NIC
  };
  // Lets everything that is posted arrive and be acknowledged, until nothing is left.
  void Settle();
  // One packet that may be next on its queue pair. False if there is none.
  bool StepRandom(Prng* prng, Fate fate = Fate::kArrives);
  // The oldest of a lane of this end.
  bool Step(bool of_sender, uint32_t lane, Fate fate = Fate::kArrives);
  // Acknowledges the oldest that has arrived, of one queue pair.
  bool AcknowledgeRandom(Prng* prng);
  bool Acknowledge(bool of_sender, uint32_t lane);
  size_t posted(bool of_sender) const;  // that has not been carried out
  std::vector<PostedSend> PostedOn(bool of_sender, uint32_t lane) const;

  // ---- The driver's side.

  // Ends the lane at an end, as the transport would notice a dead path: its oldest request ends in
  // error and the rest is flushed, once it is polled.
  void Break(bool of_sender, uint32_t lane);
  LaneRef Ref(bool of_sender, uint32_t lane) const;
  // Steps until it is not kAgain; gives up after 100.
  FenceProgress Fence(bool of_sender, LaneRef lane, bool last_try = false);
  // The whole of an episode: stop, fence, records, resume, under `epoch`.
  ResumeResult Episode(const std::vector<LaneRef>& lanes, uint32_t epoch);
  // A new pair of queue pairs, sender's NIC and receiver's NIC by physical id, at both ends;
  // devices are added where needed. Not in any route.
  void AddLane(uint32_t index, int from, int to, uint32_t epoch);
  void SetRoutes(const std::vector<uint8_t>& lanes);
  // UP: entries again, with the keys of new devices.
  void Up(uint32_t epoch) { recv->Reannounce(epoch); }

  // ---- Bytes.

  // "" or where the receive buffer differs from what it should hold: what was expected with
  // Expect, the guards around, and untouched bytes elsewhere.
  void Expect(size_t offset, size_t from, size_t size);
  void Forget(size_t offset, size_t size);  // it will be received into again
  std::string Check() const { return CheckRange(0, to.size() - 2 * kGuard, kGuard); }
  // The same of a part, with so many bytes around.
  std::string CheckRange(size_t offset, size_t size, size_t around = 0) const;

  std::vector<std::unique_ptr<FakeNic>> sender_nics, receiver_nics;
  std::unique_ptr<SendConnection> send;
  std::unique_ptr<RecvConnection> recv;
  MemoryKeys from_keys, to_keys;
  std::vector<uint8_t> from, to;
  std::string error;  // the first thing that the wire objected to
  uint64_t writes_after_fence = 0;

 private:
  struct End {
    FakeNic* nic = nullptr;
    uint32_t qp_number = 0;
    friend bool operator<(const End& a, const End& b) {
      return a.nic != b.nic ? a.nic < b.nic : a.qp_number < b.qp_number;
    }
  };
  std::vector<std::unique_ptr<FakeNic>>& Nics(bool of_sender) {
    return of_sender ? sender_nics : receiver_nics;
  }
  ConnectionDevice MakeDevice(bool of_sender, int physical);
  Lane MakeLane(bool of_sender, verbs::CompletionQueue* cq, int physical);
  void Pair(FakeNic* sender, const Lane& a, FakeNic* receiver, const Lane& b);
  uint32_t SlotFor(bool of_sender, int physical);
  Connection* connection(bool of_sender) {
    return of_sender ? static_cast<Connection*>(send.get()) : recv.get();
  }
  void Object(const std::string& what);
  void Carry(FakeNic* nic, size_t index, Fate fate);
  void Land(bool to_receiver, FakeNic* nic, ibv_qp* qp, const PostedSend& packet);
  bool MayBeNext(const FakeNic& nic, size_t index) const;
  FakeQp* Find(const End& end);

  SenderMemory* sender_memory_ = nullptr;
  ReceiverMemory* receiver_memory_ = nullptr;
  std::map<End, End> peers_;
  std::map<std::pair<bool, uint32_t>, LaneRef> lanes_;
  std::map<End, FakeQp*> pairs_;
  std::vector<uint8_t> expected_;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_TESTING_TWO_ENDS_H_
