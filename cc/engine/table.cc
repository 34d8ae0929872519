#include "cc/engine/table.h"

namespace railhop::engine {

std::string BitNames(uint32_t bits, std::span<const BitGroup> groups,
                     std::span<const char* const> names) {
  for (const BitGroup& group : groups) {
    if (group.bits == bits) return group.name;
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if ((bits >> i & 1) == 0) continue;
    if (!text.empty()) text += ", ";
    text += names[i];
  }
  return text;
}

std::string Page(std::string_view title, std::string_view text, std::span<const PageEdge> edges,
                 std::span<const PageRow> rows) {
  std::string page = "# " + std::string(title) + "\n\n" + std::string(text);
  if (!edges.empty()) {
    page += "\n```mermaid\nstateDiagram-v2\n";
    for (const PageEdge& edge : edges) {
      page += "  " + edge.from + " --> " + edge.to + ": ";
      bool first = true;
      for (const std::string& event : edge.events) {
        page += (first ? "" : ", ") + event;
        first = false;
      }
      page += "\n";
    }
    page += "```\n";
  }
  page +=
      "\nOf the rows that fit a state and an event, the first whose condition holds is taken. "
      "Without a next\nstate it stays. Every row has a test of its name.\n\n"
      "| row | in | on | if | does | next | why |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const PageRow& row : rows) {
    page += "| " + row.id + " | " + row.states + " | " + row.events + " | " + row.guard + " | " +
            row.actions + " | " + row.next + " | " + row.why + " |\n";
  }
  return page;
}

}  // namespace railhop::engine
