// Devices, ports, addresses, domains and memory.
#include <endian.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_words.h"
#include "cc/sim/verbs_objects.h"
#include "cc/sim/verbs_table.h"

namespace railhop::sim {
namespace {

using rdma::VerbCall;

// Capability bits of InfiniBand's PortInfo, IBTA 14.2.5.6.
constexpr uint32_t kPortIsExtendedSpeedsSupported = 1u << 14;
constexpr uint32_t kPortIsIpBasedGidsSupported = 1u << 26;
constexpr uint8_t kPhysStateDisabled = 3, kPhysStateLinkUp = 5;

int Fail(int error) {
  errno = error;
  return -1;
}
template <typename T>
T* Null(int error) {
  errno = error;
  return nullptr;
}

// The object of a NIC; made at its first listing, and kept as long as the world.
SimDevice* DeviceOf(Nic* nic) {
  if (nic->user != nullptr) return static_cast<SimDevice*>(nic->user.get());
  auto made = std::make_shared<SimDevice>();
  SimDevice* object = made.get();
  nic->user = std::move(made);
  object->nic = nic;
  ibv_device& device = object->device;
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device.name, sizeof(device.name), "%s", nic->config().name.c_str());
  std::snprintf(device.dev_name, sizeof(device.dev_name), "uverbs%u", nic->index());
  std::snprintf(device.dev_path, sizeof(device.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
                nic->index());
  std::snprintf(device.ibdev_path, sizeof(device.ibdev_path), "/sys/class/infiniband/%s",
                device.name);
  return object;
}

ibv_device** GetDeviceList(int* count) {
  std::vector<Nic*> nics;
  if (VerbsWorld() != nullptr) {
    for (const auto& nic : VerbsWorld()->nics()) {
      const bool ours = VerbsHost() == nullptr || nic->host() == VerbsHost();
      if (ours && !nic->removed() && nic->host()->alive) nics.push_back(nic.get());
    }
  }
  auto** list = static_cast<ibv_device**>(std::calloc(nics.size() + 1, sizeof(ibv_device*)));
  for (size_t i = 0; i < nics.size(); ++i) list[i] = &DeviceOf(nics[i])->device;
  if (count != nullptr) *count = static_cast<int>(nics.size());
  return list;
}
void FreeDeviceList(ibv_device** list) { std::free(list); }
const char* GetDeviceName(ibv_device* device) { return device->name; }
__be64 GetDeviceGuid(ibv_device* device) { return htobe64(Of(device)->nic->config().node_guid); }

void FillDeviceAttr(const Nic& nic, ibv_device_attr* attr) {
  std::memset(attr, 0, sizeof(*attr));
  const rdma::TopologyDevice& config = nic.config();
  const rdma::TopologyCaps& caps = config.caps;
  std::snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", config.fw_ver.c_str());
  attr->node_guid = htobe64(config.node_guid);
  attr->sys_image_guid = htobe64(config.sys_image_guid);
  attr->max_mr_size = caps.max_mr_size;
  attr->page_size_cap = ~uint64_t{0xfff};
  attr->vendor_id = config.vendor_id;
  attr->vendor_part_id = config.vendor_part_id;
  attr->hw_ver = config.hw_ver;
  attr->max_qp = static_cast<int>(caps.max_qp);
  attr->max_qp_wr = static_cast<int>(caps.max_qp_wr);
  attr->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                           IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN;
  attr->max_sge = attr->max_sge_rd = static_cast<int>(caps.max_sge);
  attr->max_cq = static_cast<int>(caps.max_cq);
  attr->max_cqe = static_cast<int>(caps.max_cqe);
  attr->max_mr = static_cast<int>(caps.max_mr);
  attr->max_pd = static_cast<int>(caps.max_pd);
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = static_cast<int>(caps.max_rd_atomic);
  attr->max_res_rd_atom =
      static_cast<int>(std::min<uint64_t>(uint64_t{caps.max_rd_atomic} * caps.max_qp, 0x7fffffff));
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->max_pkeys = static_cast<uint16_t>(std::max<size_t>(1, config.ports.front().pkeys.size()));
  attr->phys_port_cnt = static_cast<uint8_t>(nic.port_count());
}

int QueryDevice(ibv_context* context, ibv_device_attr* attr) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryDevice)) return error;
  FillDeviceAttr(*core->nic(), attr);
  return 0;
}

int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex full;
  std::memset(&full, 0, sizeof(full));
  if (const int error = QueryDevice(context, &full.orig_attr)) return error;
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
  full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
  std::memset(static_cast<void*>(attr), 0, size);
  std::memcpy(static_cast<void*>(attr), &full, std::min(size, sizeof(full)));
  return 0;
}

