// What went wrong on a connection, as a value: whoever polled hands it on, nobody acts on the spot.
#ifndef RAILHOP_CC_DATAPATH_FAULT_H_
#define RAILHOP_CC_DATAPATH_FAULT_H_

#include <cstdint>

namespace railhop::datapath {

struct Fault {
  enum class Kind : uint8_t {
    kNone = 0,
    kCompletion,  // a work request ended in error: `code` is the ibv_wc_status
    kPost,        // a work request was refused: `code` is the errno
    kQueue,       // a completion queue cannot be polled
    kDevice,      // the device has failed: `code` is the ibv_event_type
    kProtocol,    // the peer sent what the protocol does not allow
  };
  Kind kind = Kind::kNone;
  int lane = -1;  // -1 = none
  int device = -1;
  int code = 0;
  uint32_t vendor_error = 0;
  uint32_t qp_number = 0;
  uint32_t epoch = 0;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_FAULT_H_
