// Sends messages from a net device to itself, through any plugin.
//
//   send_messages PLUGIN VERSION SIZE COUNT TRAFFIC_CLASS DEVICE...
//
// Several devices are fused. Status: 0 all arrived, 3 init failed, 4 no connection, 5 a request
// failed, 6 wrong bytes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "integration/plugin/net_api.h"

namespace {

using railhop::integration::NetApi;
namespace nccl = railhop::nccl;

constexpr auto kPatience = std::chrono::seconds(60);

struct Connection {
  void* listen = nullptr;
  void* send = nullptr;
  void* recv = nullptr;
};

bool Connect(NetApi* net, int dev, Connection* c) {
  alignas(8) char handle[nccl::kHandleBytes] = {};
  if (net->Listen(dev, handle, &c->listen) != nccl::kSuccess) return false;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (c->send == nullptr || c->recv == nullptr) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (c->send == nullptr && net->Connect(dev, handle, &c->send) != nccl::kSuccess) return false;
    if (c->recv == nullptr && net->Accept(c->listen, &c->recv) != nccl::kSuccess) return false;
    std::this_thread::yield();
  }
  return true;
}

// Waits for one request; false if it failed.
bool Finish(NetApi* net, void* request) {
  int done = 0;
  int size = 0;
  while (done == 0) {
    if (net->Test(request, &done, &size) != nccl::kSuccess) return false;
    if (done == 0) std::this_thread::yield();
  }
  return true;
}

bool SendOne(NetApi* net, const Connection& c, std::vector<char>* from, void* from_memory,
             std::vector<char>* to, void* to_memory) {
  void* data[] = {to->data()};
  const size_t sizes[] = {to->size()};
  int tags[] = {1};
  void* memories[] = {to_memory};
  void* receive = nullptr;
  void* send = nullptr;
  while (receive == nullptr) {
    if (net->IRecv(c.recv, 1, data, sizes, tags, memories, &receive) != nccl::kSuccess) {
      return false;
    }
  }
  while (send == nullptr) {
    if (net->ISend(c.send, from->data(), from->size(), 1, from_memory, &send) != nccl::kSuccess) {
      return false;
    }
  }
  return Finish(net, send) && Finish(net, receive);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr,
                 "usage: send_messages PLUGIN VERSION SIZE COUNT TRAFFIC_CLASS DEVICE...\n");
    return 2;
  }
  std::string error;
  const auto net = NetApi::Load(argv[1], std::atoi(argv[2]), &error);
  if (net == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  if (net->Init(std::atoi(argv[5])) != nccl::kSuccess) return 3;
  std::vector<int> devices;
  for (int i = 6; i < argc; ++i) devices.push_back(std::atoi(argv[i]));
  int dev = devices[0];
  if (devices.size() > 1 && net->MakeVDevice(&dev, devices) != nccl::kSuccess) return 4;
  Connection c;
  if (!Connect(net.get(), dev, &c)) return 4;
  std::vector<char> from(static_cast<size_t>(std::atoll(argv[3])), 'x');
  std::vector<char> to(from.size());
  void* from_memory = nullptr;
  void* to_memory = nullptr;
  if (net->RegMr(c.send, from.data(), from.size(), nccl::kPtrHost, &from_memory) !=
          nccl::kSuccess ||
      net->RegMr(c.recv, to.data(), to.size(), nccl::kPtrHost, &to_memory) != nccl::kSuccess) {
    return 5;
  }
  for (int i = 0; i < std::atoi(argv[4]); ++i) {
    std::fill(to.begin(), to.end(), '.');
    if (!SendOne(net.get(), c, &from, from_memory, &to, to_memory)) return 5;
    if (from != to) return 6;
  }
  net->DeregMr(c.send, from_memory);
  net->DeregMr(c.recv, to_memory);
  net->CloseSend(c.send);
  net->CloseRecv(c.recv);
  net->CloseListen(c.listen);
  return net->Finalize() == nccl::kSuccess ? 0 : 1;
}
