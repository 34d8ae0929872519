// Prints docs/reference/faults.md.
#include <cstdio>

#include "cc/rdma_model/fault_grammar.h"

int main() {
  std::fputs(railhop::rdma::FaultReferenceMarkdown().c_str(), stdout);
  return 0;
}
