// Fields of control messages, read with their ranges. Only for codec.cc.
#ifndef RAILHOP_CC_CONTROL_CODEC_FIELDS_H_
#define RAILHOP_CC_CONTROL_CODEC_FIELDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace railhop::control {

// Remembers the first field that was out of range. Values that are refused come out as the
// smallest allowed one, so nothing later meets a wild number. Not thread-safe.
class FieldReader {
 public:
  // `kind` lives as long as this.
  explicit FieldReader(const char* kind) : kind_(kind) {}

  template <typename T>
  T Number(const char* field, uint64_t value, uint64_t most, uint64_t least = 0) {
    if (value >= least && value <= most) return static_cast<T>(value);
    Refuse(absl::StrCat(field, " is ", value, ", allowed are ", least, " to ", most));
    return static_cast<T>(least);
  }
  int Signed(const char* field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return static_cast<int>(value);
    Refuse(absl::StrCat(field, " is ", value, ", allowed are ", least, " to ", most));
    return static_cast<int>(least);
  }
  // Whether a list of this length may be read.
  bool Count(const char* field, int size, size_t most) {
    if (static_cast<size_t>(size) <= most) return true;
    Refuse(absl::StrCat(size, " ", field, ", at most ", most, " are allowed"));
    return false;
  }
  bool Present(const char* field, bool present) {
    if (!present) Refuse(absl::StrCat(field, " is missing"));
    return present;
  }
  std::array<uint8_t, 16> Gid(const std::string& bytes) {
    std::array<uint8_t, 16> gid = {};
    if (bytes.size() == gid.size()) {
      std::copy(bytes.begin(), bytes.end(), gid.begin());
    } else {
      Refuse(absl::StrCat("gid has ", bytes.size(), " bytes, not 16"));
    }
    return gid;
  }
  // What cannot be printed becomes '?'.
  std::string Text(const char* field, const std::string& bytes, size_t most) {
    std::string text;
    if (bytes.size() > most) {
      Refuse(absl::StrCat(field, " has ", bytes.size(), " characters, at most ", most,
                          " are allowed"));
      return text;
    }
    for (const char c : bytes) text += c >= 0x20 && c < 0x7f ? c : '?';
    return text;
  }
  void Refuse(const std::string& why) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat("control message ", kind_, ": ", why));
  }
  const absl::Status& status() const { return status_; }

 private:
  const char* const kind_;
  absl::Status status_;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_CODEC_FIELDS_H_
