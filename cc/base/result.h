// A value or a sentence that says why there is none.
//
// For code that must not link Abseil: the software fabric is loaded into arbitrary programs, so it
// and what it shares with the simulator stay free of dependencies. All other code uses
// absl::StatusOr. A function returns a T, or Error{"..."}.
#ifndef RAILHOP_CC_BASE_RESULT_H_
#define RAILHOP_CC_BASE_RESULT_H_

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace railhop {

// Why a call could not do what it was asked: one line, no full stop, naming the input.
struct Error {
  std::string text;
};

// Not thread-safe; as a std::variant.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }

  // The value. Only if ok(): aborts otherwise.
  const T& value() const& {
    if (!ok()) std::abort();
    return *std::get_if<0>(&state_);
  }
  T& value() & {
    if (!ok()) std::abort();
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  // The sentence; empty if ok().
  const std::string& error() const {
    static const std::string kNone;
    return ok() ? kNone : std::get_if<1>(&state_)->text;
  }

 private:
  std::variant<T, Error> state_;
};

}  // namespace railhop

#endif  // RAILHOP_CC_BASE_RESULT_H_