int QueryPortEx(ibv_context* context, uint8_t number, ibv_port_attr* attr, size_t size) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryPort)) return error;
  const Port* port = core->nic()->port(number);
  if (port == nullptr) return EINVAL;
  const rdma::TopologyPort& now = port->now;
  const bool infiniband = now.link_layer == rdma::LinkLayer::kInfiniBand;
  ibv_port_attr full;
  std::memset(&full, 0, sizeof(full));
  full.state = static_cast<ibv_port_state>(port->link);
  full.phys_state = port->Up() ? kPhysStateLinkUp : kPhysStateDisabled;
  full.max_mtu = static_cast<ibv_mtu>(now.max_mtu);
  full.active_mtu = static_cast<ibv_mtu>(now.active_mtu);
  full.gid_tbl_len = rdma::kTopologyMaxGids;
  full.port_cap_flags = infiniband ? kPortIsExtendedSpeedsSupported : kPortIsIpBasedGidsSupported;
  full.max_msg_sz = rdma::kMaxMessageBytes;
  full.pkey_tbl_len = static_cast<uint16_t>(std::max<size_t>(1, now.pkeys.size()));
  full.lid = static_cast<uint16_t>(now.lid);
  full.sm_lid = static_cast<uint16_t>(now.sm_lid);
  full.max_vl_num = infiniband ? 4 : 0;  // code 4: VL0 to VL7
  const rdma::WidthSpeed link = rdma::WidthSpeedOf(now.speed_gbps);
  full.active_width = static_cast<uint8_t>(link.width);
  full.active_speed = static_cast<uint8_t>(std::min(link.speed, 128u));
  full.link_layer = static_cast<uint8_t>(now.link_layer);
  std::memset(static_cast<void*>(attr), 0, size);
  std::memcpy(static_cast<void*>(attr), &full, std::min(size, sizeof(full)));
  return 0;
}

int QueryPortOld(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  constexpr size_t kOldBytes = 48;
  return QueryPortEx(context, port, reinterpret_cast<ibv_port_attr*>(attr), kOldBytes);
}

// 0, ENODATA for an empty entry, or EINVAL for one that is not there.
int ReadGidEntry(Nic* nic, uint32_t number, uint32_t index, ibv_gid_entry* entry) {
  const Port* port = nic->port(number);
  if (port == nullptr || index >= static_cast<uint32_t>(rdma::kTopologyMaxGids)) return EINVAL;
  const rdma::TopologyGid gid = port->GidAt(index);
  std::memset(entry, 0, sizeof(*entry));
  if (rdma::IsEmpty(gid.gid)) return ENODATA;
  std::memcpy(entry->gid.raw, gid.gid.raw, sizeof(entry->gid.raw));
  entry->gid_index = index;
  entry->port_num = number;
  entry->gid_type = static_cast<uint32_t>(gid.type);
  return 0;
}

int QueryGid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryGid)) return Fail(error);
  ibv_gid_entry entry;
  const int error = ReadGidEntry(core->nic(), port, static_cast<uint32_t>(index), &entry);
  if (error != 0 && error != ENODATA) return Fail(error);
  *gid = entry.gid;
  return 0;
}

int QueryGidEx(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
               uint32_t flags, size_t entry_size) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryGid)) return error;
  if (flags != 0) return EOPNOTSUPP;
  ibv_gid_entry full;
  if (const int error = ReadGidEntry(core->nic(), port, index, &full)) return error;
  std::memcpy(static_cast<void*>(entry), &full, std::min(entry_size, sizeof(full)));
  return 0;
}

ssize_t QueryGidTable(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                      uint32_t flags, size_t entry_size) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryGid)) return -error;
  if (flags != 0) return -EOPNOTSUPP;
  size_t count = 0;
  for (uint32_t port = 1; port <= core->nic()->port_count(); ++port) {
    for (uint32_t index = 0; index < static_cast<uint32_t>(rdma::kTopologyMaxGids); ++index) {
      ibv_gid_entry entry;
      if (ReadGidEntry(core->nic(), port, index, &entry) != 0) continue;
      if (count == max_entries) return -EINVAL;
      std::memcpy(reinterpret_cast<char*>(entries) + count * entry_size, &entry,
                  std::min(entry_size, sizeof(entry)));
      ++count;
    }
  }
  return static_cast<ssize_t>(count);
}

std::vector<uint16_t> PkeysOf(const Port& port) {
  return port.now.pkeys.empty() ? std::vector<uint16_t>{0xffff} : port.now.pkeys;
}

