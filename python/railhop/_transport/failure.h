// Why a call of the transport could not do what it was asked: one exception for all of it.
//
// A fault that the plugin survives is none: its calls then go on giving success.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_FAILURE_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_FAILURE_H_

#include <exception>
#include <string>
#include <utility>

#include "cc/netperf/net_plugin.h"

namespace railhop::transport {

enum class FailureKind {
  kLoad,      // no such plugin, or it does not start
  kPlugin,    // a call of the plugin gave an error: result() says which
  kPeer,      // a peer left, or a path to it is given up
  kMismatch,  // both ends did not call the same thing
  kTimeout,   // not done in the time given
  kClosed,    // used after close, or closed under it
};

class Failure : public std::exception {
 public:
  Failure(FailureKind kind, std::string text, netperf::NetResult result = netperf::kNetSuccess)
      : kind_(kind), text_(std::move(text)), result_(result) {}

  FailureKind kind() const { return kind_; }
  // NCCL's number, where a call of the plugin gave it.
  netperf::NetResult result() const { return result_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  FailureKind kind_;
  std::string text_;
  netperf::NetResult result_;
};

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_FAILURE_H_
