// What the tables of the state machines have in common: a row, the proof that a table is complete,
// and the page that is made from it.
//
// A row is for a set of states and a set of events; of those that fit, the first whose guard holds
// is taken. Complete() proves at compile time that for each state and event exactly one row without
// a guard fits, and that it is the last: nothing falls through, and no row is out of reach.
#ifndef RAILHOP_CC_ENGINE_TABLE_H_
#define RAILHOP_CC_ENGINE_TABLE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace railhop::engine {

// Bits of states and of events.
constexpr uint32_t In(auto... which) { return (0u | ... | (1u << static_cast<int>(which))); }

// Guard and Do are enums whose value 0 means "always" and "nothing more".
template <typename Guard, typename Do>
struct TableRow {
  static constexpr int kSame = -1;
  const char* id;   // Machine letter and number, situation, result: the name of its test
  uint32_t states;  // bits
  uint32_t events;  // bits
  Guard guard;
  std::array<Do, 6> actions;
  int next;         // a state, or kSame
  const char* why;  // for the page
};

template <typename Row, size_t N>
constexpr bool IdsAreUnique(const std::array<Row, N>& rows) {
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = i + 1; j < N; ++j) {
      if (std::string_view(rows[i].id) == rows[j].id) return false;
    }
  }
  return true;
}

template <typename Row>
constexpr bool Fits(const Row& row, int state, int event) {
  return (row.states >> state & 1) != 0 && (row.events >> event & 1) != 0;
}

// `states`: bits of those that can be.
template <typename Row, size_t N>
constexpr bool IsComplete(const std::array<Row, N>& rows, uint32_t states, int events) {
  for (int state = 0; state < 32; ++state) {
    if ((states >> state & 1) == 0) continue;
    for (int event = 0; event < events; ++event) {
      bool closed = false;
      for (const Row& row : rows) {
        if (!Fits(row, state, event)) continue;
        if (closed) return false;
        closed = static_cast<int>(row.guard) == 0;
      }
      if (!closed) return false;
    }
  }
  return true;
}

// No row names a state or an event that cannot be, and each leads to a state that can be.
template <typename Row, size_t N>
constexpr bool IsWithin(const std::array<Row, N>& rows, uint32_t states, int events) {
  for (const Row& row : rows) {
    if (row.states == 0 || (row.states & ~states) != 0) return false;
    if (row.events == 0 || (row.events >> events) != 0) return false;
    if (row.next != Row::kSame && (states >> row.next & 1) == 0) return false;
  }
  return true;
}

// ---- The page.

struct PageRow {
  std::string id;
  std::string states;
  std::string events;
  std::string guard;
  std::string actions;
  std::string next;
  std::string why;
};
// From one state to another, by these events.
struct PageEdge {
  std::string from;
  std::string to;
  std::set<std::string> events;
};
// Markdown: the heading, the text, the diagram and the rows.
std::string Page(std::string_view title, std::string_view text, std::span<const PageEdge> edges,
                 std::span<const PageRow> rows);

// A name for several states or events at once.
struct BitGroup {
  uint32_t bits;
  const char* name;
};
// Names joined by ", ", or that of the group that it is.
std::string BitNames(uint32_t bits, std::span<const BitGroup> groups,
                     std::span<const char* const> names);

template <typename Row, size_t N>
std::array<PageRow, N> PageRows(const std::array<Row, N>& rows, std::span<const BitGroup> groups,
                                std::span<const char* const> state_names,
                                std::span<const char* const> event_names,
                                std::span<const char* const> guard_names,
                                std::span<const char* const> action_names,
                                std::span<const char* const> next_names) {
  std::array<PageRow, N> page;
  const std::array<BitGroup, 1> all_events = {{{(1u << event_names.size()) - 1, "any"}}};
  for (size_t i = 0; i < N; ++i) {
    const Row& row = rows[i];
    page[i].id = row.id;
    page[i].states = BitNames(row.states, groups, state_names);
    page[i].events = BitNames(row.events, all_events, event_names);
    page[i].guard = guard_names[static_cast<size_t>(row.guard)];
    for (const auto action : row.actions) {
      if (static_cast<int>(action) == 0) break;
      if (!page[i].actions.empty()) page[i].actions += ", ";
      page[i].actions += action_names[static_cast<size_t>(action)];
    }
    if (row.next != Row::kSame) page[i].next = next_names[static_cast<size_t>(row.next)];
    page[i].why = row.why;
  }
  return page;
}

template <typename Row, size_t N>
std::vector<PageEdge> PageEdges(const std::array<Row, N>& rows, int states,
                                std::span<const char* const> state_names,
                                std::span<const char* const> event_names) {
  std::vector<PageEdge> edges;
  for (int state = 0; state < states; ++state) {
    for (const Row& row : rows) {
      if (row.next == Row::kSame || (row.states >> state & 1) == 0) continue;
      const std::string from = state_names[static_cast<size_t>(state)];
      const std::string to = state_names[static_cast<size_t>(row.next)];
      if (from == to) continue;
      auto edge = std::find_if(edges.begin(), edges.end(), [&](const PageEdge& other) {
        return other.from == from && other.to == to;
      });
      if (edge == edges.end()) edge = edges.insert(edges.end(), PageEdge{from, to, {}});
      for (size_t event = 0; event < event_names.size(); ++event) {
        if ((row.events >> event & 1) != 0) edge->events.insert(event_names[event]);
      }
    }
  }
  return edges;
}

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_TABLE_H_
