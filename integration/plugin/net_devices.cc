// Prints the net devices that a plugin shows, one on a line; the plugin's log goes to standard
// error.
//
//   net_devices PLUGIN VERSION [COUNT]   waits (60 s at most) until there are COUNT
//
// Line: index name:port speed_mbps PCI-address rail plane ptr_support. Status 3: init failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "integration/plugin/net_api.h"

namespace {

using railhop::integration::NetApi;
using railhop::integration::Properties;
namespace nccl = railhop::nccl;

int Count(NetApi* net) {
  int count = 0;
  return net->Devices(&count) == nccl::kSuccess ? count : -1;
}

void Print(NetApi* net, int dev) {
  Properties p;
  if (net->GetProperties(dev, &p) != nccl::kSuccess) return;
  const std::string pci = p.pci_path.substr(p.pci_path.rfind('/') + 1);
  std::printf("%d %s:%d %d %s %d %d %d\n", dev, p.name.c_str(), p.port, p.speed_mbps,
              pci.empty() ? "-" : pci.c_str(), p.rail, p.plane, p.ptr_support);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: net_devices PLUGIN VERSION [COUNT]\n");
    return 2;
  }
  std::string error;
  const auto net = NetApi::Load(argv[1], std::atoi(argv[2]), &error);
  if (net == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  std::printf("name %s\n", net->name().c_str());
  if (net->Init(nccl::kUndefined) != nccl::kSuccess) return 3;
  const int wanted = argc > 3 ? std::atoi(argv[3]) : 0;
  std::printf("ready\n");
  std::fflush(stdout);
  for (int i = 0; i < 6000 && Count(net.get()) < wanted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int dev = 0; dev < Count(net.get()); ++dev) Print(net.get(), dev);
  return net->Finalize() == nccl::kSuccess ? 0 : 1;
}
