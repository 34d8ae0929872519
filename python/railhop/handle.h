// A process that has the plugin, as Python sees it: calls that wait without the GIL and raise what
// went wrong.
#ifndef RAILHOP_PYTHON_RAILHOP_HANDLE_H_
#define RAILHOP_PYTHON_RAILHOP_HANDLE_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/admin/client.h"
#include "cc/admin/records.h"

namespace railhop::python {

// Thread-safe. All methods need the GIL and let it go while they wait.
class Handle {
 public:
  // This process. Raises NotLoadedError.
  static Handle Here();
  // Exactly one of these is given. Raises NotFoundError, StaleSocketError, NotAllowedError.
  static Handle Attach(std::optional<int64_t> pid, const std::optional<std::string>& job,
                       const std::optional<std::string>& path, double timeout_s);

  admin::Process Info() const;
  admin::Health Health() const;
  admin::Stats Stats() const;
  // Waits so long for the first event if there is none; a signal, such as Ctrl-C, ends the wait.
  admin::EventList Events(int64_t after, int64_t limit, double wait_s) const;
  admin::Outcome ForceFailover(const std::string& target, const std::string& mode) const;
  admin::Outcome FailBack(const std::optional<std::string>& target) const;
  admin::Outcome Hold(const std::string& target) const;
  admin::Outcome Release(const std::string& target) const;
  std::vector<admin::Option> Config() const;
  admin::Option SetOption(const std::string& name, const std::string& value) const;
  const std::string& name() const { return client_->name(); }

 private:
  explicit Handle(std::unique_ptr<admin::Client> client) : client_(std::move(client)) {}

  std::shared_ptr<admin::Client> client_;
};

// Seconds as nanoseconds. Raises InvalidError unless 0 <= seconds <= 1e9; `what` names them.
int64_t Nanoseconds(double seconds, const char* what);

}  // namespace railhop::python

#endif  // RAILHOP_PYTHON_RAILHOP_HANDLE_H_
