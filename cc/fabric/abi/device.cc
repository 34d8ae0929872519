// Devices: the list, opening and closing, and what their ports and tables say of themselves.
#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "cc/fabric/abi/admission.h"
#include "cc/fabric/abi/objects.h"
#include "cc/rdma_model/topology.h"

namespace railhop::fabric::abi {
namespace {

constexpr int kCompVectors = 4;
constexpr uint32_t kShortCqEntries = 64;  // rdma::kQuirkShortCq
// Capability bits of InfiniBand's PortInfo, IBTA 14.2.5.6.
constexpr uint32_t kPortIsTrapSupported = 1u << 4;
constexpr uint32_t kPortIsExtendedSpeedsSupported = 1u << 14;
constexpr uint32_t kPortIsIpBasedGidsSupported = 1u << 26;
constexpr size_t kPortAttrBytes = 52;        // up to rdma-core v48
constexpr size_t kActiveSpeedExOffset = 52;  // uint32_t active_speed_ex, from v49 on
constexpr size_t kCompatPortAttrBytes = 48;  // what callers of the exported ibv_query_port own

// One line, once: why there are no devices.
void SayWhyNone(const std::string& why) {
  static std::once_flag once;
  std::call_once(
      once, [&] { std::fprintf(stderr, "railhop: no software RDMA devices: %s\n", why.c_str()); });
}

// The object of device `index`; made at its first listing and kept for ever.
DeviceObject* DeviceAt(DirectoryHandle& directory, uint32_t index) {
  static std::mutex mutex;
  static DeviceObject* objects[kMaxDevices];
  std::lock_guard<std::mutex> lock(mutex);
  if (objects[index] != nullptr) return objects[index];
  auto* object = new (std::nothrow) DeviceObject();
  if (object == nullptr) return nullptr;
  object->index = index;
  ibv_device& device = object->device;
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device.name, sizeof(device.name), "%s", directory.device(index).name);
  std::snprintf(device.dev_name, sizeof(device.dev_name), "uverbs%u", index);
  std::snprintf(device.dev_path, sizeof(device.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
                index);
  std::snprintf(device.ibdev_path, sizeof(device.ibdev_path), "/sys/class/infiniband/%s",
                device.name);
  objects[index] = object;
  return object;
}

void FillDeviceAttr(const DeviceEntry& device, ibv_device_attr* attr) {
  std::memset(attr, 0, sizeof(*attr));
  const DeviceCaps& caps = device.caps;
  std::snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", device.fw_ver);
  attr->node_guid = htobe64(device.node_guid);
  attr->sys_image_guid = htobe64(device.sys_image_guid);
  attr->max_mr_size = caps.max_mr_size;
  attr->page_size_cap = ~uint64_t{0xfff};
  attr->vendor_id = device.vendor_id;
  attr->vendor_part_id = device.vendor_part_id;
  attr->hw_ver = device.hw_ver;
  attr->max_qp = static_cast<int>(caps.max_qp);
  attr->max_qp_wr = static_cast<int>(caps.max_qp_wr);
  attr->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                           IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN;
  attr->max_sge = static_cast<int>(caps.max_sge);
  attr->max_sge_rd = static_cast<int>(caps.max_sge);
  attr->max_cq = static_cast<int>(caps.max_cq);
  attr->max_cqe = static_cast<int>(caps.max_cqe);
  if ((device.quirks.load(std::memory_order_relaxed) & rdma::kQuirkShortCq) != 0) {
    attr->max_cqe = static_cast<int>(std::min(caps.max_cqe, kShortCqEntries));
  }
  attr->max_mr = static_cast<int>(caps.max_mr);
  attr->max_pd = static_cast<int>(caps.max_pd);
  attr->max_qp_rd_atom = static_cast<int>(caps.max_rd_atomic);
  attr->max_qp_init_rd_atom = static_cast<int>(caps.max_rd_atomic);
  attr->max_res_rd_atom =
      static_cast<int>(std::min<uint64_t>(uint64_t{caps.max_rd_atomic} * caps.max_qp, 0x7fffffff));
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->max_pkeys = static_cast<uint16_t>(device.ports[0].pkey_count);
  attr->phys_port_cnt = static_cast<uint8_t>(device.port_count);
}

// The port, or null: there is none with this number.
PortEntry* PortAt(const ContextObject& context, uint32_t port) {
  if (port == 0 || port > context.device->port_count) return nullptr;
  return &context.device->ports[port - 1];
}

// Everything of a port but active_speed_ex, which is returned.
uint32_t FillPortAttr(const PortEntry& port, ibv_port_attr* attr) {
  const bool infiniband = port.link_layer == rdma::LinkLayer::kInfiniBand;
  std::memset(attr, 0, sizeof(*attr));
  attr->state = static_cast<ibv_port_state>(port.link_state.load());
  attr->phys_state = static_cast<uint8_t>(port.phys_state.load());
  attr->max_mtu = static_cast<ibv_mtu>(port.max_mtu);
  attr->active_mtu = static_cast<ibv_mtu>(port.active_mtu.load());
  attr->gid_tbl_len = static_cast<int>(port.gid_count.load());
  attr->port_cap_flags = infiniband ? kPortIsTrapSupported | kPortIsExtendedSpeedsSupported
                                    : kPortIsIpBasedGidsSupported;
  attr->max_msg_sz = rdma::kMaxMessageBytes;
  attr->pkey_tbl_len = static_cast<uint16_t>(port.pkey_count);
  attr->lid = static_cast<uint16_t>(port.lid.load());
  attr->sm_lid = static_cast<uint16_t>(port.sm_lid.load());
  attr->lmc = port.lmc;
  attr->max_vl_num = infiniband ? 4 : 0;  // code 4: VL0 to VL7
  attr->subnet_timeout = infiniband ? 18 : 0;
  const uint32_t speed = port.active_speed;
  attr->active_width = static_cast<uint8_t>(port.active_width);
  attr->active_speed = static_cast<uint8_t>(std::min(speed, 128u));  // NDR is the fastest that fits
  attr->link_layer = static_cast<uint8_t>(port.link_layer);
  return speed;
}

// 0, ENODATA for an empty entry, or EINVAL for one that is not there.
int ReadGidEntry(const ContextObject& context, uint32_t port, uint32_t index,
                 ibv_gid_entry* entry) {
  const PortEntry* const table = PortAt(context, port);
  if (table == nullptr || index >= table->gid_count.load()) return EINVAL;
  const rdma::TopologyGid gid = DirectoryHandle::ReadGid(*table, index);
  if (rdma::IsEmpty(gid.gid)) return ENODATA;
  std::memset(entry, 0, sizeof(*entry));
  std::memcpy(entry->gid.raw, gid.gid.raw, sizeof(entry->gid.raw));
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = static_cast<uint32_t>(gid.type);
  if (table->netdev[0] != '\0') entry->ndev_ifindex = if_nametoindex(table->netdev);
  return 0;
}

int Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t length) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, rdma::VerbCall::kQueryPort); error != 0) return error;
  const PortEntry* const entry = PortAt(object, port);
  if (entry == nullptr) return EINVAL;
  ibv_port_attr full;
  const uint32_t speed = FillPortAttr(*entry, &full);
  std::memset(static_cast<void*>(attr), 0, length);
  std::memcpy(static_cast<void*>(attr), &full, std::min(length, kPortAttrBytes));
  if (length >= kActiveSpeedExOffset + sizeof(speed)) {
    std::memcpy(reinterpret_cast<char*>(attr) + kActiveSpeedExOffset, &speed, sizeof(speed));
  }
  return 0;
}

