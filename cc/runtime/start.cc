#include "cc/runtime/start.h"

#include <link.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "cc/admin/sockets.h"
#include "cc/base/log.h"
#include "cc/base/status_macros.h"
#include "cc/runtime/admin_desk.h"
#include "cc/runtime/admin_service.h"
#include "cc/runtime/device_table.h"
#include "cc/runtime/idle_knobs.h"
#include "cc/runtime/log_threshold.h"
#include "cc/runtime/thread_executor.h"
#include "cc/runtime/transport.h"
#include "cc/runtime/transport_options.h"
#include "cc/runtime/unprotected_traffic.h"
#include "cc/verbs/table.h"

namespace railhop::runtime {
namespace {

void Inform(const std::string& line) { RAILHOP_LOG(kInfo, "%s", line.c_str()); }
void Warn(const std::string& line) { RAILHOP_LOG(kWarning, "%s", line.c_str()); }

// The table outlives a stop that keeps devices; the transport gets this in its place.
class Borrowed final : public DeviceSource {
 public:
  explicit Borrowed(DeviceTable* table) : table_(table) {}
  int Count() const override { return table_->Count(); }
  const NetDevice* Get(int index) const override { return table_->Get(index); }
  absl::StatusOr<int> Fuse(absl::Span<const int> devices) override { return table_->Fuse(devices); }
  std::vector<const PhysicalDevice*> Physical() const override { return table_->Physical(); }
  int Rescan(absl::Span<const int> gone) override { return table_->Rescan(gone); }

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

// What the process is found by: a name that a person gave, or the launcher.
std::string JobOf(const config::Options& options, const config::Settings& settings) {
  if (!options.job_id.empty()) return options.job_id;
  for (const char* name : {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"}) {
    const config::Setting* const found = settings.Find(name);
    // torchrun's own default is "none".
    if (found != nullptr && !found->value.empty() && found->value != "none") return found->value;
  }
  return "";
}

// Reads the settings and says what is in force; *notes gets what only the parts can tell.
config::LoadedOptions LoadAndReport(std::vector<std::string>* notes, std::string* job) {
  const config::Settings settings = config::Settings::LoadForProcess();
  config::LoadedOptions loaded = config::LoadOptions(settings);
  SetLogThresholdByWord(loaded.options.log);
  *job = JobOf(loaded.options, settings);
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
    if (IsForkedCopy()) {
      return absl::FailedPreconditionError(
          "this process was forked from one in which Railhop runs: start it anew (spawn)");
    }
    absl::MutexLock lock(&mutex_);
    if (references_ == 0) RAILHOP_RETURN_IF_ERROR(StartFirst());
    ++references_;
    owner_ = getpid();
    return absl::OkStatus();
  }

  void Stop(Devices devices) ABSL_LOCKS_EXCLUDED(mutex_) {
    // The threads that would have to end are not in the child, and nobody there lets go of the
    // locks that they held.
    if (IsForkedCopy()) return;
    absl::MutexLock lock(&mutex_);
    if (references_ == 0 || --references_ > 0) return;
    owner_ = 0;
    admin_.reset();
    AdminDesk::OfThisProcess().Close();
    Transport::Release();
    devices_->StopWatching();
    if (devices != Devices::kClose) return;
    if (ThreadExecutor::AnyLeftBehind()) {
      // A call hangs in a device, which must not be closed under it.
      [[maybe_unused]] const DeviceTable* const left = devices_.release();
    }
    devices_.reset();
  }

  bool Runs() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (IsForkedCopy()) return false;
    absl::MutexLock lock(&mutex_);
    return references_ > 0;
  }

  bool IsForkedCopy() const {
    const pid_t owner = owner_;
    return owner != 0 && owner != getpid();
  }

