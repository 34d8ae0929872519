// Everything that the control program can do to a fabric, as a library.
//
// Tests, Python and `railhop-fabric` all go through here, so a fault means the same whoever puts it
// in.
#ifndef RAILHOP_CC_FABRIC_CONTROL_H_
#define RAILHOP_CC_FABRIC_CONTROL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cc/fabric/directory.h"
#include "cc/rdma_model/fault_grammar.h"

namespace railhop::fabric {

struct FabricOptions {
  std::string name;  // empty: made of the pid
  rdma::Topology topology;
  uint64_t seed = 0;
  double time_scale = 1;  // of ACK timeouts and RNR timers, 1e-6 to 1e6
};

class Control {
 public:
  // Makes a fabric that lives as long as this object. Null and *error on failure, as in all of
  // these.
  static std::unique_ptr<Control> Create(const FabricOptions& options, std::string* error);
  // Joins by RAILHOP_FABRIC's value, or by name.
  static std::unique_ptr<Control> Attach(std::string_view reference, std::string* error);
  static std::unique_ptr<Control> AttachByName(std::string_view name, std::string* error);

  DirectoryHandle& directory() { return *directory_; }
  const DirectoryHandle& directory() const { return *directory_; }

  // The host whose device a bare name means when several hosts have one of that name
  // (RAILHOP_FABRIC_HOST). Unset: such a name is an error.
  void set_default_host(std::string_view host) { default_host_ = host; }

  // Carries out one command, "soft0 loss 1% for 2s". What it lists is appended to *output (null:
  // not wanted). False and *error, which names the word and the allowed ones. What is not for later
  // is done when this returns.
  bool Fault(std::string_view words, std::string* error, std::string* output = nullptr);
  bool Fault(const rdma::FaultCommand& command, std::string* error, std::string* output = nullptr);

  // Carries out what has become due (timed faults and their ends); returns when there is more
  // (CLOCK_MONOTONIC ns, UINT64_MAX for never). `railhop-fabric run` does it all the time; who
  // makes a fabric with Create must do it.
  uint64_t RunDue();

 private:
  explicit Control(std::unique_ptr<DirectoryHandle> directory) : directory_(std::move(directory)) {}
  std::optional<PortRef> FindPort(const rdma::FaultCommand& command, std::string* error) const;

  const std::unique_ptr<DirectoryHandle> directory_;
  std::string default_host_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_CONTROL_H_
