// Events as they happen: an iterator that waits for the next.
#ifndef RAILHOP_PYTHON_RAILHOP_FOLLOWER_H_
#define RAILHOP_PYTHON_RAILHOP_FOLLOWER_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "cc/admin/records.h"
#include "python/railhop/handle.h"

namespace railhop::python {

// One thread at a time.
class Follower {
 public:
  // Without `timeout_s` it waits for ever.
  Follower(Handle handle, int64_t after, std::optional<double> timeout_s);

  // The next event; none once the process has ended, or if there was none for timeout_s.
  std::optional<admin::Event> Next();
  // Events that were asked for and are not kept any more.
  uint64_t gone() const { return gone_; }

 private:
  Handle handle_;
  int64_t after_;
  std::optional<double> timeout_s_;
  uint64_t gone_ = 0;
  bool heard_ = false;  // the process has answered once
  std::deque<admin::Event> ready_;
};

}  // namespace railhop::python

#endif  // RAILHOP_PYTHON_RAILHOP_FOLLOWER_H_