 private:
  absl::Status StartFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> notes;
    if (loaded_ == nullptr) {
      loaded_ = std::make_unique<config::LoadedOptions>(LoadAndReport(&notes, &job_));
    }
    const config::Options& options = loaded_->options;
    if (options.ib_disable != 0) return absl::FailedPreconditionError("NCCL_IB_DISABLE is set");
    Hooks hooks;
    hooks.datapath = MakeDatapathConfig(options, &notes);
    hooks.sockets = MakeSocketConfig(options, &notes);
    hooks.failover = MakeFailoverConfig(options, &notes);
    hooks.ports = DeviceRules::From(options, &notes).ports();
    if (devices_ == nullptr) RAILHOP_RETURN_IF_ERROR(FindDevices(options, &notes));
    hooks.devices = std::make_unique<Borrowed>(devices_.get());
    if (const absl::Status status = Transport::Init(std::move(hooks)); !status.ok()) {
      devices_.reset();
      return status;
    }
    devices_->StartWatching(options.port_poll_interval_ns);
    AdminDesk::OfThisProcess().Open({.loaded = *loaded_, .job = job_});
    if (options.admin) StartAdminService(options);
    if (!described_) Describe(notes);
    described_ = true;
    return absl::OkStatus();
  }

  // A job does not need it: what is wrong with it is told, and that is all.
  void StartAdminService(const config::Options& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    admin::Surroundings surroundings = admin::Surroundings::OfThisProcess();
    surroundings.admin_dir = options.admin_dir;
    absl::StatusOr<std::unique_ptr<AdminService>> service =
        AdminService::Start(&AdminDesk::OfThisProcess(), admin::SocketDirectories(surroundings));
    if (service.ok()) {
      admin_ = *std::move(service);
      Inform(absl::StrCat("admin socket ", admin_->path()));
      return;
    }
    const std::string line = absl::StrCat(
        "nobody outside this process can watch or steer it, as there is no admin "
        "socket: ",
        service.status().message());
    if (options.admin_dir.empty()) {
      Inform(line);
    } else {
      Warn(line);
    }
  }

  absl::Status FindDevices(const config::Options& options, std::vector<std::string>* notes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::StatusOr<std::shared_ptr<const verbs::Table>> table =
        verbs::LoadTable(options.verbs_library);
    if (!table.ok()) return table.status();
    // So that a child that the job forks does not take pages from under the NIC on older kernels; a
    // refusal is no reason to stop. NCCL's own transport does the same.
    if ((*table)->fork_init != nullptr) (*table)->fork_init();
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
    FoundLinks found;
    for (int i = 0; i < devices_->Count(); ++i) {
      (devices_->Get(i)->parts[0]->is_ethernet ? found.roce : found.infiniband) = true;
    }
    for (const std::string& note : IdleKnobs(*loaded_, found)) Inform(note);
    for (const std::string& line : devices_->Describe()) Inform(line);
    for (const std::string& complaint : devices_->Complaints()) Warn(complaint);
    const std::vector<std::string> waiting = devices_->WaitingPorts();
    if (!waiting.empty()) {
      Inform(absl::StrCat("ports that are down and join when they come up: ",
                          absl::StrJoin(waiting, ", ")));
    }
  }

  std::atomic<pid_t> owner_ = 0;  // in which it runs; 0 = in none
  absl::Mutex mutex_;
  int references_ ABSL_GUARDED_BY(mutex_) = 0;
  bool described_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<config::LoadedOptions> loaded_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DeviceTable> devices_ ABSL_GUARDED_BY(mutex_);
  std::string job_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<AdminService> admin_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed: NCCL's threads may call until the process ends.
Process& TheProcess() {
  static Process* const process = new Process;
  return *process;
}

}  // namespace

absl::Status StartTransport() { return TheProcess().Start(); }

void StopTransport(Devices devices) { TheProcess().Stop(devices); }

bool TransportRuns() { return TheProcess().Runs(); }

bool IsForkedCopy() { return TheProcess().IsForkedCopy(); }

}  // namespace railhop::runtime
