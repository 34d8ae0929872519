#include "cc/engine/table.h"

namespace railhop::engine {

std::string BitNames(uint32_t bits, uint32_t all, std::span<const char* const> names) {
  if (bits == all) return "any";
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if ((bits >> i & 1) == 0) continue;
    if (!text.empty()) text += ", ";
    text += names[i];
  }
  return text;
}

std::string Page(std::string_view title, std::string_view text, std::span<const PageRow> rows) {
  std::string page = "# " + std::string(title) + "\n\n" + std::string(text) +
                     "\nOf the rows that fit a state and an event, the first whose guard holds is "
                     "taken.\nNo next state: it stays.\n\n"
                     "| row | in | on | if | does | next | why |\n"
                     "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const PageRow& row : rows) {
    page += "| " + row.id + " | " + row.states + " | " + row.events + " | " + row.guard + " | " +
            row.actions + " | " + row.next + " | " + row.why + " |\n";
  }
  return page;
}

}  // namespace railhop::engine
