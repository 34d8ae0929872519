#include "cc/runtime/fake_verbs.h"

#include <arpa/inet.h>
#include <endian.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace railhop::runtime {
namespace {

FakeVerbs* the_fake = nullptr;
std::mutex state_mutex;  // of FakePort::up

std::string Mapped(const std::string& address) {
  return address.find(':') == std::string::npos ? "::ffff:" + address : address;
}

int FillGid(const FakePort& port, int index, ibv_gid* gid) {
  if (index < 0 || index >= static_cast<int>(port.gids.size())) return EINVAL;
  const FakeGid& entry = port.gids[static_cast<size_t>(index)];
  if (entry.address == "unreadable") return EINVAL;
  std::memset(gid, 0, sizeof *gid);
  if (!entry.address.empty()) inet_pton(AF_INET6, Mapped(entry.address).c_str(), gid->raw);
  return 0;
}

}  // namespace

struct FakeVerbsFunctions {
  static FakeDevice* Of(const ibv_device* device) {
    for (size_t i = 0; i < the_fake->handles_.size(); ++i) {
      if (&the_fake->handles_[i] == device) return &the_fake->devices_[i];
    }
    return nullptr;
  }
  static FakePort* PortOf(const ibv_context* context, uint32_t port) {
    FakeDevice* device = Of(context->device);
    return port >= 1 && port <= device->ports.size() ? &device->ports[port - 1] : nullptr;
  }

  static ibv_device** GetList(int* count) {
    if (the_fake->list_errno != 0) {
      errno = the_fake->list_errno;
      return nullptr;
    }
    const size_t n = the_fake->handles_.size();
    auto** list = static_cast<ibv_device**>(std::calloc(n + 1, sizeof(ibv_device*)));
    for (size_t i = 0; i < n; ++i) list[i] = &the_fake->handles_[i];
    *count = static_cast<int>(n);
    return list;
  }
  static void FreeList(ibv_device** list) { std::free(list); }
  static const char* Name(ibv_device* device) { return device->name; }
  static __be64 Guid(ibv_device* device) { return htobe64(Of(device)->guid); }
  static ibv_context* Open(ibv_device* device) {
    if (Of(device)->open_errno != 0) {
      errno = Of(device)->open_errno;
      return nullptr;
    }
    auto* context = static_cast<ibv_context*>(std::calloc(1, sizeof(ibv_context)));
    context->device = device;
    context->async_fd = -1;
    ++the_fake->open_contexts_;
    return context;
  }
  static int Close(ibv_context* context) {
    --the_fake->open_contexts_;
    std::free(context);
    return 0;
  }
  static int QueryDevice(ibv_context* context, ibv_device_attr* attr) {
    const FakeDevice& device = *Of(context->device);
    std::memset(attr, 0, sizeof *attr);
    attr->phys_port_cnt = static_cast<uint8_t>(device.ports.size());
    attr->max_qp = device.max_qp;
    attr->sys_image_guid = htobe64(device.guid);
    return 0;
  }
  static int QueryPort(ibv_context* context, uint8_t number, ibv_port_attr* attr) {
    const std::lock_guard<std::mutex> lock(state_mutex);
    const FakePort* port = PortOf(context, number);
    if (port == nullptr) return EINVAL;
    if (port->query_errno != 0) return port->query_errno;
    std::memset(attr, 0, sizeof *attr);
    attr->state = port->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr->link_layer = static_cast<uint8_t>(port->link_layer);
    attr->active_width = port->width;
    attr->active_speed = port->speed;
    attr->gid_tbl_len = static_cast<int>(port->gids.size());
    attr->pkey_tbl_len = static_cast<uint16_t>(port->pkeys.size());
    return 0;
  }
  static int QueryGid(ibv_context* context, uint8_t number, int index, ibv_gid* gid) {
    errno = FillGid(*PortOf(context, number), index, gid);
    return errno == 0 ? 0 : -1;
  }
  static int QueryGidEx(ibv_context* context, uint32_t number, uint32_t index, ibv_gid_entry* entry,
                        uint32_t /*flags*/, size_t /*entry_size*/) {
    const FakePort& port = *PortOf(context, number);
    if (const int error = FillGid(port, static_cast<int>(index), &entry->gid); error != 0) {
      return error;
    }
    const FakeGid& gid = port.gids[index];
    if (gid.address.empty()) return ENODATA;
    entry->gid_type = gid.roce_version == 2   ? IBV_GID_TYPE_ROCE_V2
                      : gid.roce_version == 1 ? IBV_GID_TYPE_ROCE_V1
                                              : IBV_GID_TYPE_IB;
    return 0;
  }
  static int QueryPkey(ibv_context* context, uint8_t number, int index, __be16* pkey) {
    const FakePort& port = *PortOf(context, number);
    if (index < 0 || index >= static_cast<int>(port.pkeys.size())) return EINVAL;
    *pkey = htobe16(port.pkeys[static_cast<size_t>(index)]);
    return 0;
  }
  static int QuerySpeed(ibv_context* context, uint32_t number, uint64_t* speed) {
    const FakePort& port = *PortOf(context, number);
    *speed = port.queried_speed_hundred_mbps;
    return *speed == 0 ? EOPNOTSUPP : 0;
  }
  static ibv_pd* AllocPd(ibv_context* context) {
    auto* pd = static_cast<ibv_pd*>(std::calloc(1, sizeof(ibv_pd)));
    pd->context = context;
    return pd;
  }
  static int DeallocPd(ibv_pd* pd) {
    std::free(pd);
    return 0;
  }
  static ibv_mr* NewMr() { return static_cast<ibv_mr*>(std::calloc(1, sizeof(ibv_mr))); }
  static ibv_mr* RegMr(ibv_pd*, void*, size_t, int) { return NewMr(); }
  static ibv_mr* RegMrIova2(ibv_pd*, void*, size_t, uint64_t, unsigned int) {
    errno = EOPNOTSUPP;
    return the_fake->iova2_works ? NewMr() : nullptr;
  }
  static ibv_mr* RegDmaBuf(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
    errno = the_fake->dmabuf_works ? EBADF : EOPNOTSUPP;
    return nullptr;
  }
  static int DeregMr(ibv_mr* mr) {
    std::free(mr);
    return 0;
  }
};