int QueryPkey(ibv_context* context, uint8_t number, int index, __be16* pkey) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryPkey)) return Fail(error);
  const Port* port = core->nic()->port(number);
  if (port == nullptr || index < 0) return Fail(EINVAL);
  const std::vector<uint16_t> pkeys = PkeysOf(*port);
  if (static_cast<size_t>(index) >= pkeys.size()) return Fail(EINVAL);
  *pkey = htobe16(pkeys[static_cast<size_t>(index)]);
  return 0;
}

int GetPkeyIndex(ibv_context* context, uint8_t number, __be16 pkey) {
  Context* core = Of(context)->core;
  if (const int error = core->Enter(VerbCall::kQueryPkey)) return Fail(error);
  const Port* port = core->nic()->port(number);
  if (port == nullptr) return Fail(EINVAL);
  const std::vector<uint16_t> pkeys = PkeysOf(*port);
  const auto it = std::find(pkeys.begin(), pkeys.end(), be16toh(pkey));
  return it == pkeys.end() ? Fail(EINVAL) : static_cast<int>(it - pkeys.begin());
}

// ---- opening and closing

class AsyncNotifier final : public ContextListener {
 public:
  explicit AsyncNotifier(ibv_context* context) : context_(context) {}
  void OnAsyncEvent() override {
    SetReadable(context_->async_fd, true);
    if (Actors() != nullptr) Actors()->OnAsyncEvent(context_);
  }

 private:
  ibv_context* const context_;
};

ibv_context* OpenDevice(ibv_device* device) {
  int error = 0;
  Context* core = VerbsWorld()->Open(Of(device)->nic, &error);
  if (core == nullptr) return Null<ibv_context>(error);
  SimContext* object = VerbsWorld()->kept().Add(std::make_unique<SimContext>());
  object->world = VerbsWorld();
  object->core = core;
  object->async_fd = NewEventFd();
  object->listener = std::make_unique<AsyncNotifier>(&object->verbs.context);
  core->set_listener(object->listener.get());
  verbs_context& verbs = object->verbs;
  verbs.sz = sizeof(verbs);
  verbs.query_port = QueryPortEx;
  verbs.query_device_ex = QueryDeviceEx;
  ibv_context& context = verbs.context;
  context.device = device;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.ops.poll_cq = SimPollCq;
  context.ops.req_notify_cq = SimReqNotifyCq;
  context.ops.post_send = SimPostSend;
  context.ops.post_recv = SimPostRecv;
  context.cmd_fd = -1;
  context.async_fd = object->async_fd;
  context.num_comp_vectors = 1;
  return &context;
}

int CloseDevice(ibv_context* context) {
  SimContext* object = Of(context);
  if (const int error = object->world->Close(object->core)) return Fail(error);
  object->core->set_listener(nullptr);
  object->world->kept().Delete(object);
  return 0;
}

// ---- memory

ibv_pd* AllocPd(ibv_context* context) {
  auto made = std::make_unique<SimPd>();
  if (const int error = Of(context)->core->AllocPd(&made->number)) return Null<ibv_pd>(error);
  SimPd* object = Of(context)->world->kept().Add(std::move(made));
  object->pd.context = context;
  object->pd.handle = object->number;
  return &object->pd;
}

int DeallocPd(ibv_pd* pd) {
  if (const int error = Of(pd->context)->core->DeallocPd(Of(pd)->number)) return error;
  Of(pd->context)->world->kept().Delete(Of(pd));
  return 0;
}

// Reads (and for `write` writes back) one byte of each page through the kernel, which refuses what
// the mappings do not allow.
bool TouchPages(uint64_t start, uint64_t end, uint64_t page, bool write) {
  for (; start < end; start += page) {
    uint8_t byte = 0;
    const iovec here = {&byte, 1}, there = {reinterpret_cast<void*>(start), 1};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1) return false;
    if (write && process_vm_writev(getpid(), &here, 1, &there, 1, 0) != 1) return false;
  }
  return true;
}

// Whether this is memory of the program that may be read and, for `write`, written. The pages are
// brought in as if for pinning; where the kernel refuses (missing rights, but also anything before
// Linux 5.14) each page is tried.
bool IsAccessible(const void* addr, size_t length, bool write) {
  constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_READ, _WRITE
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t start = reinterpret_cast<uint64_t>(addr) & ~(page - 1);
  const uint64_t end = (reinterpret_cast<uint64_t>(addr) + length + page - 1) & ~(page - 1);
  const int advice = write ? kPopulateWrite : kPopulateRead;
  if (madvise(reinterpret_cast<void*>(start), end - start, advice) == 0) return true;
  return errno == EINVAL && TouchPages(start, end, page, write);
}

