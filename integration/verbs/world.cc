#include "integration/verbs/world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace railhop::conformance {
namespace {

constexpr size_t kGuardBytes = 8192;
constexpr size_t kPage = 4096;
constexpr uint8_t kGuardByte = 0xa5;

}  // namespace

Buffer::Buffer(size_t size, size_t skew) : size_(size) {
  map_size_ = (kGuardBytes * 2 + skew + size + kPage - 1) / kPage * kPage;
  void* map = mmap(nullptr, map_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) Fail("no memory for a buffer of " + std::to_string(size) + " bytes");
  map_ = static_cast<uint8_t*>(map);
  data_ = map_ + kGuardBytes + skew;
  memset(map_, kGuardByte, map_size_);
  memset(data_, 0, size_);
}

Buffer::~Buffer() { munmap(map_, map_size_); }

void Buffer::Fill(uint32_t seed) const {
  for (size_t i = 0; i < size_; ++i) data_[i] = Pattern(seed, i);
}

void Buffer::ExpectPattern(size_t offset, size_t length, uint32_t seed, size_t from,
                           const char* file, int line) const {
  for (size_t i = 0; i < length; ++i) {
    if (data_[offset + i] == Pattern(seed, from + i)) continue;
    Fail("wrong byte at offset " + std::to_string(offset + i) + " of a buffer of " +
             std::to_string(size_) + " (byte " + std::to_string(i) + " of " +
             std::to_string(length) + "): got " + std::to_string(data_[offset + i]) +
             ", expected " + std::to_string(Pattern(seed, from + i)),
         file, line);
  }
}

void Buffer::CheckGuards() const {
  for (size_t i = 0; i < map_size_; ++i) {
    if (map_ + i == data_) i += size_;
    if (i >= map_size_) break;
    if (map_[i] == kGuardByte) continue;
    const ptrdiff_t offset = map_ + i - data_;
    Fail("guard zone overwritten at offset " + std::to_string(offset) + " of a buffer of " +
         std::to_string(size_) + " bytes");
  }
}

std::vector<std::string> ListDevices(const VerbsTable& v) {
  int count = 0;
  ibv_device** list = v.get_device_list(&count);
  std::vector<std::string> names;
  if (list == nullptr) return names;
  for (int i = 0; i < count; ++i) names.push_back(v.get_device_name(list[i]));
  v.free_device_list(list);
  return names;
}

World::World(const VerbsTable& verbs, const Options& options)
    : v(verbs), options(options), devices_(options.devices) {
  if (devices_.empty()) {
    devices_ = ListDevices(v);
    if (devices_.size() > 2) devices_.resize(2);
  }
  if (devices_.empty()) Fail("the library lists no device");
}

Buffer& World::NewBuffer(size_t size, size_t skew) {
  buffers_.push_back(std::make_unique<Buffer>(size, skew));
  return *buffers_.back();
}

void World::CheckGuards() const {
  for (const auto& buffer : buffers_) buffer->CheckGuards();
}

bool World::WaitUntil(const std::function<bool()>& done, double seconds) const {
  const double end = Now() + seconds * options.time_factor;
  while (!done()) {
    if (Now() > end) return done();
    v.idle();
  }
  return true;
}

void World::Pass(double seconds) const {
  const double end = Now() + seconds;
  while (Now() < end) v.idle();
}

void World::Fault(const std::string& name, const std::string& words) const {
  const std::string device = options.port == 1 ? name : name + ":" + std::to_string(options.port);
  if (v.fault != nullptr) {
    std::string error;
    if (!v.fault(device, words, &error)) Fail("'" + device + " " + words + "': " + error);
    return;
  }
  if (options.fault_command.empty()) Fail("this case needs --fault-command");
  const std::string command = options.fault_command + " " + device + " " + words;
  const int status = system(command.c_str());
  if (status != 0) Fail("`" + command + "` gave status " + std::to_string(WEXITSTATUS(status)));
}

void World::Heal() const {
  for (const std::string& device : {first_device(), second_device()}) {
    Fault(device, "up");
    Fault(device, "clear");
  }
}

}  // namespace railhop::conformance
