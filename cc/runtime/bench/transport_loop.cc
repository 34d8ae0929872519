// Messages between two ends in one process, for callgrind: transport_loop MESSAGES OUTSTANDING
// [DEVICES [BYTES]].
//
// Sends, receives and their tests are called as NCCL would, but so that no test is called in vain;
// a pending test and a send before its receive are made once for each round, and counted apart.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cc/runtime/testing/pair.h"
#include "cc/runtime/transport.h"

namespace railhop::runtime {

int RunChild(const std::vector<std::string>&) { return 1; }

namespace {

// Callgrind counts inside these; noipa, which only gcc has, keeps equal ones apart.
#ifdef __clang__
#define RAILHOP_APART __attribute__((noinline))
#else
#define RAILHOP_APART __attribute__((noipa))
#endif
RAILHOP_APART Outcome CountedSend(SendComm* comm, Buffer* b, size_t size, Request** r) {
  return Transport::ISend(comm, b->data(), size, 1, b->memory(), r);
}
RAILHOP_APART Outcome CountedReceive(RecvComm* comm, Buffer* b, Request** r) {
  void* data = b->data();
  const size_t size = b->size();
  const int tag = 1;
  Memory* memory = b->memory();
  return Transport::IRecv(comm, 1, &data, &size, &tag, &memory, r);
}
RAILHOP_APART Outcome CountedSendDone(Request* r, int* done) {
  int size;
  return Transport::Test(r, done, &size);
}
RAILHOP_APART Outcome CountedReceiveDone(Request* r, int* done) {
  int size;
  return Transport::Test(r, done, &size);
}
RAILHOP_APART Outcome CountedPending(Request* r, int* done) {
  int size;
  return Transport::Test(r, done, &size);
}
RAILHOP_APART Outcome CountedEarlySend(SendComm* comm, Buffer* b, Request** r) {
  return Transport::ISend(comm, b->data(), b->size(), 1, b->memory(), r);
}

int Run(int messages, int outstanding, int devices, size_t bytes) {
  RunningTransport running;
  int from = 0;
  int to = 1;
  if (devices > 1) {
    std::vector<int> parts;
    for (int i = 0; i < devices; ++i) parts.push_back(i);
    from = to = Transport::MakeVirtualDevice(parts).value();
  }
  Pair pair = Pair::Make(from, to);
  std::vector<std::unique_ptr<Buffer>> out;
  std::vector<std::unique_ptr<Buffer>> in;
  for (int i = 0; i < outstanding; ++i) {
    out.push_back(std::make_unique<Buffer>(AsConnection(pair.send), bytes));
    in.push_back(std::make_unique<Buffer>(AsConnection(pair.recv), bytes));
  }
  std::vector<Request*> sends(outstanding);
  std::vector<Request*> receives(outstanding);
  for (int first = 0; first < messages; first += outstanding) {
    Request* early = nullptr;
    CountedEarlySend(pair.send, out[0].get(), &early);
    for (int i = 0; i < outstanding; ++i) {
      CountedReceive(pair.recv, in[i].get(), &receives[i]);
      if (receives[i] == nullptr) return 1;
    }
    int done = 0;
    CountedPending(receives[0], &done);
    for (int i = 0; i < outstanding; ++i) {
      CountedSend(pair.send, out[i].get(), bytes, &sends[i]);
      if (sends[i] == nullptr) return 2;
    }
    for (int i = 0; i < outstanding; ++i) {
      CountedSendDone(sends[i], &done);
      if (done == 0) return 3;
      CountedReceiveDone(receives[i], &done);
      if (done == 0) return 4;
    }
  }
  out.clear();
  in.clear();
  pair.Close();
  return 0;
}

}  // namespace
}  // namespace railhop::runtime

int main(int argc, char** argv) {
  const auto number = [argc, argv](int i, int otherwise) {
    return argc > i ? atoi(argv[i]) : otherwise;
  };
  const int result =
      railhop::runtime::Run(number(1, 1000), number(2, 1), number(3, 1), number(4, 4096));
  if (result != 0) fprintf(stderr, "stopped at step %d\n", result);
  return result;
}
