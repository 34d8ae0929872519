// Making, finding and checking a directory. The operations on its parts are in directory_*.cc
// beside this.
#include "cc/fabric/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "cc/rdma_model/fault_grammar.h"

namespace railhop::fabric {
namespace {

constexpr char kMemfdPrefix[] = "railhop-fabric:";
constexpr char kLinkPrefix[] = "/memfd:railhop-fabric:";

std::string ProcFd(uint32_t pid, int fd) {
  return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
}

std::string ReadLink(const std::string& path) {
  char text[256];
  const ssize_t n = readlink(path.c_str(), text, sizeof(text));
  return n <= 0 ? "" : std::string(text, static_cast<size_t>(n));
}

void CopyName(const std::string& from, char* to, size_t size) {
  std::strncpy(to, from.c_str(), size - 1);
  to[size - 1] = '\0';
}

bool ValidName(std::string_view name) {
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || c == '.';
    if (!plain) return false;
  }
  return name.size() < sizeof(Directory::name);
}

void InitMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attr);
  pthread_mutexattr_destroy(&attr);
}

uint64_t RandomId() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = MonotonicNs() ^ getpid();
  return id | 1;
}

void FillPort(const rdma::TopologyPort& from, PortEntry* port) {
  port->link_state =
      static_cast<uint32_t>(from.up ? rdma::PortLinkState::kActive : rdma::PortLinkState::kDown);
  port->phys_state = PhysState(from.link_layer, from.up);
  port->lid = from.lid;
  port->sm_lid = from.sm_lid;
  port->active_mtu = from.active_mtu;
  port->rate_mbps = from.speed_gbps * 1000;
  port->gid_count = kMaxGids;
  for (size_t i = 0; i < from.gids.size(); ++i) {
    DirectoryHandle::WriteGid(*port, static_cast<uint32_t>(i), from.gids[i]);
  }
  for (size_t i = 0; i < from.pkeys.size(); ++i) port->pkeys[i] = from.pkeys[i];
  port->pkey_count = static_cast<uint32_t>(from.pkeys.size());
  port->link_layer = from.link_layer;
  port->max_mtu = static_cast<uint8_t>(from.max_mtu);
  const rdma::WidthSpeed link = rdma::WidthSpeedOf(from.speed_gbps);
  port->active_width = link.width;
  port->active_speed = link.speed;
  port->speed_gbps = from.speed_gbps;
  port->net = static_cast<uint32_t>(from.net);
  port->guid = from.guid;
  port->subnet_prefix = from.subnet_prefix;
  CopyName(from.netdev, port->netdev, sizeof(port->netdev));
}

void FillCaps(const rdma::TopologyCaps& from, DeviceCaps* caps) {
  caps->max_qp = from.max_qp;
  caps->max_qp_wr = from.max_qp_wr;
  caps->max_sge = from.max_sge;
  caps->max_cq = from.max_cq;
  caps->max_cqe = from.max_cqe;
  caps->max_mr = from.max_mr;
  caps->max_pd = from.max_pd;
  caps->max_rd_atomic = from.max_rd_atomic;
  caps->max_mr_size = from.max_mr_size;
}

void FillDevice(const rdma::TopologyDevice& from, DeviceEntry* device) {
  CopyName(from.name, device->name, sizeof(device->name));
  device->host = static_cast<uint32_t>(from.host);
  device->port_count = static_cast<uint32_t>(from.ports.size());
  device->node_guid = from.node_guid;
  device->sys_image_guid = from.sys_image_guid;
  device->vendor_id = from.vendor_id;
  device->vendor_part_id = from.vendor_part_id;
  device->hw_ver = from.hw_ver;
  CopyName(from.fw_ver, device->fw_ver, sizeof(device->fw_ver));
  CopyName(rdma::PciAddressOf(from.pci_path), device->pci_address, sizeof(device->pci_address));
  CopyName(from.pci_path, device->pci_path, sizeof(device->pci_path));
  device->numa_node = from.numa_node;
  device->open_errno = from.open_errno;
  FillCaps(from.caps, &device->caps);
  for (const std::string& name : from.quirks) {
    for (int bit = 0; bit < 64; ++bit) {
      if (rdma::QuirkNames(uint64_t{1} << bit) == name) device->quirks |= uint64_t{1} << bit;
    }
  }
  for (size_t p = 0; p < from.ports.size(); ++p) FillPort(from.ports[p], &device->ports[p]);
}

void FillTopology(const rdma::Topology& topology, Directory* dir) {
  dir->host_count = static_cast<uint32_t>(topology.hosts.size());
  dir->net_count = static_cast<uint32_t>(topology.nets.size());
  dir->device_count = static_cast<uint32_t>(topology.devices.size());
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    CopyName(topology.hosts[i], dir->host_names[i], kNameBytes);
  }
  for (size_t i = 0; i < topology.nets.size(); ++i) {
    CopyName(topology.nets[i], dir->net_names[i], kNameBytes);
    dir->routes[i] |= uint64_t{1} << i;
  }
  for (const rdma::TopologyRoute& route : topology.routes) {
    dir->routes[route.from] |= uint64_t{1} << route.to;
  }
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    FillDevice(topology.devices[i], &dir->devices[i]);
  }
}

