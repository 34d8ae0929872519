// What the bindings share: words as Python enums, records as read-only classes, failures as
// exceptions.
//
// A record's class is a list of its fields, each named once: from that list come the properties,
// to_dict() and repr(). The hard case is a long list inside a record (ten thousand connections):
// its elements stay where they are and keep the whole alive, so that nothing is copied but
// pointers.
#ifndef RAILHOP_PYTHON_RAILHOP_BIND_H_
#define RAILHOP_PYTHON_RAILHOP_BIND_H_

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/admin/records.h"
#include "cc/admin/reply.h"

namespace railhop::python {

namespace py = pybind11;

// ---- Words: an enumeration of records.h is a Python enum of str.

// Its class, once BindWords has made it; never let go.
template <typename Enum>
struct WordClass {
  inline static PyObject* object = nullptr;
};

// An enumeration of records.h; its name in Python for signatures.
template <typename Enum>
struct WordName;
#define RAILHOP_WORD(name)                                                                \
  template <>                                                                             \
  struct WordName<admin::name> {                                                          \
    static constexpr auto kName = pybind11::detail::const_name("railhop._native." #name); \
  };
RAILHOP_WORD(PortState)
RAILHOP_WORD(PathState)
RAILHOP_WORD(ConnectionState)
RAILHOP_WORD(Direction)
RAILHOP_WORD(Verdict)
RAILHOP_WORD(Cause)
RAILHOP_WORD(Blame)
RAILHOP_WORD(EventKind)
RAILHOP_WORD(Severity)
RAILHOP_WORD(FailoverMode)
#undef RAILHOP_WORD

void BindWords(py::module_* module);

// ---- Failures.

// Raises the exception of railhop.errors for it. GIL held.
[[noreturn]] void Throw(const admin::Failure& failure);

// The result of a call that may wait: made without the GIL. Raises what it failed with.
template <typename Call>
auto Ask(const Call& call) {
  auto reply = [&] {
    const py::gil_scoped_release release;
    return call();
  }();
  if (!reply.ok()) Throw(reply.failure());
  return std::move(reply.value());
}

// ---- Records.

template <typename V>
inline constexpr bool kIsVector = false;
template <typename E>
inline constexpr bool kIsVector<std::vector<E>> = true;
template <typename V>
inline constexpr bool kIsRecord =
    std::is_class_v<V> && !std::is_same_v<V, std::string> && !kIsVector<V>;

using CauseCounts = std::vector<admin::CauseCount>;

// What a field of type V is in Python.
template <typename V>
struct Shown {
  using Type = V;
};
template <typename E>
struct Shown<std::vector<E>> {
  using Type = py::typing::Tuple<E, py::ellipsis>;
};
template <>
struct Shown<CauseCounts> {
  using Type = py::typing::Dict<admin::Cause, uint64_t>;
};

template <typename T>
class Record;

// The value as JSON has it.
template <typename V>
py::object Plain(const V& value) {
  if constexpr (std::is_same_v<V, CauseCounts>) {
    py::dict counts;
    for (const auto& one : value) counts[admin::Word(one.cause)] = one.count;
    return counts;
  } else if constexpr (kIsVector<V>) {
    py::list list;
    for (const auto& one : value) list.append(Plain(one));
    return list;
  } else if constexpr (std::is_enum_v<V>) {
    return py::str(admin::Word(value));
  } else if constexpr (kIsRecord<V>) {
    return Record<V>::ToDict(value);
  } else {
    return py::cast(value);
  }
}

// The value in a repr: a list is its length, a word itself.
template <typename V>
std::string Text(const V& value) {
  if constexpr (std::is_enum_v<V>) {
    return admin::Word(value);
  } else if constexpr (kIsVector<V>) {
    using Element = typename V::value_type;
    if constexpr (kIsRecord<Element>) return "<" + std::to_string(value.size()) + ">";
    return py::repr(Plain(value));
  } else if constexpr (kIsRecord<V>) {
    return Record<V>::Repr(value);
  } else {
    return py::repr(py::cast(value));
  }
}

// A read-only class of Python for a struct of records.h.
template <typename T>
class Record {
 public:
  Record(py::module_* module, const char* name, const char* doc) : class_(*module, name, doc) {
    name_ = name;
    Fields().clear();
    class_.def("to_dict", &ToDict,
               "All of it as plain values, which json can write: words as str, times and sizes as "
               "int.");
    class_.def("__repr__", &Repr);
    class_.def("__eq__", [](const T& one, const T& other) { return one == other; });
    class_.attr("__hash__") = py::none();
  }

  template <typename V>
  Record& Field(const char* name, V T::*member, const char* doc) {
    Fields().push_back({name, [member](const T& one) { return Plain(one.*member); },
                        [member](const T& one) {
                          static const T kFresh;
                          return one.*member == kFresh.*member ? "" : Text(one.*member);
                        }});
    class_.def_property_readonly(
        name,
        [member](const py::object& self) { return Show(self, self.cast<const T&>().*member); },
        doc);
    return *this;
  }

  py::class_<T>& python() { return class_; }

  static py::typing::Dict<py::str, py::object> ToDict(const T& one) {
    py::typing::Dict<py::str, py::object> all;
    for (const auto& field : Fields()) all[field.name.c_str()] = field.plain(one);
    return all;
  }

  // Leaves out what is zero, empty or not known.
  static std::string Repr(const T& one) {
    std::string text;
    for (const auto& field : Fields()) {
      const std::string value = field.text(one);
      if (!value.empty()) text += (text.empty() ? "" : ", ") + (field.name + ("=" + value));
    }
    return name_ + "(" + text + ")";
  }

 private:
  struct Entry {
    std::string name;
    std::function<py::object(const T&)> plain;
    std::function<std::string(const T&)> text;
  };
  static std::vector<Entry>& Fields() {
    static auto* const kFields = new std::vector<Entry>;
    return *kFields;
  }

  template <typename V>
  static typename Shown<V>::Type Show(const py::object& self, const V& value) {
    if constexpr (std::is_same_v<V, CauseCounts>) {
      py::dict counts;
      for (const auto& one : value) counts[py::cast(one.cause)] = one.count;
      return typename Shown<V>::Type(counts);
    } else if constexpr (kIsVector<V>) {
      py::tuple all(value.size());
      for (size_t i = 0; i < value.size(); ++i) {
        all[i] = py::cast(value[i], py::return_value_policy::reference_internal, self);
      }
      return typename Shown<V>::Type(all);
    } else {
      return value;
    }
  }

  inline static std::string name_;
  py::class_<T> class_;
};

// ---- Each in its own file.

void BindHealth(py::module_* module);
void BindStats(py::module_* module);
void BindEvents(py::module_* module);
void BindConfig(py::module_* module);
void BindProcess(py::module_* module);

}  // namespace railhop::python

namespace pybind11::detail {

template <typename Enum>
struct type_caster_enum_type_enabled<Enum,
                                     std::void_t<decltype(railhop::python::WordName<Enum>::kName)>>
    : std::false_type {};

// Out only: arguments are words.
template <typename Enum>
struct type_caster<Enum, std::void_t<decltype(railhop::python::WordName<Enum>::kName)>> {
  // pybind11 wants this name.
  static constexpr auto name =  // NOLINT(readability-identifier-naming)
      railhop::python::WordName<Enum>::kName;
  static handle cast(Enum value, return_value_policy, handle) {
    return PyObject_CallFunction(railhop::python::WordClass<Enum>::object, "s",
                                 railhop::admin::Word(value));
  }
};

}  // namespace pybind11::detail

#endif  // RAILHOP_PYTHON_RAILHOP_BIND_H_
