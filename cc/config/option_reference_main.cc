// Prints docs/reference/environment.md.
#include <cstdio>

#include "cc/config/option_table.h"

int main() {
  std::fputs(railhop::config::OptionReferenceMarkdown().c_str(), stdout);
  return 0;
}
