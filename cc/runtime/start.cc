#include "cc/runtime/start.h"

#include <link.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/log.h"
#include "cc/base/status_macros.h"
#include "cc/config/nccl_values.h"
#include "cc/runtime/device_table.h"
#include "cc/runtime/transport.h"
#include "cc/verbs/table.h"

namespace railhop::runtime {
namespace {

void Inform(const std::string& line) { RAILHOP_LOG(kInfo, "NET/Railhop : %s", line.c_str()); }
void Warn(const std::string& line) { RAILHOP_LOG(kWarning, "NET/Railhop : %s", line.c_str()); }

// The table outlives a stop that keeps devices; the transport gets this in its place.
class Borrowed final : public DeviceSource {
 public:
  explicit Borrowed(DeviceTable* table) : table_(table) {}
  int Count() const override { return table_->Count(); }
  const NetDevice* Get(int index) const override { return table_->Get(index); }
  absl::StatusOr<int> Fuse(absl::Span<const int> devices) override { return table_->Fuse(devices); }

 private:
  DeviceTable* const table_;
};

std::vector<std::string> LoadedLibraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        static_cast<std::vector<std::string>*>(out)->push_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

void SetThreshold(const std::string& word) {
  SetLogThreshold(word == "trace"  ? LogSeverity::kTrace
                  : word == "warn" ? LogSeverity::kWarning
                                   : LogSeverity::kInfo);
}

// Reads the settings and says what is in force; *notes gets what only the parts can tell.
config::LoadedOptions LoadAndReport(std::vector<std::string>* notes) {
  const config::Settings settings = config::Settings::LoadForProcess();
  config::LoadedOptions loaded = config::LoadOptions(settings);
  SetThreshold(loaded.options.log);
  for (const std::string& warning : loaded.warnings) Warn(warning);
  for (const std::string& line : config::OptionReport(loaded)) Inform(line);
  *notes = loaded.notes;
  if (const std::string text = UnprotectedTraffic(settings, LoadedLibraries()); !text.empty()) {
    Warn(text);
  }
  return loaded;
}

class Process {
 public:
  absl::Status Start() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (references_ == 0) RAILHOP_RETURN_IF_ERROR(StartFirst());
    ++references_;
    return absl::OkStatus();
  }

  void Stop(Devices devices) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (references_ == 0 || --references_ > 0) return;
    Transport::Release();
    devices_->StopWatching();
    if (devices == Devices::kClose) devices_.reset();
  }

  bool Runs() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return references_ > 0;
  }

 private:
  absl::Status StartFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> notes;
    if (loaded_ == nullptr) {
      loaded_ = std::make_unique<config::LoadedOptions>(LoadAndReport(&notes));
    }
    const config::Options& options = loaded_->options;
    if (options.ib_disable != 0) return absl::FailedPreconditionError("NCCL_IB_DISABLE is set");
    Hooks hooks;
    hooks.datapath = MakeDatapathConfig(options, &notes);
    hooks.sockets = MakeSocketConfig(options, &notes);
    const bool fresh = devices_ == nullptr;
    if (fresh) RAILHOP_RETURN_IF_ERROR(FindDevices(options, &notes));
    hooks.devices = std::make_unique<Borrowed>(devices_.get());
    if (const absl::Status status = Transport::Init(std::move(hooks)); !status.ok()) {
      devices_.reset();
      return status;
    }
    devices_->StartWatching(options.port_poll_interval_ns);
    if (fresh) Describe(notes);
    return absl::OkStatus();
  }

  absl::Status FindDevices(const config::Options& options, std::vector<std::string>* notes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::StatusOr<std::shared_ptr<const verbs::Table>> table =
        verbs::LoadTable(options.verbs_library);
    if (!table.ok()) return table.status();
    RAILHOP_ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceTable> devices,
        DeviceTable::Discover(*std::move(table), DeviceRules::From(options, notes)));
    if (devices->Count() == 0) {
      return absl::UnavailableError(absl::StrJoin(devices->Complaints(), "; "));
    }
    devices_ = std::move(devices);
    return absl::OkStatus();
  }

  void Describe(const std::vector<std::string>& notes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const std::string& note : notes) Inform(note);
    for (const std::string& line : devices_->Describe()) Inform(line);
    for (const std::string& complaint : devices_->Complaints()) Warn(complaint);
    const std::vector<std::string> waiting = devices_->WaitingPorts();
    if (!waiting.empty()) {
      Inform(absl::StrCat("ports that are down and join when they come up: ",
                          absl::StrJoin(waiting, ", ")));
    }
  }

  absl::Mutex mutex_;
  int references_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<config::LoadedOptions> loaded_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DeviceTable> devices_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed: NCCL's threads may call until the process ends.
Process& TheProcess() {
  static Process* const process = new Process;
  return *process;
}

// A field of a queue pair with few bits: what does not fit is cut to the nearest value, and said.
int Fit(const char* name, int64_t value, int64_t min, int64_t max,
        std::vector<std::string>* notes) {
  const int64_t used = std::clamp(value, min, max);
  if (used != value) {
    notes->push_back(absl::StrCat(name, "=", value, " does not fit its field; ", used, " is used"));
  }
  return static_cast<int>(used);
}

constexpr int64_t kAnyInt = INT32_MAX;
constexpr int64_t kArThresholdDefault = 8192;

}  // namespace

