// Runs the conformance suite over the simulator: the same cases, with a table of functions whose
// clock is virtual.
//
//   verbs_conformance_sim TOPOLOGY OPTIONS...       OPTIONS as of verbs_conformance
//
// Each case runs in a forked process as everywhere, so each has a world of its own: a copy of the
// one that is made here and that nothing has happened in.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/rdma_model/topology_text.h"
#include "cc/sim/verbs_table.h"
#include "cc/sim/world.h"
#include "integration/verbs/options.h"
#include "integration/verbs/runner.h"

namespace railhop::conformance {
namespace {

sim::World* g_world = nullptr;

bool Fault(const std::string& device, const std::string& words, std::string* error) {
  return g_world->Fault(device + " " + words, error);
}

// What no simulated NIC has.
template <typename T>
T* Refuse() {
  errno = EOPNOTSUPP;
  return nullptr;
}

VerbsTable MakeTable() {
  const sim::VerbsFunctions& from = sim::SimVerbs();
  VerbsTable v;
  FillInlineVerbs(&v);
  v.get_device_list = from.get_device_list;
  v.free_device_list = from.free_device_list;
  v.get_device_name = from.get_device_name;
  v.get_device_guid = from.get_device_guid;
  v.open_device = from.open_device;
  v.close_device = from.close_device;
  v.get_async_event = from.get_async_event;
  v.ack_async_event = from.ack_async_event;
  v.query_device = from.query_device;
  v.query_port = from.query_port;
  v.query_port_old = from.query_port_old;
  v.node_type_str = from.node_type_str;
  v.port_state_str = from.port_state_str;
  v.event_type_str = from.event_type_str;
  v.wc_status_str = from.wc_status_str;
  v.query_gid = from.query_gid;
  v.query_gid_ex = from.query_gid_ex;
  v.query_gid_table = from.query_gid_table;
  v.query_pkey = from.query_pkey;
  v.get_pkey_index = from.get_pkey_index;
  v.alloc_pd = from.alloc_pd;
  v.dealloc_pd = from.dealloc_pd;
  v.reg_mr = from.reg_mr;
  v.reg_mr_iova2 = from.reg_mr_iova2;
  v.dereg_mr = from.dereg_mr;
  v.create_comp_channel = from.create_comp_channel;
  v.destroy_comp_channel = from.destroy_comp_channel;
  v.create_cq = from.create_cq;
  v.resize_cq = from.resize_cq;
  v.destroy_cq = from.destroy_cq;
  v.get_cq_event = from.get_cq_event;
  v.ack_cq_events = from.ack_cq_events;
  v.create_qp = from.create_qp;
  v.modify_qp = from.modify_qp;
  v.query_qp = from.query_qp;
  v.destroy_qp = from.destroy_qp;
  v.create_srq = [](ibv_pd*, ibv_srq_init_attr*) { return Refuse<ibv_srq>(); };
  v.destroy_srq = [](ibv_srq*) { return EOPNOTSUPP; };
  v.create_ah = [](ibv_pd*, ibv_ah_attr*) { return Refuse<ibv_ah>(); };
  v.destroy_ah = [](ibv_ah*) { return EOPNOTSUPP; };
  v.now_ns = sim::VerbsNowNs;
  v.idle = sim::VerbsIdle;
  v.fault = Fault;
  return v;
}

int Main(int argc, char** argv) {
  Options options;
  std::string error;
  if (argc < 2 ||
      !ParseOptions(std::vector<std::string>(argv + 2, argv + argc), &options, &error)) {
    fprintf(stderr, "verbs_conformance_sim: %s\n",
            argc < 2 ? "usage: verbs_conformance_sim TOPOLOGY OPTIONS..." : error.c_str());
    return 2;
  }
  const char* const junit = getenv("XML_OUTPUT_FILE");  // where Bazel looks for the cases
  if (junit != nullptr && options.junit.empty()) options.junit = junit;
  std::ifstream file(argv[1]);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::optional<rdma::Topology> topology = rdma::ParseTopology(text, argv[1], &error);
  if (!file || !topology) {
    fprintf(stderr, "verbs_conformance_sim: %s\n",
            file ? error.c_str() : (std::string("cannot read ") + argv[1]).c_str());
    return 2;
  }
  const auto world = std::make_unique<sim::World>(*topology, sim::Options());
  g_world = world.get();
  sim::SetVerbsWorld(g_world);
  return RunConformance(MakeTable(), options);
}

}  // namespace
}  // namespace railhop::conformance

int main(int argc, char** argv) { return railhop::conformance::Main(argc, argv); }
