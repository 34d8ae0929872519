// For tests and measurements: requests to an admin socket, given and answered as JSON (protobuf's
// own mapping).
//
//   admin_client SOCKET '{"get_health": {}}' [SECONDS [REQUESTS [RATE [JSON]]]]
//
// REQUESTS > 1 asks so often, one after the other, RATE times a second (0: as fast as it goes), and
// prints the last answer; with a second JSON every other request is that one. How many were
// answered, and the slowest, go to standard error.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "cc/admin/socket_caller.h"
#include "cc/base/clock.h"
#include "google/protobuf/compiler/importer.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/util/json_util.h"

namespace railhop::admin {
namespace {

namespace pb = google::protobuf;

class Errors : public pb::compiler::MultiFileErrorCollector {
  void AddError(const std::string& name, int line, int, const std::string& text) override {
    std::fprintf(stderr, "%s:%d: %s\n", name.c_str(), line, text.c_str());
  }
};

struct Plan {
  std::string path;
  std::vector<std::string> requests;  // as JSON, asked in turn
  double seconds = 10;                // for each
  int count = 1;
  double rate = 0;
};

// Until the next request is due; what was missed is not made up for.
void Pace(int64_t* due, double rate) {
  if (rate <= 0) return;
  const int64_t now = RealClock().NowNs();
  *due = std::max(*due + static_cast<int64_t>(1e9 / rate), now);
  const int64_t left = *due - now;
  if (left <= 0) return;
  const timespec pause = {.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  nanosleep(&pause, nullptr);
}

int Run(const Plan& plan) {
  pb::compiler::DiskSourceTree tree;
  tree.MapPath("", ".");
  Errors errors;
  pb::compiler::Importer importer(&tree, &errors);
  const pb::FileDescriptor* const file = importer.Import("cc/proto/admin.proto");
  if (file == nullptr) return 2;
  pb::DynamicMessageFactory factory;
  const auto make = [&](const char* name) {
    return std::unique_ptr<pb::Message>(
        factory.GetPrototype(file->FindMessageTypeByName(name))->New());
  };
  std::vector<std::string> requests;
  for (const std::string& json : plan.requests) {
    const std::unique_ptr<pb::Message> request = make("Request");
    if (!pb::util::JsonStringToMessage(json, request.get()).ok()) {
      std::fprintf(stderr, "no request: %s\n", json.c_str());
      return 2;
    }
    requests.push_back(request->SerializeAsString());
  }
  SocketCaller caller(plan.path);
  std::string last;
  const int64_t start = RealClock().NowNs();
  int64_t due = start;
  int64_t slowest = 0;
  for (int i = 0; i < plan.count; ++i) {
    Pace(&due, plan.rate);
    const int64_t asked = RealClock().NowNs();
    const Reply<std::string> bytes = caller.Call(requests[static_cast<size_t>(i) % requests.size()],
                                                 static_cast<int64_t>(plan.seconds * 1e9));
    if (!bytes.ok()) {
      std::fprintf(stderr, "%d answered\n", i);
      std::printf("{\"failure\": {\"code\": \"%s\", \"message\": \"%s\"}}\n",
                  Word(bytes.failure().code), bytes.failure().message.c_str());
      return 1;
    }
    slowest = std::max(slowest, RealClock().NowNs() - asked);
    last = *bytes;
  }
  std::fprintf(stderr, "%d answered in %.3f s, the slowest in %.3f ms\n", plan.count,
               static_cast<double>(RealClock().NowNs() - start) / 1e9,
               static_cast<double>(slowest) / 1e6);
  const std::unique_ptr<pb::Message> response = make("Response");
  if (!response->ParseFromString(last)) return 2;
  pb::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!pb::util::MessageToJsonString(*response, &text, options).ok()) return 2;
  std::printf("%s\n", text.c_str());
  return 0;
}

}  // namespace
}  // namespace railhop::admin

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("admin_client SOCKET JSON [SECONDS [REQUESTS [RATE [JSON]]]]\n", stderr);
    return 2;
  }
  railhop::admin::Plan plan;
  plan.path = argv[1];
  plan.requests = {argv[2]};
  if (argc > 3) plan.seconds = std::atof(argv[3]);
  if (argc > 4) plan.count = std::atoi(argv[4]);
  if (argc > 5) plan.rate = std::atof(argv[5]);
  if (argc > 6) plan.requests.emplace_back(argv[6]);
  return railhop::admin::Run(plan);
}
