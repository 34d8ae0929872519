// Messages of one peer as they come: parts are put together, and messages matched to receives in
// the order in which the peer sent them.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_INBOX_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "python/railhop/_transport/message.h"
#include "python/railhop/_transport/operation.h"

namespace railhop::transport {

// Receives that wait for a message, in the order of their calls; of all peers.
using WaitingReceives = std::list<std::shared_ptr<Operation>>;

// The reserved kind of a peer's last message.
inline constexpr uint32_t kGoodbyeKind = 0xffffffff;

// Thread: the progress thread.
class Inbox {
 public:
  // Receives; `problem` of one says "kind bytes" of a message that does not fit.
  using Matched = std::vector<std::shared_ptr<Operation>>;

  // `waiting` outlives the object.
  Inbox(int peer, WaitingReceives* waiting) : peer_(peer), waiting_(*waiting) {}

  // Takes a part. Receives that are now complete go to *complete. Result: empty, or what is wrong
  // with the part; then nothing more can be made of this peer's messages.
  std::string Take(const uint8_t* slot, size_t bytes, Matched* complete);
  // A receive has been added to the waiting ones.
  void MatchWaiting(Matched* complete);
  // The operation is over: what still comes for it is dropped.
  void Forget(const Operation* operation);
  bool said_goodbye() const { return said_goodbye_; }

 private:
  struct Message {
    uint32_t kind = 0;
    uint64_t tag = 0;
    uint64_t total = 0;
    uint64_t come = 0;
    bool announced = false;  // those before it are
    bool dropped = false;
    std::vector<uint8_t> kept;             // until it is matched
    std::shared_ptr<Operation> operation;  // once it is
  };

  void Announce();
  void Match(Message* message);
  void Attach(Message* message, std::shared_ptr<Operation> operation);
  // Takes out what has come whole and somebody has.
  void TakeComplete(Matched* complete);

  const int peer_;
  WaitingReceives& waiting_;
  std::map<uint64_t, Message> messages_;  // by serial
  uint64_t next_ = 0;                     // the next to be announced
  bool said_goodbye_ = false;
};

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_INBOX_H_