Directory* Map(int fd, std::string* error) {
  void* const at = mmap(nullptr, sizeof(Directory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    *error = std::string("cannot map the fabric's directory: ") + std::strerror(errno);
    return nullptr;
  }
  return static_cast<Directory*>(at);
}

// Why opening the owner's descriptor failed, in a person's words.
std::string WhyNotOpened(const std::string& what, uint32_t pid, int open_errno) {
  struct stat st;
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &st) != 0) {
    return what + ": its owner, process " + std::to_string(pid) +
           ", has gone; start a new fabric with 'railhop-fabric run'";
  }
  if (st.st_uid != geteuid()) {
    return what + ": process " + std::to_string(pid) + " belongs to user " +
           std::to_string(st.st_uid) + ", and this is user " + std::to_string(geteuid()) +
           "; a fabric is for one user";
  }
  return what + ": process " + std::to_string(pid) + " holds no fabric there (" +
         std::strerror(open_errno) + "); the reference is stale";
}

// What is wrong with a mapped directory; empty if nothing.
std::string Problem(const Directory& dir, uint32_t pid, std::optional<uint64_t> id) {
  if (dir.magic != kDirectoryMagic || dir.size != sizeof(Directory)) {
    return "it was made by another version of Railhop";
  }
  if (dir.uid != geteuid()) {
    return "it belongs to user " + std::to_string(dir.uid) + ", and this is user " +
           std::to_string(geteuid()) + "; a fabric is for one user";
  }
  if (dir.owner_pid != pid || (id && dir.id != *id)) return "the reference is stale";
  if (dir.closed != 0) return "it has ended";
  return "";
}

Directory* AttachFd(uint32_t pid, int owner_fd, std::optional<uint64_t> id, const std::string& what,
                    std::string* error) {
  const std::string path = ProcFd(pid, owner_fd);
  // The link is looked at first: opening a stranger's FIFO or terminal could block or do harm.
  const std::string link = ReadLink(path);
  if (link.empty()) {
    *error = WhyNotOpened(what, pid, errno);
    return nullptr;
  }
  if (link.rfind(kLinkPrefix, 0) != 0) {
    *error = what + ": descriptor " + std::to_string(owner_fd) + " of process " +
             std::to_string(pid) + " is not a fabric; the reference is stale";
    return nullptr;
  }
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    *error = WhyNotOpened(what, pid, errno);
    return nullptr;
  }
  struct stat st;
  if (fstat(fd, &st) != 0 || st.st_size != static_cast<off_t>(sizeof(Directory))) {
    close(fd);
    *error = what + ": it was made by another version of Railhop";
    return nullptr;
  }
  Directory* const dir = Map(fd, error);
  close(fd);
  if (dir == nullptr) return nullptr;
  const std::string problem = Problem(*dir, pid, id);
  if (!problem.empty()) {
    munmap(dir, sizeof(Directory));
    *error = what + ": " + problem;
    return nullptr;
  }
  return dir;
}

// Takes digits off the front of `text` up to `stop` (or the end when it is 0).
std::optional<uint64_t> TakeNumber(std::string_view* text, char stop, int base) {
  const size_t end = stop == 0 ? text->size() : text->find(stop);
  if (end == std::string_view::npos || end == 0 || end > 16) return std::nullopt;
  const std::string digits(text->substr(0, end));
  char* last = nullptr;
  const uint64_t value = std::strtoull(digits.c_str(), &last, base);
  const bool sane = *last == '\0' && std::strchr("+- \t", digits[0]) == nullptr;
  *text = text->substr(stop == 0 ? end : end + 1);
  return sane ? std::optional<uint64_t>(value) : std::nullopt;
}

// Calls `found(fd, link)` for each descriptor of a process that is a fabric.
template <typename Found>
void ForEachFabricFd(uint32_t pid, const Found& found) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return;
  while (const dirent* const entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    const std::string link = ReadLink(path + "/" + entry->d_name);
    if (link.rfind(kLinkPrefix, 0) == 0) found(std::atoi(entry->d_name));
  }
  closedir(dir);
}

}  // namespace

