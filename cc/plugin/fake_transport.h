// A transport that remembers what it was asked, for tests of the tables: link it instead of
// //cc/runtime:transport and //cc/runtime:start.
#ifndef RAILHOP_CC_PLUGIN_FAKE_TRANSPORT_H_
#define RAILHOP_CC_PLUGIN_FAKE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/runtime/transport.h"

namespace railhop::plugin {

// Everything is public: tests set answers and read questions. One for the process.
struct FakeTransport {
  // Answers.
  absl::Status start_status;
  absl::Status status;  // of every call that has one
  runtime::Outcome outcome = runtime::Outcome::kOk;
  runtime::DeviceProperties properties;
  int device_count = 1;
  int virtual_device = 7;
  bool not_yet = false;  // connect, accept: null; isend, irecv, iflush: no request
  bool throws = false;   // every call throws
  int done = 1;
  std::vector<int> test_sizes;

  // Questions.
  int starts = 0;
  int stops = 0;
  bool kept_devices = false;
  std::string last;  // name of the last call
  int traffic_class = 0;
  int dev = 0;
  void* data = nullptr;
  std::vector<size_t> sizes;
  std::vector<int> tags;
  std::vector<int> devices;
  int type = 0;
  uint64_t offset = 0;
  int fd = 0;

  bool running() const { return starts > stops; }
};

FakeTransport& TheFake();
// Forgets everything but whether it runs, and gives back the defaults.
void ResetFake();

}  // namespace railhop::plugin

#endif  // RAILHOP_CC_PLUGIN_FAKE_TRANSPORT_H_
