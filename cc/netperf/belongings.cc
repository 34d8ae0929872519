#include "cc/netperf/belongings.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>

namespace railhop::netperf {
namespace {

constexpr int kMoments = 50;
constexpr useconds_t kMomentUs = 2000;

std::set<std::string> Names(const char* folder) {
  std::set<std::string> names;
  DIR* const opened = opendir(folder);
  if (opened == nullptr) return names;
  const std::string own = std::to_string(dirfd(opened));
  while (const dirent* entry = readdir(opened)) {
    if (entry->d_name[0] != '.' && entry->d_name != own) names.insert(entry->d_name);
  }
  closedir(opened);
  return names;
}

std::set<std::string> Threads() { return Names("/proc/self/task"); }
std::set<std::string> Descriptors() { return Names("/proc/self/fd"); }

std::string ThreadName(const std::string& thread) {
  char name[32] = "?";
  FILE* const file = fopen(("/proc/self/task/" + thread + "/comm").c_str(), "r");
  if (file == nullptr) return name;
  if (fscanf(file, "%31s", name) != 1) name[0] = '?';
  fclose(file);
  return name;
}

std::string DescriptorName(const std::string& descriptor) {
  char name[64] = {};
  const ssize_t size = readlink(("/proc/self/fd/" + descriptor).c_str(), name, sizeof(name) - 1);
  return size < 0 ? "?" : name;
}

}  // namespace

Belongings::Belongings() : threads_(Threads()), descriptors_(Descriptors()) {}

Leftovers Belongings::Left() const {
  for (int i = 0; i < kMoments && Threads().size() > threads_.size(); ++i) usleep(kMomentUs);
  Leftovers left;
  std::string names;
  for (const std::string& thread : Threads()) {
    if (threads_.contains(thread)) continue;
    ++left.threads;
    names += "thread " + ThreadName(thread) + ", ";
  }
  for (const std::string& descriptor : Descriptors()) {
    if (descriptors_.contains(descriptor)) continue;
    ++left.descriptors;
    names += DescriptorName(descriptor) + ", ";
  }
  if (!names.empty()) names.resize(names.size() - 2);
  snprintf(left.names, sizeof(left.names), "%s", names.c_str());
  return left;
}

}  // namespace railhop::netperf
