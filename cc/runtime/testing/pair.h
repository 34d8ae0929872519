// Connections between ends in one process or two, and buffers whose every byte is checked.
#ifndef RAILHOP_CC_RUNTIME_TESTING_PAIR_H_
#define RAILHOP_CC_RUNTIME_TESTING_PAIR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/runtime/transport.h"

namespace railhop::runtime {

// Calls `step` until it gives true; false after 60 s.
bool WaitFor(const std::function<bool()>& step);

// Starts the transport over the fabric's devices for the life of the object.
struct RunningTransport {
  struct Settings {
    datapath::DatapathConfig datapath;
    control::SocketConfig sockets;
    int ptr_support = kPointerHost;
  };
  RunningTransport() : RunningTransport(Settings{}) {}
  explicit RunningTransport(const Settings& settings);
  ~RunningTransport();
};

// Settings with which a lost peer is noticed within about a second.
RunningTransport::Settings QuickFaults();

// A connection from net device `from` to net device `to`, both ends in this process.
struct Pair {
  ListenComm* listener = nullptr;
  SendComm* send = nullptr;
  RecvComm* recv = nullptr;

  static Pair Make(int from, int to);
  // In the order send, recv, listener; leaves out what is null.
  void Close();
};

// Memory with 4,096 guard bytes on either side, registered for a connection.
class Buffer {
 public:
  Buffer(ConnectionComm* comm, size_t size);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return bytes_.data() + kGuard; }
  size_t size() const { return size_; }
  Memory* memory() const { return memory_; }

  // Fills the middle with a pattern of its own for each number.
  void Fill(uint64_t pattern);
  // Sets every byte, guards too, to what no pattern is likely to be.
  void Wipe();
  // The first `size` bytes have the pattern and all else is wiped; else says where not.
  std::string Check(uint64_t pattern, size_t size) const;

 private:
  static constexpr size_t kGuard = 4096;

  const size_t size_;
  ConnectionComm* const comm_;
  std::vector<uint8_t> bytes_;
  Memory* memory_ = nullptr;
};

// Posts one until there is a request; null if it fails (*outcome tells) or takes 60 s.
Request* PostSend(SendComm* comm, Buffer* buffer, size_t size, int tag, Outcome* outcome);
Request* PostRecv(RecvComm* comm, const std::vector<Buffer*>& buffers, const std::vector<int>& tags,
                  Outcome* outcome);
// Tests until done; false if it fails or takes 60 s.
bool Finish(Request* request, std::vector<int>* sizes, Outcome* outcome);

// The part of a test that runs in another process: fabric_main.cc calls it with the words after
// --child. Each test program defines it.
int RunChild(const std::vector<std::string>& words);

// This program again as a child with pipes to its standard input and output.
class Child {
 public:
  explicit Child(const std::vector<std::string>& words);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Write(const void* data, size_t size);
  // False at the end of its output.
  bool Read(void* data, size_t size);
  void Kill();
  // Exit status; 128 + signal.
  int Wait();

 private:
  int pid_ = -1;
  int in_ = -1;
  int out_ = -1;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_TESTING_PAIR_H_
