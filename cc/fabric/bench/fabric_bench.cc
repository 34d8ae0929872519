// What the fabric costs: bandwidth of large writes and latency of small ones, against the bare
// system call and memcpy.
//
// Two processes and one queue pair each way. Bandwidth is compared with process_vm_writev of the
// same buffers, which is all that a fabric can hope for; rounds of both alternate, so that a noisy
// machine hits both alike, and medians are printed. Latency is one way: half of a round trip in
// which both ends poll on memory.
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cc/fabric/bench/verbs_pair.h"

namespace railhop::fabric {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr int kWritesPerRound = 128;
constexpr int kRounds = 31;
constexpr int kPingsPerRound = 20000;
constexpr int kLatencyRounds = 15;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// `baseline` is in the unit of `value`, measured in this run; the ratio is the median of the
// rounds' ratios.
void Figure(const char* metric, double value, const char* unit, const char* baseline_name,
            double baseline, double ratio, int runs) {
  printf(
      "{\"bench\": \"fabric\", \"metric\": \"%s\", \"value\": %.5g, \"unit\": \"%s\", "
      "\"baseline\": %.5g, \"baseline_name\": \"%s\", \"ratio\": %.4g, \"runs\": %d}\n",
      metric, value, unit, baseline, baseline_name, ratio, runs);
  fflush(stdout);
}

void Pin(int cpu) {
  const auto cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu % cpus), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

void Exchange(int fd, const Address& mine, Address* theirs) {
  if (write(fd, &mine, sizeof(mine)) != sizeof(mine) ||
      read(fd, theirs, sizeof(*theirs)) != sizeof(*theirs)) {
    fprintf(stderr, "fabric_bench: the other process has gone\n");
    exit(1);
  }
}

void Check(int rc, const char* what) {
  if (rc == 0) return;
  fprintf(stderr, "fabric_bench: %s: %s\n", what, strerror(rc));
  exit(1);
}

void AwaitCompletion(ibv_cq* cq) {
  ibv_wc wc = {};
  int n = 0;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  if (n < 0 || wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "fabric_bench: completion: %s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
}

volatile uint64_t* Word(const Endpoint& end, size_t offset) {
  return reinterpret_cast<volatile uint64_t*>(end.buffer() + offset);
}

// Polls on memory; yields now and then, so that two pollers on one core get on.
void AwaitWord(volatile uint64_t* word, uint64_t value) {
  for (uint32_t polls = 1; *word != value; ++polls) {
    if (polls % 1024 == 0) sched_yield();
  }
}

// The far end: gives its buffer, answers pings, ends with the connection.
int Serve(int fd, const std::string& device_name) {
  Pin(1);
  const OpenDevice device(device_name);
  Endpoint end(device, 2 * kMiB, {});
  Address peer;
  Exchange(fd, end.address(), &peer);
  Check(end.Connect(peer), "connect");
  char ready = 0;
  if (write(fd, &ready, 1) != 1) return 1;
  for (int round = 0; round < kLatencyRounds; ++round) {
    if (read(fd, &ready, 1) != 1) return 1;
    const auto base = static_cast<uint64_t>(round) * kPingsPerRound;
    for (uint64_t i = base + 1; i <= base + kPingsPerRound; ++i) {
      AwaitWord(Word(end, kMiB), i);
      *Word(end, 0) = i;
      Check(end.PostWrite(i, 0, 8, kMiB, true), "post");
      AwaitCompletion(end.cq());
    }
  }
  (void)!read(fd, &ready, 1);  // until the other end is done
  return 0;
}

void MeasureBandwidth(Endpoint& end, uint32_t peer_pid, uint64_t peer_addr) {
  std::vector<double> ours;
  std::vector<double> bare;
  std::vector<double> copied;
  std::vector<double> ratios;
  std::vector<uint8_t> target(kMiB, 1);
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(Seconds([&] {
      for (int i = 0; i < kWritesPerRound; ++i) {
        Check(end.PostWrite(static_cast<uint64_t>(i), 0, kMiB, 0, true), "post");
        AwaitCompletion(end.cq());
      }
    }));
    bare.push_back(Seconds([&] {
      for (int i = 0; i < kWritesPerRound; ++i) {
        const iovec local = {end.buffer(), kMiB};
        const iovec remote = {reinterpret_cast<void*>(peer_addr), kMiB};
        if (process_vm_writev(static_cast<pid_t>(peer_pid), &local, 1, &remote, 1, 0) != kMiB) {
          Check(errno, "process_vm_writev");
        }
      }
    }));
    copied.push_back(Seconds([&] {
      for (int i = 0; i < kWritesPerRound; ++i) {
        memcpy(target.data(), end.buffer(), kMiB);
        asm volatile("" : : "r"(target.data()) : "memory");
      }
    }));
    ratios.push_back(bare.back() / ours.back());
  }
  const auto gbps = [](const std::vector<double>& seconds) {
    return static_cast<double>(kWritesPerRound) * kMiB / Median(seconds) / 1e9;
  };
  Figure("write_bandwidth_1MiB", gbps(ours), "GB/s", "process_vm_writev", gbps(bare),
         Median(ratios), kRounds);
  Figure("write_bandwidth_1MiB_to_memcpy", gbps(ours), "GB/s", "memcpy", gbps(copied),
         Median(copied) / Median(ours), kRounds);
}

void MeasureLatency(Endpoint& end, int fd) {
  std::vector<double> one_way;
  std::vector<double> syscall_us;
  for (int round = 0; round < kLatencyRounds; ++round) {
    char go = 0;
    if (write(fd, &go, 1) != 1) exit(1);
    const auto base = static_cast<uint64_t>(round) * kPingsPerRound;
    std::vector<double> round_trips;
    round_trips.reserve(kPingsPerRound);
    for (uint64_t i = base + 1; i <= base + kPingsPerRound; ++i) {
      round_trips.push_back(Seconds([&] {
        *Word(end, 0) = i;
        Check(end.PostWrite(i, 0, 8, kMiB, true), "post");
        AwaitCompletion(end.cq());
        AwaitWord(Word(end, kMiB), i);
      }));
    }
    one_way.push_back(Median(round_trips) / 2 * 1e6);
    uint64_t value = 0;
    const iovec local = {&value, 8};
    const iovec remote = {end.buffer(), 8};
    std::vector<double> calls;
    for (int i = 0; i < 2000; ++i) {
      calls.push_back(
          Seconds([&] { (void)!process_vm_writev(getpid(), &local, 1, &remote, 1, 0); }));
    }
    syscall_us.push_back(Median(calls) * 1e6);
  }
  const double latency = Median(one_way);
  const double call = Median(syscall_us);
  Figure("write_latency_8B", latency, "us", "process_vm_writev", call, latency / call,
         kLatencyRounds);
}

int Main(int argc, char** argv) {
  const std::string near = argc > 1 ? argv[1] : "soft0";
  const std::string far = argc > 2 ? argv[2] : "soft1";
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    exit(Serve(fds[1], far));
  }
  close(fds[1]);
  Pin(0);
  {
    const OpenDevice device(near);
    Endpoint end(device, 2 * kMiB, {});
    Address peer;
    Exchange(fds[0], end.address(), &peer);
    Check(end.Connect(peer), "connect");
    char ready = 0;
    if (read(fds[0], &ready, 1) != 1) return 1;
    fprintf(stderr, "fabric_bench: bandwidth\n");
    MeasureBandwidth(end, static_cast<uint32_t>(child), peer.addr);
    fprintf(stderr, "fabric_bench: latency\n");
    MeasureLatency(end, fds[0]);
  }
  close(fds[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace railhop::fabric

int main(int argc, char** argv) { return railhop::fabric::Main(argc, argv); }
