// The fabric's devices as net devices, one each, in the library's order.
#ifndef RAILHOP_CC_RUNTIME_TESTING_FABRIC_DEVICES_H_
#define RAILHOP_CC_RUNTIME_TESTING_FABRIC_DEVICES_H_

#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "cc/runtime/net_device.h"
#include "cc/verbs/context.h"

namespace railhop::runtime {

class FabricDevices final : public DeviceSource {
 public:
  // ptr_support: kPointer* bits that every device claims.
  static std::unique_ptr<FabricDevices> Open(int ptr_support);

  int Count() const override;
  const NetDevice* Get(int index) const override;
  absl::StatusOr<int> Fuse(absl::Span<const int> devices) override;
  std::vector<const PhysicalDevice*> Physical() const override;

 private:
  FabricDevices() = default;

  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<verbs::Context>> contexts_;
  std::vector<std::unique_ptr<PhysicalDevice>> parts_;
  std::vector<std::unique_ptr<NetDevice>> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_TESTING_FABRIC_DEVICES_H_
