#include "integration/verbs/capabilities.h"

#include <memory>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

bool HasAtomics(World& world) {
  return Device(world, world.first_device()).attr.atomic_cap != IBV_ATOMIC_NONE;
}

bool HasSeveralPkeys(World& world) {
  return Device(world, world.first_device()).port_attr.pkey_tbl_len > 1;
}

// Makes a queue pair of the type and lets it go again.
bool CanCreate(World& world, const SideOptions& options) {
  try {
    Side side(world, world.first_device(), options);
    return true;
  } catch (const CaseFailure&) {
    return false;
  }
}

bool HasUc(World& world) { return CanCreate(world, {.type = IBV_QPT_UC}); }
bool HasUd(World& world) { return CanCreate(world, {.type = IBV_QPT_UD}); }
bool HasInline(World& world) { return CanCreate(world, {.inline_bytes = 32}); }
bool HasWrApi(World& world) { return CanCreate(world, {.send_ops = IBV_QP_EX_WITH_RDMA_WRITE}); }

bool HasSrq(World& world) {
  Side side(world, world.first_device());
  ibv_srq_init_attr attr = {};
  attr.attr.max_wr = 4;
  attr.attr.max_sge = 1;
  ibv_srq* srq = world.v.create_srq(side.pd, &attr);
  if (srq != nullptr) world.v.destroy_srq(srq);
  return srq != nullptr;
}

bool CanResizeCq(World& world) {
  Side side(world, world.first_device(), {.cq_entries = 16});
  return world.v.resize_cq(side.send_cq, 64) == 0;
}

bool HasEce(World& world) {
  Side side(world, world.first_device());
  ibv_ece ece = {};
  return world.v.query_ece != nullptr && world.v.query_ece(side.qp, &ece) == 0;
}

bool HasCqEx(World& world) {
  Device device(world, world.first_device());
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* cq = world.v.create_cq_ex(device.context, &attr);
  if (cq != nullptr) world.v.destroy_cq(ibv_cq_ex_to_cq(cq));
  return cq != nullptr;
}

bool CanReRegister(World& world) {
  Side side(world, world.first_device());
  Region region = side.NewRegion(4096);
  return world.v.rereg_mr != nullptr &&
         world.v.rereg_mr(region.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                          IBV_ACCESS_LOCAL_WRITE) == 0;
}

bool HasIova(World& world) {
  Side side(world, world.first_device());
  Buffer& buffer = world.NewBuffer(4096);
  if (world.v.reg_mr_iova2 == nullptr) return false;
  ibv_mr* mr = world.v.reg_mr_iova2(side.pd, buffer.data(), buffer.size(), 0x10000, kAllAccess);
  if (mr != nullptr) world.v.dereg_mr(mr);
  return mr != nullptr;
}

bool HasGidTable(World& world) {
  return world.v.query_gid_table != nullptr && world.v.query_gid_ex != nullptr;
}

bool HasTwoDevices(World& world) { return world.first_device() != world.second_device(); }

bool HasFaults(World& world) {
  return world.v.fault != nullptr || !world.options.fault_command.empty();
}

}  // namespace

const std::vector<Capability>& AllCapabilities() {
  static const auto* const kAll = new std::vector<Capability>{
      {"atomics", "compare-and-swap and fetch-and-add", HasAtomics},
      {"channels", "completion channels whose descriptor can be polled", nullptr},
      {"cq_ex", "ibv_create_cq_ex", HasCqEx},
      {"ece", "ibv_query_ece and ibv_set_ece", HasEce},
      {"fault.disorder", "the fault command duplicates and reorders packets", nullptr},
      {"fault.loss", "the fault command loses and delays packets", nullptr},
      {"fault.port", "the fault command takes a port down and up", HasFaults},
      {"fault.silence", "the fault command drops packets without an event", HasFaults},
      {"gid_table", "ibv_query_gid_ex and ibv_query_gid_table", HasGidTable},
      {"inline", "IBV_SEND_INLINE", HasInline},
      {"iova", "memory regions whose keys start at another address", HasIova},
      {"pkeys", "a P_Key table with more than one entry", HasSeveralPkeys},
      {"processes", "both ends in different processes", nullptr},
      {"rereg_mr", "ibv_rereg_mr", CanReRegister},
      {"resize_cq", "ibv_resize_cq", CanResizeCq},
      {"sqd", "the state SQD", nullptr},
      {"srq", "shared receive queues", HasSrq},
      {"threads", "several threads of one process", nullptr},
      {"uc", "unreliable connected queue pairs", HasUc},
      {"two_devices", "the ends on different devices", HasTwoDevices},
      {"ud", "unreliable datagram queue pairs", HasUd},
      {"wr_api", "ibv_create_qp_ex and ibv_wr_*", HasWrApi},
  };
  return *kAll;
}

const Capability* FindCapability(const std::string& word) {
  for (const Capability& capability : AllCapabilities()) {
    if (word == capability.word) return &capability;
  }
  return nullptr;
}

}  // namespace railhop::conformance