absl::Status StartTransport() { return TheProcess().Start(); }

void StopTransport(Devices devices) { TheProcess().Stop(devices); }

bool TransportRuns() { return TheProcess().Runs(); }

datapath::DatapathConfig MakeDatapathConfig(const config::Options& o,
                                            std::vector<std::string>* notes) {
  datapath::DatapathConfig config;
  config.ib_qps_per_connection =
      Fit("NCCL_IB_QPS_PER_CONNECTION", o.ib_qps_per_connection, 1, 128, notes);
  config.ib_split_data_on_qps = o.ib_split_data_on_qps != 0;
  config.ib_adaptive_routing = o.ib_adaptive_routing == -2 ? -2 : o.ib_adaptive_routing != 0;
  config.ib_ar_threshold = o.ib_ar_threshold == -2 ? kArThresholdDefault : o.ib_ar_threshold;
  config.ib_use_inline = o.ib_use_inline != 0;
  config.ib_pkey = Fit("NCCL_IB_PKEY", o.ib_pkey, 0, 65535, notes);
  config.ib_sl = Fit("NCCL_IB_SL", o.ib_sl, -1, 15, notes);
  config.ib_tc = Fit("NCCL_IB_TC", o.ib_tc, -1, 255, notes);
  config.ib_fifo_tc = Fit("NCCL_IB_FIFO_TC", o.ib_fifo_tc, -1, 255, notes);
  config.ib_ece_enable = o.ib_ece_enable != 0;
  // 32 and more are documented as endless by NCCL; the field has five bits, and 0 is endless.
  config.ib_timeout = o.ib_timeout >= 32 ? 0 : Fit("NCCL_IB_TIMEOUT", o.ib_timeout, 0, 31, notes);
  config.ib_retry_cnt = Fit("NCCL_IB_RETRY_CNT", o.ib_retry_cnt, 0, 7, notes);
  config.ib_mqp_retry_all = o.ib_mqp_retry_all != 0;
  config.ib_mqp_retry_cnt = Fit("NCCL_IB_MQP_RETRY_CNT", o.ib_mqp_retry_cnt, 0, kAnyInt, notes);
  config.ib_mqp_retry_sleep_msec =
      Fit("NCCL_IB_MQP_RETRY_SLEEP_MSEC", o.ib_mqp_retry_sleep_msec, 0, kAnyInt, notes);
  config.ib_pci_relaxed_ordering =
      Fit("NCCL_IB_PCI_RELAXED_ORDERING", o.ib_pci_relaxed_ordering, 0, 2, notes);
  config.gdr_flush_disable = o.gdr_flush_disable != 0;
  config.ib_return_async_events = o.ib_return_async_events != 0;
  config.failover = o.failover;
  return config;
}

control::SocketConfig MakeSocketConfig(const config::Options& o, std::vector<std::string>* notes) {
  control::SocketConfig config;
  // NCCL passes over a text of one character.
  if (o.socket_ifname.size() > 1) {
    config.socket_ifname = o.socket_ifname;
  } else if (!o.socket_ifname.empty()) {
    notes->push_back("NCCL_SOCKET_IFNAME has one character; as in NCCL it is ignored");
  }
  config.socket_family = config::ParseAddressFamily(o.socket_family, -1);
  if (config.socket_family == -1 && !o.socket_family.empty()) {
    notes->push_back(
        "NCCL_SOCKET_FAMILY is neither AF_INET nor AF_INET6; as in NCCL it means either");
  }
  if (o.comm_id.size() > 1) config.comm_id = o.comm_id;
  config.socket_retry_cnt = Fit("NCCL_SOCKET_RETRY_CNT", o.socket_retry_cnt, 0, kAnyInt, notes);
  config.socket_retry_sleep_msec =
      Fit("NCCL_SOCKET_RETRY_SLEEP_MSEC", o.socket_retry_sleep_msec, 0, kAnyInt, notes);
  config.socket_rcvbuf = Fit("NCCL_SOCKET_RCVBUF", o.socket_rcvbuf, -1, kAnyInt, notes);
  config.socket_sndbuf = Fit("NCCL_SOCKET_SNDBUF", o.socket_sndbuf, -1, kAnyInt, notes);
  return config;
}

std::string UnprotectedTraffic(const config::Settings& settings,
                               const std::vector<std::string>& loaded_libraries) {
  std::vector<std::string> signs;
  for (const char* name : {"NCCL_GIN_PLUGIN", "NCCL_GIN_TYPE", "NCCL_RMA_PLUGIN"}) {
    const config::Setting* setting = settings.Find(name);
    if (setting != nullptr && !setting->value.empty()) {
      signs.push_back(absl::StrCat(name, "=", setting->value));
    }
  }
  for (const std::string& path : loaded_libraries) {
    const std::string base = path.substr(path.rfind('/') + 1);
    if (absl::StrContains(base, "deep_ep") || absl::StartsWith(base, "libnccl-gin") ||
        absl::StartsWith(base, "libnccl-rma")) {
      signs.push_back(base);
    }
  }
  if (signs.empty()) return "";
  return absl::StrCat("this process may use NCCL's device-initiated communication (GIN or RMA: ",
                      absl::StrJoin(signs, ", "),
                      "), which does not pass through a net plugin: that traffic is not protected");
}

}  // namespace railhop::runtime
