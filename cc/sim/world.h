// A whole cluster in one thread: hosts, NICs, links and faults made from a topology.
//
//   World world(topology, {.seed = 7});
//   Context* context = world.Open(world.FindNic("alpha/mlx5_0"));
//   ... create, connect, post ...
//   world.Fault("alpha/mlx5_0 blackhole tx after 3 messages", &error);
//   world.loop().RunUntil(...);
//
// The same seed and the same calls give the same record, byte for byte. One thread.
#ifndef RAILHOP_CC_SIM_WORLD_H_
#define RAILHOP_CC_SIM_WORLD_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/rdma_model/topology.h"
#include "cc/sim/context.h"
#include "cc/sim/fault_driver.h"
#include "cc/sim/kept.h"
#include "cc/sim/network.h"
#include "cc/sim/nic.h"

namespace railhop::sim {

class World {
 public:
  World(const rdma::Topology& topology, const Options& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  EventLoop& loop() { return shared_.loop; }
  Recorder& recorder() { return shared_.recorder; }
  Shared& shared() { return shared_; }
  FaultDriver& faults() { return *faults_; }
  Network& network() { return *network_; }
  const std::vector<std::unique_ptr<Nic>>& nics() const { return nics_; }
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  const std::vector<Port*>& ports() const { return ports_; }
  // "alpha/mlx5_0", or "mlx5_0" where one host alone has it. Null: none, or several.
  Nic* FindNic(std::string_view name) const;

  // One fault in the words of docs/reference/faults.md. False: *error says what is wrong.
  bool Fault(std::string_view text, std::string* error);

  // Opens a NIC. Null: it is removed, cannot be opened, or its host is dead; *error is the errno.
  Context* Open(Nic* nic, int* error = nullptr);
  // Closes it; EBUSY while it has queue pairs or completion queues.
  int Close(Context* context);

  // The structs of programs behind their verbs objects.
  Kept& kept() { return kept_; }

  // The record as text, if it was kept (recorder().Keep()).
  std::string RecordText() const;

 private:
  Kept kept_;  // first: everything else may still name what is in it when it goes
  const rdma::Topology topology_;
  Shared shared_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<Port*> ports_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<FaultDriver> faults_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_WORLD_H_