FakeVerbs::FakeVerbs(std::vector<FakeDevice> devices)
    : devices_(std::move(devices)), table_(std::make_shared<verbs::Table>()) {
  the_fake = this;
  for (const FakeDevice& device : devices_) {
    ibv_device& handle = handles_.emplace_back();
    std::memset(&handle, 0, sizeof handle);
    std::snprintf(handle.name, sizeof handle.name, "%s", device.name.c_str());
    std::snprintf(handle.ibdev_path, sizeof handle.ibdev_path, "/sys/class/infiniband/%s",
                  device.name.c_str());
  }
  using F = FakeVerbsFunctions;
  table_->get_device_list = F::GetList;
  table_->free_device_list = F::FreeList;
  table_->get_device_name = F::Name;
  table_->get_device_guid = F::Guid;
  table_->open_device = F::Open;
  table_->close_device = F::Close;
  table_->query_device = F::QueryDevice;
  table_->query_port = F::QueryPort;
  table_->query_gid = F::QueryGid;
  table_->query_gid_ex = F::QueryGidEx;
  table_->query_pkey = F::QueryPkey;
  table_->query_port_speed = F::QuerySpeed;
  table_->alloc_pd = F::AllocPd;
  table_->dealloc_pd = F::DeallocPd;
  table_->reg_mr = F::RegMr;
  table_->reg_mr_iova2 = F::RegMrIova2;
  table_->reg_dmabuf_mr = F::RegDmaBuf;
  table_->dereg_mr = F::DeregMr;
}

FakeVerbs::~FakeVerbs() { the_fake = nullptr; }

void FakeVerbs::SetUp(size_t device, size_t port, bool up) {
  const std::lock_guard<std::mutex> lock(state_mutex);
  devices_[device].ports[port].up = up;
}

}  // namespace railhop::runtime
