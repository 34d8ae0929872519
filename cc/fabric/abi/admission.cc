#include "cc/fabric/abi/admission.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "cc/rdma_model/fault_table.h"

namespace railhop::fabric::abi {
namespace {

using rdma::VerbCall;

constexpr uint64_t kQuirkHangNs = 60'000'000'000;  // rdma::kQuirkHangVerbs

bool FreesOrPolls(VerbCall call) {
  switch (call) {
    case VerbCall::kCloseDevice:
    case VerbCall::kDeallocPd:
    case VerbCall::kDeregMr:
    case VerbCall::kDestroyCq:
    case VerbCall::kDestroyQp:
    case VerbCall::kPollCq:
      return true;
    default:
      return false;
  }
}

bool HangsWithQuirk(VerbCall call) {
  return call == VerbCall::kModifyQp || call == VerbCall::kDestroyQp ||
         call == VerbCall::kDestroyCq || call == VerbCall::kDeregMr;
}

void Sleep(uint64_t duration_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  // A fault that never ends is given as a very long time.
  duration_ns = std::min<uint64_t>(duration_ns, kSecond << 31);
  const uint64_t ns = static_cast<uint64_t>(until.tv_nsec) + duration_ns % kSecond;
  until.tv_sec += static_cast<time_t>(duration_ns / kSecond + ns / kSecond);
  until.tv_nsec = static_cast<long>(ns % kSecond);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void Hang(DirectoryHandle& directory, uint32_t device, uint64_t duration_ns) {
  LogRecord record;
  record.device = device;
  record.port = 1;
  record.kind = static_cast<uint32_t>(rdma::LogKind::kVerbHung);
  record.arg = duration_ns;
  directory.Log(record);
  Sleep(duration_ns);
}

// What the faults say.
int Judge(DirectoryHandle& directory, uint32_t device, VerbCall call, uint32_t detail) {
  rdma::FaultTable& table = directory.device(device).ports[0].faults;
  const rdma::VerbVerdict verdict = rdma::JudgeVerb(table, call, detail, MonotonicNs());
  if (verdict.hang_ns != 0) Hang(directory, device, verdict.hang_ns);
  if (verdict.error == 0) return 0;
  LogRecord record;
  record.device = device;
  record.port = 1;
  record.kind = static_cast<uint32_t>(rdma::LogKind::kVerbFailed);
  record.arg = static_cast<uint64_t>(verdict.error) << 8 | static_cast<uint64_t>(call);
  directory.Log(record);
  return verdict.error;
}

}  // namespace

std::atomic<uint32_t> g_fork_generation{0};

void WatchForks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] {
    g_fork_generation.fetch_add(1, std::memory_order_relaxed);
    ForgetUsage();
  });
  (void)once;
}

int AdmitSlow(const ContextObject& context, VerbCall call, uint32_t detail) {
  if (IsParents(context)) return EPERM;
  DirectoryHandle& directory = context.nic->directory();
  const DeviceEntry& device = *context.device;
  const uint64_t quirks = device.quirks.load(std::memory_order_relaxed);
  if ((quirks & rdma::kQuirkHangVerbs) != 0 && HangsWithQuirk(call))
    Hang(directory, context.index, kQuirkHangNs);
  if (const int error = Judge(directory, context.index, call, detail); error != 0) return error;
  const bool gone = device.removed.load(std::memory_order_acquire) != 0 ||
                    device.generation.load(std::memory_order_acquire) != context.core->generation;
  if (!gone) return 0;
  return FreesOrPolls(call) && (quirks & rdma::kQuirkEioAfterRemoval) == 0 ? 0 : EIO;
}

int AdmitOpen(DirectoryHandle& directory, uint32_t device) {
  if (const int error = Judge(directory, device, VerbCall::kOpenDevice, 0); error != 0)
    return error;
  const DeviceEntry& entry = directory.device(device);
  if (entry.open_errno != 0) return entry.open_errno;
  return entry.removed.load(std::memory_order_acquire) != 0 ? ENODEV : 0;
}

}  // namespace railhop::fabric::abi
