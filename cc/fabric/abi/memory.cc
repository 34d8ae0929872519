// Protection domains and memory regions.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <new>
#include <string>

#include "cc/fabric/abi/admission.h"
#include "cc/fabric/abi/objects.h"
#include "cc/rdma_model/memory_region.h"

namespace railhop::fabric::abi {
namespace {

using rdma::VerbCall;

constexpr uint32_t kModelAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// Accepted, with no effect here: memory windows cannot be made, and ordering is strict anyhow.
constexpr uint32_t kIgnoredAccess =
    IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
constexpr uint32_t kPagingAccess = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

int CheckAccess(uint32_t access) {
  if ((access & ~(kModelAccess | kIgnoredAccess | kPagingAccess)) != 0) return EINVAL;
  if ((access & kPagingAccess) != 0) return EOPNOTSUPP;
  // Whoever lets others write must be able to write (ibv_reg_mr(3)).
  const bool remote_writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return remote_writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

// Whether mappings with the right to read (and, for `write`, to write) cover [at, end).
bool MapsAllow(uint64_t at, uint64_t end, bool write) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; at < end && std::getline(maps, line);) {
    uint64_t first = 0;
    uint64_t last = 0;
    char rights[8] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %7s", &first, &last, rights) != 3)
      continue;
    if (last <= at) continue;
    if (first > at || rights[0] != 'r' || (write && rights[1] != 'w')) return false;
    at = last;
  }
  return at >= end;
}

// Whether [address, address + length) is memory that may be read or, for `write`, written. The
// pages are brought in as if for pinning, which checks the mappings' rights. Where the kernel
// refuses to (missing rights, but also device memory, and any kernel before 5.14) the list of
// mappings decides.
bool IsAccessible(const void* address, size_t length, bool write) {
  constexpr int kPopulateRead = 22;   // MADV_POPULATE_READ, Linux 5.14
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t at = reinterpret_cast<uint64_t>(address) & ~(page - 1);
  const uint64_t end = (reinterpret_cast<uint64_t>(address) + length + page - 1) & ~(page - 1);
  const int advice = write ? kPopulateWrite : kPopulateRead;
  while (madvise(reinterpret_cast<void*>(at), end - at, advice) != 0) {
    if (errno == EINVAL) return MapsAllow(at, end, write);
    if (errno != EINTR && errno != EAGAIN) return false;
  }
  return true;
}

struct Request {
  void* address = nullptr;
  size_t length = 0;
  uint64_t iova = 0;
  uint32_t access = 0;
};

int CheckRequest(const ContextObject& context, const Request& request) {
  if (const int error = CheckAccess(request.access); error != 0) return error;
  const auto start = reinterpret_cast<uint64_t>(request.address);
  if (request.length == 0 || start + request.length < start ||
      request.iova + request.length < request.iova) {
    return EINVAL;
  }
  if (request.length > context.device->caps.max_mr_size) return EINVAL;
  const bool write = (request.access & IBV_ACCESS_LOCAL_WRITE) != 0;
  return IsAccessible(request.address, request.length, write) ? 0 : EFAULT;
}

// The key; 0 with errno.
uint32_t RegisterInCore(const ContextObject& context, const PdObject& pd, const Request& request) {
  rdma::MemoryRegion region;
  region.access = request.access & kModelAccess;
  region.pd = pd.id;
  region.iova = request.iova;
  region.length = request.length;
  region.va = reinterpret_cast<uint64_t>(request.address);
  return context.nic->Register(context.core, region);
}

// Null with errno.
MrObject* Register(ibv_pd* pd, const Request& request) {
  const ContextObject& context = *Of(pd->context);
  if (const int error = CheckRequest(context, request); error != 0) {
    errno = error;
    return nullptr;
  }
  Usage& usage = UsageOf(context);
  if (!TakeOne(usage.mrs, context.device->caps.max_mr)) {
    errno = ENOMEM;
    return nullptr;
  }
  const uint32_t key = RegisterInCore(context, *Of(pd), request);
  auto* const object = key == 0 ? nullptr : new (std::nothrow) MrObject();
  if (object == nullptr) {
    const int error = key == 0 ? errno : ENOMEM;
    if (key != 0) context.nic->Deregister(key);
    usage.mrs.fetch_sub(1);
    errno = error;
    return nullptr;
  }
  object->access = request.access;
  object->mr = {pd->context, pd, request.address, request.length, key, key, key};
  Of(pd)->users.fetch_add(1);
  return object;
}

ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length, uint64_t iova, uint32_t access) {
  if (const int error = Admit(*Of(pd->context), VerbCall::kRegMr); error != 0) {
    errno = error;
    return nullptr;
  }
  MrObject* const object = Register(pd, {address, length, iova, access});
  return object == nullptr ? nullptr : &object->mr;
}

}  // namespace
}  // namespace railhop::fabric::abi

