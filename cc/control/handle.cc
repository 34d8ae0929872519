#include "cc/control/handle.h"

namespace railhop::control {

HandleKind ClassifyHandle(const Handle& handle) {
  const bool has_address = AddressLength(handle.address) != 0;
  if (handle.mark == kHandleMark && has_address && handle.devices >= 1 && handle.devices <= 8 &&
      handle.qps_per_device >= 1 && handle.qps_per_device <= 128) {
    return HandleKind::kOurs;
  }
  return has_address && handle.foreign_number != 0 ? HandleKind::kNcclIb : HandleKind::kUnknown;
}

}  // namespace railhop::control
