// A result, or why there is none.
#ifndef RAILHOP_CC_ADMIN_REPLY_H_
#define RAILHOP_CC_ADMIN_REPLY_H_

#include <utility>
#include <variant>

#include "cc/admin/records.h"

namespace railhop::admin {

// What a call of the admin API gives. Not thread-safe; as a std::variant.
template <typename T>
class [[nodiscard]] Reply {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a function returns either.
  Reply(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Reply(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  bool ok() const { return state_.index() == 0; }
  // The result. Only if ok(): throws std::bad_variant_access otherwise.
  const T& value() const { return std::get<0>(state_); }
  T& value() { return std::get<0>(state_); }
  const T& operator*() const { return value(); }
  T& operator*() { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  // Why there is none. Only if !ok().
  const Failure& failure() const { return std::get<1>(state_); }

 private:
  std::variant<T, Failure> state_;
};

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_REPLY_H_
