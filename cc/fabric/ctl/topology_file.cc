#include "cc/fabric/ctl/topology_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cc/fabric/ctl/builtin_topologies.h"
#include "cc/rdma_model/topology_text.h"

namespace railhop::fabric {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

bool ReadFile(const std::string& path, std::string* text, std::string* error) {
  FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    *error = path + ": " + std::strerror(errno);
    return false;
  }
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file)) {
    text->append(buffer, n);
    if (text->size() > kMaxFileBytes) break;
  }
  const bool bad = std::ferror(file) != 0;
  const int read_errno = errno;
  std::fclose(file);
  if (bad) *error = path + ": " + std::strerror(read_errno);
  if (text->size() > kMaxFileBytes) *error = path + ": too large for a topology";
  return !bad && text->size() <= kMaxFileBytes;
}

}  // namespace

std::optional<rdma::Topology> LoadTopology(const std::string& file_or_name, std::string* error) {
  if (file_or_name.empty() || file_or_name == "default") return rdma::DefaultTopology();
  std::string text;
  if (ReadFile(file_or_name, &text, error)) {
    return rdma::ParseTopology(text, file_or_name, error);
  }
  if (file_or_name.find('/') != std::string::npos) return std::nullopt;
  std::string known = "default";
  for (const BuiltinTopology* builtin = kBuiltinTopologies; builtin->name != nullptr; ++builtin) {
    if (file_or_name == builtin->name) {
      return rdma::ParseTopology(builtin->text, file_or_name, error);
    }
    known += std::string(", ") + builtin->name;
  }
  *error += "; allowed: a file, or one of " + known;
  return std::nullopt;
}

}  // namespace railhop::fabric