using namespace railhop::fabric;       // NOLINT: the verbs ABI has no namespace
using namespace railhop::fabric::abi;  // NOLINT
using railhop::rdma::VerbCall;

RAILHOP_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const ContextObject& object = *Of(context);
  if (const int error = Admit(object, VerbCall::kAllocPd); error != 0) {
    errno = error;
    return nullptr;
  }
  if (!TakeOne(UsageOf(object).pds, object.device->caps.max_pd)) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const pd = new (std::nothrow) PdObject();
  if (pd == nullptr) {
    UsageOf(object).pds.fetch_sub(1);
    errno = ENOMEM;
    return nullptr;
  }
  pd->id = object.nic->AllocatePd(object.core);
  pd->pd.context = context;
  pd->pd.handle = pd->id;
  return &pd->pd;
}

RAILHOP_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  PdObject* const object = Of(pd);
  const ContextObject& context = *Of(pd->context);
  if (const int error = Admit(context, VerbCall::kDeallocPd); error != 0) return error;
  if (object->users.load() != 0) return EBUSY;
  UsageOf(context).pds.fetch_sub(1);
  delete object;
  return 0;
}

RAILHOP_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  const auto flags = static_cast<uint32_t>(access);
  const uint64_t iova = (flags & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<uint64_t>(addr);
  return RegisterMemory(pd, addr, length, iova, flags);
}

RAILHOP_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                       int access) {
  return RegisterMemory(pd, addr, length, iova, static_cast<uint32_t>(access));
}

RAILHOP_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                        unsigned int access) {
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  return RegisterMemory(pd, addr, length, iova, access);
}

// A file that can be mapped stands in for device memory: bytes [offset, offset + length) of `fd`
// are at `iova`. EOPNOTSUPP for any other descriptor, also for -1, with which programs ask whether
// DMA-BUF works at all.
RAILHOP_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                         int fd, int access) {
  if (const int error = Admit(*Of(pd->context), VerbCall::kRegDmabufMr); error != 0) {
    errno = error;
    return nullptr;
  }
  struct stat file;
  if (fd < 0 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const auto size = static_cast<uint64_t>(file.st_size);
  if (length == 0 || offset > size || length > size - offset) {
    errno = EINVAL;
    return nullptr;
  }
  const uint64_t within_page = offset % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = length + within_page;
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                             static_cast<off_t>(offset - within_page));
  if (mapping == MAP_FAILED) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  MrObject* const object = Register(
      pd, {static_cast<char*>(mapping) + within_page, length, iova, static_cast<uint32_t>(access)});
  if (object == nullptr) {
    const int error = errno;
    munmap(mapping, bytes);
    errno = error;
    return nullptr;
  }
  object->mapping = mapping;
  object->mapping_bytes = bytes;
  object->mr.addr = nullptr;  // the program has no address of it
  return &object->mr;
}

RAILHOP_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  MrObject* const object = Of(mr);
  const ContextObject& context = *Of(mr->context);
  if (const int error = Admit(context, VerbCall::kDeregMr); error != 0) return error;
  if (const int error = context.nic->Deregister(mr->lkey); error != 0) return error;
  if (object->mapping != nullptr) munmap(object->mapping, object->mapping_bytes);
  UsageOf(context).mrs.fetch_sub(1);
  Of(mr->pd)->users.fetch_sub(1);
  delete object;
  return 0;
}

// Changes a region by registering anew: its keys change. Returns 0 or an ibv_rereg_mr_err_code with
// errno; in each case of failure the region is what it was.
RAILHOP_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                                int access) {
  MrObject* const object = Of(mr);
  const ContextObject& context = *Of(mr->context);
  if (const int error = Admit(context, VerbCall::kRegMr); error != 0) {
    errno = error;
    return IBV_REREG_MR_ERR_INPUT;
  }
  constexpr int kKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  const bool moved = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if (flags == 0 || (flags & ~kKnown) != 0 || object->mapping != nullptr ||
      (moved && (addr == nullptr || length == 0))) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  ibv_pd* const new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr->pd;
  Request request;
  request.address = moved ? addr : mr->addr;
  request.length = moved ? length : mr->length;
  request.iova = reinterpret_cast<uint64_t>(request.address);
  request.access =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<uint32_t>(access) : object->access;
  if (const int error = CheckRequest(context, request); error != 0) {
    errno = error;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const uint32_t key = RegisterInCore(context, *Of(new_pd), request);
  if (key == 0) return IBV_REREG_MR_ERR_CMD;
  context.nic->Deregister(mr->lkey);
  Of(new_pd)->users.fetch_add(1);
  Of(mr->pd)->users.fetch_sub(1);
  object->access = request.access;
  object->mr = {mr->context, new_pd, request.address, request.length, key, key, key};
  return 0;
}