ibv_mr* RegMrIova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  constexpr uint32_t kModel = 15;  // the rights that the model knows
  constexpr uint32_t kIgnored = uint32_t{IBV_ACCESS_MW_BIND} | uint32_t{IBV_ACCESS_OPTIONAL_RANGE};
  constexpr uint32_t kPaging = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
  Context* core = Of(pd->context)->core;
  if ((access & ~(kModel | kIgnored | kPaging)) != 0) return Null<ibv_mr>(EINVAL);
  if ((access & kPaging) != 0) return Null<ibv_mr>(EOPNOTSUPP);
  const auto start = reinterpret_cast<uint64_t>(addr);
  if (start + length < start || iova + length < iova) return Null<ibv_mr>(EINVAL);
  const bool write = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  if (length != 0 && !IsAccessible(addr, length, write)) return Null<ibv_mr>(EFAULT);
  uint32_t key = 0;
  if (const int error = core->RegMr(Of(pd)->number, addr, length, iova, access & kModel, &key)) {
    return Null<ibv_mr>(error);
  }
  SimMr* object = Of(pd->context)->world->kept().Add(std::make_unique<SimMr>());
  object->mr = {pd->context, pd, addr, length, key, key, key};
  return &object->mr;
}

ibv_mr* RegMr(ibv_pd* pd, void* addr, size_t length, int access) {
  return RegMrIova(pd, addr, length, reinterpret_cast<uint64_t>(addr),
                   static_cast<unsigned int>(access));
}

int DeregMr(ibv_mr* mr) {
  if (const int error = Of(mr->context)->core->DeregMr(mr->lkey)) return error;
  Of(mr->context)->world->kept().Delete(reinterpret_cast<SimMr*>(mr));
  return 0;
}

// ---- names

const char* NodeTypeName(ibv_node_type type) {
  return type == IBV_NODE_CA ? "channel adapter" : "unknown";
}
const char* PortStateName(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "PORT_DOWN";
    case IBV_PORT_INIT:
      return "PORT_INIT";
    case IBV_PORT_ARMED:
      return "PORT_ARMED";
    case IBV_PORT_ACTIVE:
      return "PORT_ACTIVE";
    default:
      return "unknown";
  }
}
const char* EventName(ibv_event_type event) {
  return rdma::AsyncEventName(static_cast<rdma::AsyncEvent>(event)).data();
}
const char* StatusName(ibv_wc_status status) {
  const rdma::NamedValue* row = rdma::FindValue(rdma::StatusNames(), static_cast<uint64_t>(status));
  if (row != nullptr) return row->name.data();
  return status == IBV_WC_SUCCESS ? "success" : "unknown";
}

// ---- events

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  SimContext* object = Of(context);
  if (!WaitFor(object->async_fd, [&] { return object->core->HasEvents(); })) return -1;
  AsyncRecord record;
  (void)object->core->NextEvent(&record);
  SetReadable(object->async_fd, object->core->HasEvents());
  std::memset(event, 0, sizeof(*event));
  event->event_type = static_cast<ibv_event_type>(record.event);
  if (record.qp != nullptr) {
    auto* qp = static_cast<SimQp*>(record.qp->init().user);
    ++qp->async_events;
    event->element.qp = &qp->qp;
  } else if (record.cq != nullptr) {
    auto* cq = static_cast<SimCq*>(record.cq->user());
    ++cq->async_events;
    event->element.cq = &cq->cq;
  } else {
    event->element.port_num = static_cast<int>(record.port);
  }
  return 0;
}

void AckAsyncEvent(ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      ++event->element.cq->async_events_completed;
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      ++event->element.qp->events_completed;
      return;
    default:
      return;
  }
}

}  // namespace

int SimQueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  return QueryPortEx(context, port, attr, sizeof(*attr));
}

void FillDeviceVerbs(VerbsFunctions* table) {
  table->query_port_old = QueryPortOld;
  table->node_type_str = NodeTypeName;
  table->port_state_str = PortStateName;
  table->event_type_str = EventName;
  table->wc_status_str = StatusName;
  table->get_device_list = GetDeviceList;
  table->free_device_list = FreeDeviceList;
  table->get_device_name = GetDeviceName;
  table->get_device_guid = GetDeviceGuid;
  table->open_device = OpenDevice;
  table->close_device = CloseDevice;
  table->query_device = QueryDevice;
  table->query_port = SimQueryPort;
  table->query_gid = QueryGid;
  table->query_gid_ex = QueryGidEx;
  table->query_gid_table = QueryGidTable;
  table->query_pkey = QueryPkey;
  table->get_pkey_index = GetPkeyIndex;
  table->alloc_pd = AllocPd;
  table->dealloc_pd = DeallocPd;
  table->reg_mr = RegMr;
  table->reg_mr_iova2 = RegMrIova;
  table->dereg_mr = DeregMr;
  table->get_async_event = GetAsyncEvent;
  table->ack_async_event = AckAsyncEvent;
}

}  // namespace railhop::sim
