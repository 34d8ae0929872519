// A fabric for as long as an object lives, with a thread that carries out what its faults have due.
//
// For C++ tests and the Python binding: what `railhop-fabric run` does around a command, this does
// around a scope.
#ifndef RAILHOP_CC_FABRIC_OWNED_FABRIC_H_
#define RAILHOP_CC_FABRIC_OWNED_FABRIC_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "cc/fabric/control.h"

namespace railhop::fabric {

// Thread-safe: Control takes the fabric's own lock for each command.
class OwnedFabric {
 public:
  // Null and *error on failure, as Control::Create.
  static std::unique_ptr<OwnedFabric> Create(const FabricOptions& options, std::string* error);
  ~OwnedFabric();
  OwnedFabric(const OwnedFabric&) = delete;
  OwnedFabric& operator=(const OwnedFabric&) = delete;

  Control& control() { return *control_; }
  // The value of RAILHOP_FABRIC that lets a process join.
  std::string Reference() const { return control_->directory().Reference(); }

 private:
  explicit OwnedFabric(std::unique_ptr<Control> control);
  void Run();

  const std::unique_ptr<Control> control_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_OWNED_FABRIC_H_
