#include "cc/admin/client.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "cc/admin/codec.h"
#include "cc/admin/loaded_plugin.h"
#include "cc/admin/requests.h"
#include "cc/admin/socket_caller.h"

namespace railhop::admin {
namespace {

// Asks, and takes the one kind of answer that fits.
template <typename Result>
Reply<Result> Ask(Caller* caller, const std::string& name, const Request& request,
                  int64_t timeout_ns) {
  const Reply<std::string> bytes = caller->Call(EncodeRequest(request), timeout_ns);
  if (!bytes.ok()) return bytes.failure();
  Reply<Response> response = DecodeResponse(*bytes);
  if (!response.ok()) {
    return Failure{.code = response.failure().code,
                   .message = name + ": " + response.failure().message};
  }
  if (const Failure* const failure = std::get_if<Failure>(&*response)) return *failure;
  if (Result* const result = std::get_if<Result>(&*response)) return std::move(*result);
  return Failure{.code = ErrorCode::kInternal, .message = name + ": it answers another question"};
}

bool Lives(int64_t pid) { return kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM; }

std::string Joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

Reply<std::unique_ptr<Client>> Client::InProcess() {
  Reply<std::unique_ptr<Caller>> caller = FindLoadedPlugin();
  if (!caller.ok()) return caller.failure();
  return std::make_unique<Client>(std::move(*caller), "this process", kTimeoutNsDefault);
}

Reply<std::unique_ptr<Client>> Client::AtSocket(const std::string& path, int64_t timeout_ns) {
  auto caller = std::make_unique<SocketCaller>(path);
  const Reply<int> opened = caller->Open(timeout_ns);
  if (!opened.ok()) return opened.failure();
  return std::make_unique<Client>(std::move(caller), path, timeout_ns);
}

Reply<std::unique_ptr<Client>> Client::ForPid(int64_t pid, int64_t timeout_ns) {
  const std::string name = std::to_string(pid);
  if (pid <= 0 || pid > 0x7fffffff || !Lives(pid)) {
    return Failure{.code = ErrorCode::kNotFound,
                   .message = "there is no process " + name + " on this node"};
  }
  Failure failure = {.code = ErrorCode::kNotFound,
                     .message = "process " + name +
                                " has no Railhop that answers: NCCL has not loaded the plugin "
                                "there, or RAILHOP_ADMIN=0, or its socket is in a folder that only "
                                "its RAILHOP_ADMIN_DIR names"};
  for (const std::string& directory : SearchedDirectoriesOf(pid, Surroundings::OfThisProcess())) {
    Reply<std::unique_ptr<Client>> client = AtSocket(SocketPath(directory, pid), timeout_ns);
    if (client.ok()) return client;
    if (client.failure().code != ErrorCode::kNotFound) failure = client.failure();
  }
  // Whether it has a socket at all cannot be seen.
  if (failure.code == ErrorCode::kPermission)
    failure.message = "process " + name + ": " + failure.message;
  return failure;
}

Reply<std::unique_ptr<Client>> Client::ForJob(const std::string& job, int64_t timeout_ns) {
  std::vector<FoundSocket> of_job;
  std::set<std::string> pids;
  std::set<std::string> jobs;
  const Reply<std::vector<FoundProcess>> all = FindProcesses(timeout_ns);
  if (!all.ok()) return all.failure();
  for (const FoundProcess& found : *all) {
    if (!found.process.ok()) continue;
    if (!found.process->job.empty()) jobs.insert(found.process->job);
    if (found.process->job != job) continue;
    of_job.push_back(found.socket);
    pids.insert(std::to_string(found.socket.pid));
  }
  if (of_job.size() == 1) return AtSocket(of_job[0].path, timeout_ns);
  if (!of_job.empty()) {
    return Failure{.code = ErrorCode::kInvalid,
                   .message = "job " + job +
                              " has several processes on this node: choose one by "
                              "its pid (" +
                              Joined(pids) + ")"};
  }
  return Failure{.code = ErrorCode::kNotFound,
                 .message = "no process of job " + job + " on this node; " +
                            (jobs.empty() ? "there is none with a job's name at all"
                                          : "there are those of " + Joined(jobs))};
}

Reply<Process> Client::GetProcess() {
  return Ask<Process>(caller_.get(), name_, admin::GetProcess{}, timeout_ns_);
}
Reply<Health> Client::GetHealth() {
  return Ask<Health>(caller_.get(), name_, admin::GetHealth{}, timeout_ns_);
}
Reply<Stats> Client::GetStats() {
  return Ask<Stats>(caller_.get(), name_, admin::GetStats{}, timeout_ns_);
}
Reply<EventList> Client::GetEvents(uint64_t after, uint32_t limit, int64_t wait_ns) {
  const int64_t wait = std::clamp<int64_t>(wait_ns, 0, kWaitNsMax);
  return Ask<EventList>(caller_.get(), name_,
                        admin::GetEvents{.after = after, .limit = limit, .wait_ns = wait},
                        timeout_ns_ + wait);
}
Reply<Outcome> Client::ForceFailover(const std::string& target, FailoverMode mode) {
  return Ask<Outcome>(caller_.get(), name_, admin::ForceFailover{.target = target, .mode = mode},
                      timeout_ns_);
}
Reply<Outcome> Client::FailBack(const std::string& target) {
  return Ask<Outcome>(caller_.get(), name_, admin::FailBack{.target = target}, timeout_ns_);
}
Reply<Outcome> Client::Hold(const std::string& target) {
  return Ask<Outcome>(caller_.get(), name_, admin::Hold{.target = target}, timeout_ns_);
}
Reply<Outcome> Client::Release(const std::string& target) {
  return Ask<Outcome>(caller_.get(), name_, admin::Release{.target = target}, timeout_ns_);
}
Reply<std::vector<Option>> Client::GetConfig() {
  Reply<Config> config = Ask<Config>(caller_.get(), name_, admin::GetConfig{}, timeout_ns_);
  if (!config.ok()) return config.failure();
  return std::move(config->options);
}
Reply<Option> Client::SetOption(const std::string& name, const std::string& value) {
  return Ask<Option>(caller_.get(), name_, admin::SetOption{.name = name, .value = value},
                     timeout_ns_);
}

Reply<std::vector<FoundProcess>> FindProcesses(int64_t timeout_ns) {
  const Surroundings surroundings = Surroundings::OfThisProcess();
  if (!surroundings.admin_dir.empty()) {
    if (const auto problem = FolderProblem(surroundings.admin_dir)) return *problem;
  }
  std::vector<FoundProcess> found;
  for (const FoundSocket& socket : FindSockets(SearchedDirectories(surroundings))) {
    const Reply<std::unique_ptr<Client>> client = Client::AtSocket(socket.path, timeout_ns);
    if (client.ok()) {
      found.push_back({.socket = socket, .process = (*client)->GetProcess()});
    } else {
      found.push_back({.socket = socket, .process = client.failure()});
    }
  }
  return found;
}

}  // namespace railhop::admin