std::unique_ptr<DirectoryHandle> DirectoryHandle::Create(std::string_view name,
                                                         const rdma::Topology& topology,
                                                         uint64_t seed, std::string* error) {
  if (!ValidName(name)) {
    *error = std::string(name) +
             ": not a name of a fabric; allowed: up to 63 letters, digits, '_', '-' and '.'";
    return nullptr;
  }
  const std::string full = name.empty() ? "p" + std::to_string(getpid()) : std::string(name);
  if (!name.empty()) {
    for (const FoundFabric& other : FindFabrics()) {
      if (other.name != full) continue;
      *error = full + ": process " + std::to_string(other.owner_pid) +
               " has a fabric of that name already";
      return nullptr;
    }
  }
  const int fd = memfd_create((kMemfdPrefix + full).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, sizeof(Directory)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    *error = std::string("cannot make the fabric's directory: ") + std::strerror(errno);
    if (fd >= 0) close(fd);
    return nullptr;
  }
  Directory* const dir = Map(fd, error);
  if (dir == nullptr) {
    close(fd);
    return nullptr;
  }
  dir->size = sizeof(Directory);
  dir->id = RandomId();
  dir->seed = seed;
  dir->created_ns = MonotonicNs();
  dir->owner_pid = static_cast<uint32_t>(getpid());
  dir->owner_start_time = ProcessStartTime(dir->owner_pid);
  dir->uid = geteuid();
  CopyName(full, dir->name, sizeof(dir->name));
  dir->time_scale_ppm = 1'000'000;
  InitMutex(&dir->control_lock);
  InitMutex(&dir->claim_lock);
  FillTopology(topology, dir);
  std::atomic_thread_fence(std::memory_order_release);
  dir->magic = kDirectoryMagic;
  return std::unique_ptr<DirectoryHandle>(new DirectoryHandle(dir, fd, fd));
}

std::unique_ptr<DirectoryHandle> DirectoryHandle::Attach(std::string_view reference,
                                                         std::string* error) {
  const std::string what = std::string(kFabricVariable) + "=" + std::string(reference);
  std::string_view rest = reference;
  const std::optional<uint64_t> pid = TakeNumber(&rest, ':', 10);
  const std::optional<uint64_t> fd = pid ? TakeNumber(&rest, ':', 10) : std::nullopt;
  const std::optional<uint64_t> id = fd ? TakeNumber(&rest, 0, 16) : std::nullopt;
  if (!id || *pid > 0x7fffffff || *fd > 0x7fffffff) {
    *error =
        what + ": not a reference to a fabric; allowed: PID:FD:ID as 'railhop-fabric run' sets it";
    return nullptr;
  }
  Directory* const dir =
      AttachFd(static_cast<uint32_t>(*pid), static_cast<int>(*fd), id, what, error);
  if (dir == nullptr) return nullptr;
  return std::unique_ptr<DirectoryHandle>(new DirectoryHandle(dir, -1, static_cast<int>(*fd)));
}

std::unique_ptr<DirectoryHandle> DirectoryHandle::AttachByName(std::string_view name,
                                                               std::string* error) {
  std::string known;
  for (const FoundFabric& fabric : FindFabrics()) {
    if (fabric.name == name) return Attach(fabric.reference, error);
    known += (known.empty() ? "" : ", ") + fabric.name;
  }
  *error = std::string(name) + ": user " + std::to_string(geteuid()) +
           " has no fabric of that name; running: " + (known.empty() ? "none" : known);
  return nullptr;
}

std::vector<FoundFabric> DirectoryHandle::FindFabrics() {
  std::vector<FoundFabric> all;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return all;
  while (const dirent* const entry = readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    struct stat st;
    if (fstatat(dirfd(proc), entry->d_name, &st, 0) != 0 || st.st_uid != geteuid()) continue;
    ForEachFabricFd(static_cast<uint32_t>(pid), [&](int fd) {
      std::string error;
      Directory* const dir = AttachFd(static_cast<uint32_t>(pid), fd, std::nullopt, "", &error);
      if (dir == nullptr) return;
      DirectoryHandle handle(dir, -1, fd);
      char reference[64];
      std::snprintf(reference, sizeof(reference), "%d:%d:%016llx", pid, fd,
                    static_cast<unsigned long long>(dir->id));
      all.push_back({dir->name, reference, static_cast<uint32_t>(pid)});
    });
  }
  closedir(proc);
  return all;
}

DirectoryHandle::~DirectoryHandle() {
  // A forked child has the owner's descriptor but is not the owner.
  if (fd_ >= 0 && dir_->owner_pid == static_cast<uint32_t>(getpid())) {
    dir_->closed.store(1, std::memory_order_release);
    NotifyChange();
  }
  munmap(dir_, sizeof(Directory));
  if (fd_ >= 0) close(fd_);
}

std::string DirectoryHandle::Reference() const {
  char text[64];
  std::snprintf(text, sizeof(text), "%u:%d:%016llx", dir_->owner_pid, owner_fd_,
                static_cast<unsigned long long>(dir_->id));
  return text;
}

bool DirectoryHandle::OwnerAlive() const {
  return dir_->closed.load(std::memory_order_acquire) == 0 &&
         ProcessStartTime(dir_->owner_pid) == dir_->owner_start_time;
}

}  // namespace railhop::fabric
