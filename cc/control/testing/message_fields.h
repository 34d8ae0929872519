// Walks the numbers and texts of a message, field by field, whatever kind it is: for tests that
// must not forget a field that is added later. Testonly.
//
// A struct's fields are counted by how many initializers it takes, and named by structured
// bindings; a struct with more fields than FieldsOf knows does not compile.
#ifndef RAILHOP_CC_CONTROL_TESTING_MESSAGE_FIELDS_H_
#define RAILHOP_CC_CONTROL_TESTING_MESSAGE_FIELDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/engine/messages.h"

namespace railhop::control::testing {

struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: never defined, only asked about
};

template <typename T, size_t... i>
constexpr bool TakesInitializers(std::index_sequence<i...>) {
  return requires { T{(static_cast<void>(i), Anything{})...}; };
}

template <typename T, size_t n = 16>
constexpr size_t FieldCount() {
  static_assert(n > 0);
  if constexpr (TakesInitializers<T>(std::make_index_sequence<n>())) {
    return n;
  } else {
    return FieldCount<T, n - 1>();
  }
}

template <typename T>
auto FieldsOf(T& s) {
  constexpr size_t n = FieldCount<T>();
  static_assert(n <= 11, "add a line below");
  if constexpr (n == 1) {
    auto& [a] = s;
    return std::tie(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = s;
    return std::tie(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = s;
    return std::tie(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = s;
    return std::tie(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = s;
    return std::tie(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = s;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = s;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = s;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = s;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = s;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = s;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  }
}

// Calls visit(leaf, element) for every number, flag, enumerator and text in `value`; `element` is
// its index in the innermost vector or array, 0 outside. Empty vectors get `elements` elements.
class Walk {
 public:
  explicit Walk(size_t elements) : elements_(elements) {}

  template <typename Visit>
  void Over(engine::Message* message, const Visit& visit) {
    std::visit([&](auto& body) { Value(body, 0, visit); }, *message);
  }

 private:
  template <typename T, typename Visit>
  void Value(T& value, size_t element, const Visit& visit) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
      visit(value, element);
    } else {
      std::apply([&](auto&... fields) { (Value(fields, element, visit), ...); }, FieldsOf(value));
    }
  }
  template <typename T, typename Visit>
  void Value(std::vector<T>& list, size_t, const Visit& visit) {
    if (list.empty()) list.resize(elements_);
    for (size_t i = 0; i < list.size(); ++i) Value(list[i], i, visit);
  }
  template <typename T, size_t n, typename Visit>
  void Value(std::array<T, n>& list, size_t element, const Visit& visit) {
    for (T& value : list) Value(value, element, visit);
  }

  const size_t elements_;
};

template <size_t i = 0>
void AppendEveryKind(std::vector<engine::Message>* messages) {
  if constexpr (i < std::variant_size_v<engine::Message>) {
    messages->emplace_back(std::in_place_index<i>);
    AppendEveryKind<i + 1>(messages);
  }
}

// One of each kind; every number is 1 in the first element of a list and outside of lists, 3 in the
// second element; flags are set, texts are "a".
inline std::vector<engine::Message> FullMessages() {
  std::vector<engine::Message> messages;
  AppendEveryKind(&messages);
  for (engine::Message& message : messages) {
    Walk(2).Over(&message, [](auto& leaf, size_t element) {
      using Leaf = std::remove_reference_t<decltype(leaf)>;
      if constexpr (std::is_same_v<Leaf, std::string>) {
        leaf = "a";
      } else if constexpr (std::is_same_v<Leaf, bool>) {
        leaf = true;
      } else {
        leaf = static_cast<Leaf>(element == 0 ? 1 : 3);
      }
    });
  }
  return messages;
}

}  // namespace railhop::control::testing

#endif  // RAILHOP_CC_CONTROL_TESTING_MESSAGE_FIELDS_H_
