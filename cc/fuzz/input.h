// What all fuzz targets share: taking an input apart, and stopping when a property does not hold.
//
// Depends on nothing, so that a target is built with little more than what it is about.
#ifndef RAILHOP_CC_FUZZ_INPUT_H_
#define RAILHOP_CC_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace railhop::fuzz {

// Takes values from the front; past the end they are 0 or empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const char byte = rest_.front();
    rest_.remove_prefix(1);
    return static_cast<uint8_t>(byte);
  }
  // Little-endian.
  template <typename T>
  T Number() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{Byte()} << (8 * i);
    return static_cast<T>(value);
  }
  std::string_view Text(size_t most) {
    const std::string_view text = rest_.substr(0, most);
    rest_.remove_prefix(text.size());
    return text;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// Says what does not hold, and of what, and ends the process.
inline void Require(bool holds, const char* what, std::string_view subject = "") {
  if (holds) return;
  std::fprintf(stderr, "property does not hold: %s\n", what);
  if (!subject.empty()) {
    std::fprintf(stderr, "subject: %.*s\n",
                 static_cast<int>(std::min<size_t>(subject.size(), 4000)), subject.data());
  }
  std::abort();
}

inline bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// A message that people get: a line that can be read, and that ends.
inline void RequireReadable(std::string_view message) {
  constexpr size_t kMost = 2000;
  Require(!message.empty() && message.size() <= kMost, "a message has 1 to 2000 bytes", message);
  Require(IsPrintable(message), "a message is one printable line", message);
}

}  // namespace railhop::fuzz

#endif  // RAILHOP_CC_FUZZ_INPUT_H_
