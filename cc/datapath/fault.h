// What went wrong on a connection, as a value: whoever polled hands it on, nobody acts on the spot.
#ifndef RAILHOP_CC_DATAPATH_FAULT_H_
#define RAILHOP_CC_DATAPATH_FAULT_H_

#include <cstdint>

namespace railhop::datapath {

struct MemoryKeys;

struct Fault {
  enum class Kind : uint8_t {
    kNone = 0,
    kCompletion,  // a work request ended in error: `code` is the ibv_wc_status
    kPost,        // a work request was refused: `code` is the errno
    kQueue,       // a completion queue cannot be polled: all lanes of `device`
    kDevice,      // the device has failed: `code` is the ibv_event_type
    kProtocol,    // the peer sent what the protocol does not allow
    // No fault: `memory` is not registered on the device of a lane in the route, `physical`. Asked
    // once for each (MemoryKeys::asked). At the receiver Reannounce is due once it is.
    kUncovered,
    kLost,    // data was acknowledged and has not arrived (rule 4), or its NIC cannot be flushed
    kGiveUp,  // whoever looks after the connection ended it: no path, the peer's word, ...
  };
  Kind kind = Kind::kNone;
  int lane = -1;    // place; -1 = none
  int device = -1;  // slot; -1 = none
  int code = 0;
  uint32_t vendor_error = 0;
  uint32_t qp_number = 0;
  uint32_t epoch = 0;  // of the lane
  // With failover: no other path could do better (rule 10). Nothing is posted any more; the
  // connection is to be fenced and given up.
  bool fatal = false;
  int physical = -1;                   // PhysicalDevice::id; -1 = none
  const MemoryKeys* memory = nullptr;  // kUncovered; may have been deregistered since
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_FAULT_H_
