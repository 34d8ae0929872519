// What can be asked, and the kinds of answer: the messages of cc/proto/admin.proto as structs. What
// each does: client.h.
#ifndef RAILHOP_CC_ADMIN_REQUESTS_H_
#define RAILHOP_CC_ADMIN_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cc/admin/records.h"

namespace railhop::admin {

// Of a message, without its length before it.
inline constexpr size_t kMessageBytesMax = 16 << 20;
// A request is short: longer ones are refused unread.
inline constexpr size_t kRequestBytesMax = 64 << 10;
inline constexpr uint32_t kEventsMax = 4096;
inline constexpr uint32_t kEventsDefault = 1024;
// A longer wait is cut to it.
inline constexpr int64_t kWaitNsMax = 60'000'000'000;

struct GetProcess {
  friend bool operator==(const GetProcess&, const GetProcess&) = default;
};
struct GetHealth {
  friend bool operator==(const GetHealth&, const GetHealth&) = default;
};
struct GetStats {
  friend bool operator==(const GetStats&, const GetStats&) = default;
};
struct GetEvents {
  uint64_t after = 0;
  uint32_t limit = kEventsDefault;
  int64_t wait_ns = 0;
  friend bool operator==(const GetEvents&, const GetEvents&) = default;
};
struct ForceFailover {
  std::string target;
  FailoverMode mode = FailoverMode::kDrain;
  friend bool operator==(const ForceFailover&, const ForceFailover&) = default;
};
struct FailBack {
  std::string target;
  friend bool operator==(const FailBack&, const FailBack&) = default;
};
struct Hold {
  std::string target;
  friend bool operator==(const Hold&, const Hold&) = default;
};
struct Release {
  std::string target;
  friend bool operator==(const Release&, const Release&) = default;
};
struct GetConfig {
  friend bool operator==(const GetConfig&, const GetConfig&) = default;
};
struct SetOption {
  std::string name;
  std::string value;
  friend bool operator==(const SetOption&, const SetOption&) = default;
};

using Request = std::variant<GetProcess, GetHealth, GetStats, GetEvents, ForceFailover, FailBack,
                             Hold, Release, GetConfig, SetOption>;

struct Config {
  std::vector<Option> options;
  friend bool operator==(const Config&, const Config&) = default;
};

using Response = std::variant<Failure, Process, Health, Stats, EventList, Outcome, Config, Option>;

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_REQUESTS_H_
