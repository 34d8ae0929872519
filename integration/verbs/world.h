// Where a case runs: the library's table, the devices, memory with guard zones, waiting with
// deadlines, faults.
#ifndef RAILHOP_INTEGRATION_VERBS_WORLD_H_
#define RAILHOP_INTEGRATION_VERBS_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "integration/verbs/case.h"
#include "integration/verbs/verbs_table.h"

namespace railhop::conformance {

struct Options {
  std::string library = "libibverbs.so.1";
  std::vector<std::string> devices;  // one or two names; empty: the first two of the library's list
  uint8_t port = 1;
  int gid_index = -1;  // -1: the first routable one, else 0
  std::string fabric = "unnamed";
  std::string expect;         // file, see expectations.h; empty: nothing is declared
  std::string fault_command;  // runs as `COMMAND DEVICE WORDS...`; empty: no faults
  std::string filter;         // case names to run: words with * and ?, separated by ':'; empty: all
  std::string report;         // JSON file; empty: none
  std::string junit;          // XML file; empty: none
  int deadline_s = 90;        // for one case, then it is killed and has failed
  double time_factor = 1;     // multiplies the waits for something that should come
  bool list = false;          // print the cases as JSON and leave
};

// Memory between two zones of a known pattern, which CheckGuards() looks at after the case.
class Buffer {
 public:
  // `skew` bytes lie between the guard zone's end, which is page-aligned, and data().
  explicit Buffer(size_t size, size_t skew = 0);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data_); }
  size_t size() const { return size_; }
  // Byte i becomes Pattern(seed, i).
  void Fill(uint32_t seed) const;
  // Fails unless `length` bytes from `offset` are Pattern(seed, from), Pattern(seed, from + 1), ...
  void ExpectPattern(size_t offset, size_t length, uint32_t seed, size_t from = 0,
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  static uint8_t Pattern(uint32_t seed, size_t i) {
    return static_cast<uint8_t>((i * 167 + (i >> 8) * 13 + seed * 101 + 7) & 0xff);
  }
  // Fails when a byte of a guard zone has changed.
  void CheckGuards() const;

 private:
  uint8_t* map_ = nullptr;
  size_t map_size_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class World {
 public:
  World(const VerbsTable& verbs, const Options& options);

  const VerbsTable& v;
  const Options& options;

  const std::string& first_device() const { return devices_.front(); }
  // The same as the first one when there is only one.
  const std::string& second_device() const { return devices_.back(); }

  Buffer& NewBuffer(size_t size, size_t skew = 0);
  void CheckGuards() const;

  // Turns until `done` says so; false when `seconds` (times time_factor) have passed.
  bool WaitUntil(const std::function<bool()>& done, double seconds = 10) const;
  // Lets `seconds` pass, turning.
  void Pass(double seconds) const;
  double Now() const { return static_cast<double>(v.now_ns()) * 1e-9; }

  // Runs the fault command. Fails when there is none or it fails.
  void Fault(const std::string& device, const std::string& words) const;
  // Takes every fault of both devices away again.
  void Heal() const;

 private:
  std::vector<std::string> devices_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// The devices that the library lists, by name.
std::vector<std::string> ListDevices(const VerbsTable& v);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_WORLD_H_