int QueryGidType(ibv_context* context, uint8_t port, unsigned int index, int* type) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, rdma::VerbCall::kQueryGid); error != 0) return Fail(error);
  ibv_gid_entry entry;
  if (const int error = ReadGidEntry(object, port, index, &entry); error != 0) return Fail(error);
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t size) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, rdma::VerbCall::kQueryDevice); error != 0) return error;
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex full;
  std::memset(&full, 0, sizeof(full));
  FillDeviceAttr(*object.device, &full.orig_attr);
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
  full.phys_port_cnt_ex = object.device->port_count;
  std::memset(static_cast<void*>(attr), 0, size);
  std::memcpy(static_cast<void*>(attr), &full, std::min(size, sizeof(full)));
  return 0;
}

}  // namespace railhop::fabric::abi

// ---- The exported functions ----

using namespace railhop::fabric;       // NOLINT: the verbs ABI has no namespace
using namespace railhop::fabric::abi;  // NOLINT

RAILHOP_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  std::string why;
  DirectoryHandle* const directory = Nic::Fabric(&why);
  std::vector<uint32_t> indexes;
  if (directory == nullptr) {
    SayWhyNone(why);
  } else {
    indexes = directory->DevicesOfHost(Nic::Host());
  }
  auto** const list = static_cast<ibv_device**>(calloc(indexes.size() + 1, sizeof(void*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  int count = 0;
  for (const uint32_t index : indexes) {
    DeviceObject* const device = DeviceAt(*directory, index);
    if (device != nullptr) list[count++] = &device->device;
  }
  if (num_devices != nullptr) *num_devices = count;
  return list;
}

RAILHOP_EXPORT void ibv_free_device_list(ibv_device** list) { free(list); }

RAILHOP_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }

RAILHOP_EXPORT int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(Of(device)->index);
}

RAILHOP_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  std::string why;
  DirectoryHandle* const directory = Nic::Fabric(&why);
  return directory == nullptr ? 0 : htobe64(directory->device(Of(device)->index).node_guid);
}

RAILHOP_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  std::string why;
  DirectoryHandle* const directory = Nic::Fabric(&why);
  if (directory == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  const uint32_t index = Of(device)->index;
  if (const int error = AdmitOpen(*directory, index); error != 0) {
    errno = error;
    return nullptr;
  }
  WatchForks();
  Nic* const nic = Nic::Get();
  if (nic == nullptr) return nullptr;
  auto* const object = new (std::nothrow) ContextObject();
  if (object == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  object->core = nic->OpenContext(index);
  if (object->core == nullptr) {
    delete object;
    return nullptr;
  }
  object->nic = nic;
  object->device = &directory->device(index);
  object->index = index;
  object->fork_generation = g_fork_generation.load(std::memory_order_relaxed);

  verbs_context& verbs = object->verbs;
  FillUnsupported(&verbs);
  verbs.sz = sizeof(verbs);
  verbs.query_port = QueryPort;
  verbs.query_device_ex = QueryDeviceEx;
  verbs.create_cq_ex = CreateCqEx;
  verbs.create_qp_ex = CreateQpEx;
  ibv_context& context = verbs.context;
  context.device = device;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.ops.poll_cq = PollCq;
  context.ops.req_notify_cq = RequestNotifyCq;
  context.ops.post_send = PostSend;
  context.ops.post_recv = PostReceive;
  context.cmd_fd = -1;
  context.async_fd = object->core->events.fd();
  context.num_comp_vectors = kCompVectors;
  pthread_mutex_init(&context.mutex, nullptr);
  return &context;
}

RAILHOP_EXPORT int ibv_close_device(ibv_context* context) {
  ContextObject* const object = Of(context);
  if (const int error = Admit(*object, railhop::rdma::VerbCall::kCloseDevice); error != 0)
    return Fail(error);
  object->nic->CloseContext(object->core);
  pthread_mutex_destroy(&context->mutex);
  delete object;
  return 0;
}

RAILHOP_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryDevice); error != 0)
    return error;
  FillDeviceAttr(*object.device, attr);
  return 0;
}

RAILHOP_EXPORT int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return QueryPort(context, port, reinterpret_cast<ibv_port_attr*>(attr), kCompatPortAttrBytes);
}

// Effective speed in units of 100 Mb/s.
RAILHOP_EXPORT int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryPort); error != 0)
    return error;
  const PortEntry* const entry = PortAt(object, port);
  if (entry == nullptr) return EINVAL;
  *speed = entry->rate_mbps.load() / 100;
  return 0;
}

RAILHOP_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryGid); error != 0)
    return Fail(error);
  ibv_gid_entry entry;
  const int error = ReadGidEntry(object, port, static_cast<uint32_t>(index), &entry);
  if (error == ENODATA) {
    std::memset(gid, 0, sizeof(*gid));
    return 0;
  }
  if (error != 0) return Fail(error);
  std::memcpy(gid, &entry.gid, sizeof(*gid));
  return 0;
}

RAILHOP_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                     ibv_gid_entry* entry, uint32_t flags, size_t entry_size) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryGid); error != 0) return error;
  if (flags != 0) return EOPNOTSUPP;
  ibv_gid_entry full;
  if (const int error = ReadGidEntry(object, port, index, &full); error != 0) return error;
  std::memcpy(static_cast<void*>(entry), &full, std::min(entry_size, sizeof(full)));
  return 0;
}

RAILHOP_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                            size_t max_entries, uint32_t flags, size_t entry_size) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryGid); error != 0)
    return -error;
  if (flags != 0) return -EOPNOTSUPP;
  size_t count = 0;
  for (uint32_t port = 1; port <= object.device->port_count; ++port) {
    const uint32_t length = object.device->ports[port - 1].gid_count.load();
    for (uint32_t index = 0; index < length; ++index) {
      ibv_gid_entry entry;
      if (ReadGidEntry(object, port, index, &entry) != 0) continue;
      if (count == max_entries) return -EINVAL;
      std::memcpy(reinterpret_cast<char*>(entries) + count * entry_size, &entry,
                  std::min(entry_size, sizeof(entry)));
      ++count;
    }
  }
  return static_cast<ssize_t>(count);
}

RAILHOP_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryPkey); error != 0)
    return Fail(error);
  const PortEntry* const entry = PortAt(object, port);
  if (entry == nullptr || index < 0 || static_cast<uint32_t>(index) >= entry->pkey_count)
    return Fail(EINVAL);
  *pkey = htobe16(static_cast<uint16_t>(entry->pkeys[index].load()));
  return 0;
}

RAILHOP_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, railhop::rdma::VerbCall::kQueryPkey); error != 0)
    return Fail(error);
  const PortEntry* const entry = PortAt(object, port);
  for (uint32_t i = 0; entry != nullptr && i < entry->pkey_count; ++i) {
    if (entry->pkeys[i].load() == be16toh(pkey)) return static_cast<int>(i);
  }
  return Fail(EINVAL);
}

// SYSFS_PATH replaces /sys, as with the original.
RAILHOP_EXPORT const char* ibv_get_sysfs_path(void) {
  const char* const path = secure_getenv("SYSFS_PATH");
  return path != nullptr ? path : "/sys";
}

// The file's bytes without a final newline; -1 with errno.
RAILHOP_EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  const std::string path = std::string(dir) + "/" + file;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = read(fd, buf, size);
  const int error = errno;
  close(fd);
  if (length < 0) return Fail(error);
  if (length > 0 && buf[length - 1] == '\n') --length;
  if (static_cast<size_t>(length) < size) buf[length] = '\0';
  return static_cast<int>(length);
}
