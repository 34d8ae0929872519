#include "cc/runtime/transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/clock.h"
#include "cc/base/log.h"
#include "cc/base/status_macros.h"
#include "cc/control/handle.h"
#include "cc/control/socket_address.h"
#include "cc/runtime/async_watch.h"
#include "cc/runtime/comm.h"
#include "cc/runtime/connect_attempt.h"
#include "cc/runtime/cover.h"
#include "cc/runtime/failover_service.h"
#include "cc/runtime/fault_report.h"
#include "cc/runtime/handshake_rules.h"
#include "cc/runtime/listener.h"
#include "cc/runtime/thread_executor.h"
#include "cc/runtime/transport_view.h"

namespace railhop::runtime {

class ListenComm {
 public:
  enum class Mark : uint32_t { kClosed = 0, kOpen = 0x115e9e40 };

  Mark mark = Mark::kClosed;
  const NetDevice* device = nullptr;
  std::unique_ptr<Listener> listener;
};

namespace {

// What lives between the first Init and the last Release.
struct State {
  std::unique_ptr<DeviceSource> devices;
  Identity identity;
  control::Interface interface;
  RealClock clock;

  // Open connections, for events that end some of them.
  absl::Mutex comms_mutex;
  std::set<ConnectionComm*> comms ABSL_GUARDED_BY(comms_mutex);
  // Those, and such as are being closed; and what others have moved.
  std::set<ConnectionComm*> counted ABSL_GUARDED_BY(comms_mutex);
  std::map<int, TransportView::PortTotal> closed ABSL_GUARDED_BY(comms_mutex);
  // Null: failover is off. Ends after the watch, which hands it events.
  std::unique_ptr<FailoverService> failover;
  // Registrations, if failover is off; else they are the service's.
  std::unique_ptr<Cover> own_cover;

  // After what its thread uses, so that it ends first.
  std::unique_ptr<AsyncWatch> watch;

  Cover& cover() { return failover != nullptr ? failover->cover() : *own_cover; }

  absl::Mutex mutex;
  std::map<uint64_t, std::shared_ptr<ConnectAttempt>> attempts ABSL_GUARDED_BY(mutex);
};

// Never destroyed: what NCCL still points to after a Release must stay readable.
struct Pools {
  StablePool<ListenComm> listens;
  StablePool<SendComm> sends;
  StablePool<RecvComm> recvs;
  StablePool<Memory> memories;
};

Pools& AllPools() {
  static Pools* const pools = new Pools();
  return *pools;
}

ABSL_CONST_INIT absl::Mutex init_mutex(absl::kConstInit);
int references ABSL_GUARDED_BY(init_mutex) = 0;

ABSL_CONST_INIT absl::Mutex state_mutex(absl::kConstInit);

// Null between a last Release and an Init.
std::shared_ptr<State>& StateSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex) {
  static auto* const slot = new std::shared_ptr<State>();
  return *slot;
}

// Calls that are under way keep the state alive: NCCL may connect in one thread while another
// closes the last connection and releases.
std::shared_ptr<State> Running() {
  absl::MutexLock lock(&state_mutex);
  return StateSlot();
}

absl::Status NotRunning() { return absl::InvalidArgumentError("the transport is not initialized"); }

absl::StatusOr<const NetDevice*> FindDevice(const std::shared_ptr<State>& running, int dev) {
  if (running == nullptr) return NotRunning();
  const NetDevice* const device = running->devices->Get(dev);
  if (device == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no net device ", dev));
  }
  return device;
}

absl::StatusOr<Memory*> RegisterRange(ConnectionComm* comm, const Cover::Range& range) {
  const std::shared_ptr<State> running = Running();
  if (running == nullptr) return NotRunning();
  if (comm == nullptr || comm->mark == ConnectionComm::Mark::kClosed) {
    return absl::InvalidArgumentError("memory is registered for a closed connection");
  }
  if (range.data == nullptr || range.size == 0) {
    return absl::InvalidArgumentError("memory to register is empty");
  }
  Memory* const memory = AllPools().memories.Take();
  const absl::Status registered = running->cover().Register(comm, memory, range);
  if (!registered.ok()) {
    AllPools().memories.Give(memory);
    return registered;
  }
  return memory;
}

datapath::Connection* ConnectionOf(ConnectionComm* comm) {
  if (SendComm* const send = AsSend(comm)) return send->connection;
  if (RecvComm* const recv = AsRecv(comm)) return recv->connection;
  return nullptr;
}

void Opened(State* running, ConnectionComm* comm) {
  {
    absl::MutexLock lock(&running->comms_mutex);
    running->comms.insert(comm);
    running->counted.insert(comm);
  }
  if (running->failover != nullptr) {
    // Backups too: what happens to them matters before they are needed.
    for (const PhysicalDevice* port : running->devices->Physical()) {
      running->watch->Watch(port->context);
    }
  } else {
    for (const PhysicalDevice* part : comm->device->parts) running->watch->Watch(part->context);
  }
}

std::vector<PeerDevice> PeerDevicesOf(const control::EndDescription& peer) {
  std::vector<PeerDevice> devices;
  for (const control::DeviceDescription& device : peer.devices) {
    devices.push_back({.name = device.name, .port = device.port});
  }
  return devices;
}

// Hands a new connection to the driver, if both ends want failover.
void Protect(State* running, ConnectionComm* comm, engine::End end, uint64_t connection_id,
             const control::Secret& secret, const control::EndDescription& local,
             const control::EndDescription& peer, datapath::Connection* connection) {
  if (running->failover == nullptr || !peer.failover) return;
  connection->SetFailover(true, end == engine::End::kSender ? local.confirm : peer.confirm);
  connection->set_context(comm);
  LinkInfo info;
  info.id = {.connection = connection_id, .end = end};
  info.peer = peer.instance_id;
  info.peer_host = peer.host;
  info.label = comm->label;
  info.secret = secret;
  info.addresses = peer.control_addresses;
  info.comm = comm;
  info.send = end == engine::End::kSender ? AsSend(comm)->connection : nullptr;
  info.recv = end == engine::End::kReceiver ? AsRecv(comm)->connection : nullptr;
  info.memory = reinterpret_cast<void*>(local.memory_address);
  info.parts.assign(comm->device->parts.begin(), comm->device->parts.end());
  info.peer_parts = PeerDevicesOf(peer);
  for (size_t lane = 0; lane < local.lanes.size(); ++lane) {
    // As LaneBuilder has paired them.
    const size_t slot = lane % info.parts.size();
    info.base.push_back({.local = info.parts[slot]->id,
                         .slot = static_cast<uint8_t>(slot),
                         .remote_slot = static_cast<uint8_t>(lane % peer.devices.size())});
  }
  info.adaptive_routing = connection->rules().adaptive_routing;
  // Those of the sender's HELLO.
  const control::EndDescription& sender = end == engine::End::kSender ? local : peer;
  info.service_level = sender.service_level;
  info.traffic_class = sender.traffic_class;
  info.flush_pointers = comm->device->properties.ptr_support;
  comm->end = info.id;
  comm->is_protected = true;
  running->failover->driver().Add(std::move(info));
}

// On the watch's thread.
void TakeEvent(State* running, const AsyncEvent& event) {
  const bool fatal = IsFatal(event.type);
  const std::string where = event.port == 0 ? event.context->name()
                                            : absl::StrCat(event.context->name(), ":", event.port);
  // With failover the driver says what comes of it.
  if (running->failover == nullptr && (fatal || event.type == IBV_EVENT_PORT_ERR)) {
    RAILHOP_LOG(kWarning, "%s: %s (event %d)", where.c_str(), EventText(event.type), event.type);
  } else {
    RAILHOP_LOG(kInfo, "%s: %s (event %d)", where.c_str(), EventText(event.type), event.type);
  }
  if (running->failover != nullptr) running->failover->driver().Take(event);
  if (!fatal || !running->identity.datapath.ib_return_async_events) return;
  absl::MutexLock lock(&running->comms_mutex);
  for (ConnectionComm* comm : running->comms) {
    if (comm->is_protected) continue;
    datapath::Connection* const connection = ConnectionOf(comm);
    const bool hit = event.qp != nullptr   ? connection->Uses(event.qp)
                     : event.cq != nullptr ? connection->Uses(event.cq)
                                           : connection->Uses(event.context);
    if (hit) connection->GiveUp(event.type);
  }
}

// How long a close waits for calls on devices that use the connection.
constexpr int64_t kCloseBoundNs = 5 * kNsPerSecond;

// Ends the connection's queue pairs on its device's worker, since a dying device can keep a call
// for a minute, and NCCL must not wait so long. Errors: Unavailable (it goes on; may be called
// again), Internal.
absl::Status CloseInBound(State* running, ConnectionComm* comm, datapath::Connection* connection,
                          absl::Status (*close)(datapath::Connection*)) {
  Executor& executor = running->failover->executor();
  const int physical = comm->device->parts[0]->id;
  const std::shared_ptr<Closing> before = comm->closing;
  const std::shared_ptr<Closing> closing = before != nullptr ? before : std::make_shared<Closing>();
  comm->closing = closing;
  if (before == nullptr) {
    executor.RunAndWait({{physical,
                          [closing, connection, close] {
                            closing->status = close(connection);
                            closing->ended.store(true, std::memory_order_release);
                          }}},
                        executor.CloseBoundNs(physical));
  }
  if (!closing->ended.load(std::memory_order_acquire)) {
    return absl::UnavailableError(absl::StrCat(
        comm->label, ": a call on a device does not return; the connection stays as it is"));
  }
  comm->closing = nullptr;
  return closing->status;
}

// What it has moved stays counted.
void KeepTraffic(State* running, ConnectionComm* comm, const datapath::Connection* connection) {
  absl::MutexLock lock(&running->comms_mutex);
  running->counted.erase(comm);
  for (const datapath::PortTraffic& port : connection->CountTraffic().ports) {
    TransportView::PortTotal& total = running->closed[port.physical];
    const bool sent = AsSend(comm) != nullptr;
    (sent ? total.sent_bytes : total.received_bytes) += port.bytes;
    (sent ? total.sent_messages : total.received_messages) += port.messages;
  }
}

// Gives the whole place back once nothing reaches memory over the connection any more.
template <typename Comm, typename Connection>
absl::Status CloseConnection(Comm* comm, Connection* connection, StablePool<Comm>* pool) {
  const std::shared_ptr<State> running = Running();
  if (running != nullptr) {
    absl::MutexLock lock(&running->comms_mutex);
    running->comms.erase(comm);
  }
  if (running != nullptr && comm->is_protected) {
    RAILHOP_RETURN_IF_ERROR(running->failover->Remove(comm->end, kCloseBoundNs));
  }
  if (running != nullptr && running->failover != nullptr) {
    RAILHOP_RETURN_IF_ERROR(CloseInBound(
        running.get(), comm, connection,
        [](datapath::Connection* base) { return static_cast<Connection*>(base)->Close(); }));
  } else {
    RAILHOP_RETURN_IF_ERROR(connection->Close());
  }
  if (running != nullptr) running->cover().Closed(comm);
  if (running != nullptr) KeepTraffic(running.get(), comm, connection);
  comm->is_protected = false;
  comm->mark = ConnectionComm::Mark::kClosed;
  comm->connection = nullptr;
  connection->~Connection();
  pool->Give(comm);
  return absl::OkStatus();
}

// A connection has faults that the driver should take now. Any of NCCL's threads, in its hot path:
// it does not block. Without a driver nobody has asked for faults.
void WakeDriver(datapath::Connection* connection) {
  const std::shared_ptr<State> running = Running();
  const auto* const comm = static_cast<const ConnectionComm*>(connection->context());
  if (running != nullptr && running->failover != nullptr && comm != nullptr) {
    running->failover->driver().Notify(comm->end);
  }
}

// Out of line: the way of a connection with news or that has been given up, and of misuse.
__attribute__((noinline, cold)) Outcome Failed(datapath::Connection* connection, Outcome outcome) {
  if (outcome == Outcome::kFault) {
    WakeDriver(connection);
    return Outcome::kOk;
  }
  ReportFault(connection);
  return outcome;
}

__attribute__((noinline, cold)) Outcome SendFailed(datapath::Connection* connection,
                                                   Outcome outcome) {
  if (outcome == Outcome::kMisuse) {
    RAILHOP_LOG(kWarning, "%s: a send is larger than its receive, or not of registered memory",
                connection->label());
  }
  return Failed(connection, outcome);
}

bool IsLive(const Memory* memory) {
  return memory != nullptr && memory->mark == Memory::Mark::kLive;
}

// The keys of n registrations; false if one is not live. A null one is none, for empty buffers.
bool KeysOf(int n, Memory* const* memories, const datapath::MemoryKeys** keys) {
  for (int i = 0; i < n; ++i) {
    keys[i] = nullptr;
    if (memories[i] == nullptr) continue;
    if (!IsLive(memories[i])) return false;
    keys[i] = &memories[i]->keys;
  }
  return true;
}

}  // namespace

ConnectionComm* AsConnection(SendComm* comm) { return comm; }
ConnectionComm* AsConnection(RecvComm* comm) { return comm; }

SendComm* AsSend(ConnectionComm* comm) {
  return comm != nullptr && comm->mark == ConnectionComm::Mark::kSend ? static_cast<SendComm*>(comm)
                                                                      : nullptr;
}

RecvComm* AsRecv(ConnectionComm* comm) {
  return comm != nullptr && comm->mark == ConnectionComm::Mark::kRecv ? static_cast<RecvComm*>(comm)
                                                                      : nullptr;
}

absl::Status Transport::Init(Hooks hooks) {
  absl::MutexLock lock(&init_mutex);
  if (references > 0) {
    ++references;
    return absl::OkStatus();
  }
  if (hooks.devices == nullptr || hooks.devices->Count() < 1) {
    return absl::InvalidArgumentError("no net device");
  }
  auto made = std::make_shared<State>();
  RAILHOP_ASSIGN_OR_RETURN(
      made->interface, control::ChooseInterface(
                           control::ListInterfaces(hooks.sockets.socket_family), hooks.sockets));
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  made->identity.host = host;
  control::FillRandom(&made->identity.instance_id, sizeof(made->identity.instance_id));
  made->identity.sockets = std::move(hooks.sockets);
  made->identity.datapath = hooks.datapath;
  // What the wire and the verbs can carry; whoever parsed the setting has warned.
  datapath::DatapathConfig& datapath = made->identity.datapath;
  datapath.ib_qps_per_connection = std::clamp(datapath.ib_qps_per_connection, 1, 128);
  datapath.ib_timeout = std::clamp(datapath.ib_timeout, 0, 31);
  datapath.ib_retry_cnt = std::clamp(datapath.ib_retry_cnt, 0, 7);
  made->devices = std::move(hooks.devices);
  State* const raw = made.get();
  if (hooks.failover.has_value() && hooks.failover->enabled) {
    RAILHOP_ASSIGN_OR_RETURN(
        made->failover,
        FailoverService::Start(made->devices.get(), {.self = made->identity.instance_id,
                                                     .failover = *hooks.failover,
                                                     .datapath = datapath,
                                                     .sockets = made->identity.sockets,
                                                     .interface = made->interface,
                                                     .ports = hooks.ports}));
    made->identity.failover = true;
    made->identity.confirm = hooks.failover->confirm;
    made->identity.control_addresses = made->failover->addresses();
  } else {
    made->own_cover = std::make_unique<Cover>(
        made->devices.get(), nullptr,
        CoverOptions{.relaxed_ordering = datapath.ib_pci_relaxed_ordering != 0});
  }
  made->watch =
      std::make_unique<AsyncWatch>([raw](const AsyncEvent& event) { TakeEvent(raw, event); });
  references = 1;
  absl::MutexLock state_lock(&state_mutex);
  StateSlot() = std::move(made);
  return absl::OkStatus();
}

bool Transport::IsRunning() { return Running() != nullptr; }

TransportView Transport::View() {
  TransportView view;
  const std::shared_ptr<State> running = Running();
  if (running == nullptr) return view;
  view.running = true;
  view.host = running->identity.host;
  view.instance = running->identity.instance_id;
  view.failover = running->failover != nullptr;
  view.ports = running->devices->Physical();
  absl::MutexLock lock(&running->comms_mutex);
  view.closed = running->closed;
  for (ConnectionComm* comm : running->counted) {
    TransportView::Comm& shown = view.comms.emplace_back();
    shown.comm = comm;
    shown.is_send = AsSend(comm) != nullptr;
    shown.label = comm->label;
    for (const PhysicalDevice* part : comm->device->parts) shown.home.push_back(part->id);
    shown.traffic = ConnectionOf(comm)->CountTraffic();
  }
  return view;
}

FailoverService* Transport::Failover() {
  const std::shared_ptr<State> running = Running();
  return running == nullptr ? nullptr : running->failover.get();
}

void Transport::Release() {
  absl::MutexLock lock(&init_mutex);
  if (references == 0 || --references > 0) return;
  for (ListenComm* comm : AllPools().listens.All()) {
    if (comm->mark == ListenComm::Mark::kOpen) CloseListen(comm).IgnoreError();
  }
  for (SendComm* comm : AllPools().sends.All()) {
    if (AsSend(comm) != nullptr) CloseSend(comm).IgnoreError();
  }
  for (RecvComm* comm : AllPools().recvs.All()) {
    if (AsRecv(comm) != nullptr) CloseRecv(comm).IgnoreError();
  }
  std::shared_ptr<State> last;
  {
    absl::MutexLock state_lock(&state_mutex);
    last = std::move(StateSlot());
    StateSlot() = nullptr;
  }
  last->watch.reset();
  last->failover.reset();
  if (ThreadExecutor::AnyLeftBehind()) {
    // A call that hangs in a device may use it yet.
    [[maybe_unused]] const DeviceSource* const left = last->devices.release();
  }
  last->own_cover.reset();
  for (Memory* memory : AllPools().memories.All()) {
    if (!IsLive(memory)) continue;
    memory->mark = Memory::Mark::kOver;
    memory->entry = nullptr;
    AllPools().memories.Give(memory);
  }
  absl::MutexLock last_lock(&last->mutex);
  last->attempts.clear();
}

int Transport::DeviceCount() {
  const std::shared_ptr<State> running = Running();
  return running == nullptr ? 0 : running->devices->Count();
}

absl::StatusOr<DeviceProperties> Transport::Properties(int dev) {
  RAILHOP_ASSIGN_OR_RETURN(const NetDevice* device, FindDevice(Running(), dev));
  return device->properties;
}

absl::StatusOr<int> Transport::MakeVirtualDevice(absl::Span<const int> devices) {
  const std::shared_ptr<State> running = Running();
  if (running == nullptr) return NotRunning();
  return running->devices->Fuse(devices);
}

absl::StatusOr<ListenComm*> Transport::Listen(int dev, void* handle) {
  static_assert(sizeof(control::Handle) == kHandleBytes);
  const std::shared_ptr<State> running = Running();
  RAILHOP_ASSIGN_OR_RETURN(const NetDevice* device, FindDevice(running, dev));
  if (handle == nullptr) return absl::InvalidArgumentError("listen without a handle");
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Create(running->identity, *device, running->interface.address);
  if (!listener.ok()) return listener.status();
  const control::Handle made = (*listener)->MakeHandle();
  memcpy(handle, &made, sizeof(made));
  ListenComm* const comm = AllPools().listens.Take();
  comm->device = device;
  comm->listener = *std::move(listener);
  comm->mark = ListenComm::Mark::kOpen;
  return comm;
}

absl::StatusOr<SendComm*> Transport::Connect(const CommunicatorConfig& config, int dev,
                                             void* handle) {
  const std::shared_ptr<State> running = Running();
  RAILHOP_ASSIGN_OR_RETURN(const NetDevice* device, FindDevice(running, dev));
  if (handle == nullptr) return absl::InvalidArgumentError("connect without a handle");
  control::Handle given;
  memcpy(&given, handle, sizeof(given));
  auto* const kept = static_cast<unsigned char*>(handle) + offsetof(control::Handle, attempt);
  std::shared_ptr<ConnectAttempt> attempt;
  {
    absl::MutexLock lock(&running->mutex);
    auto found = running->attempts.find(given.attempt);
    if (given.attempt == 0 || found == running->attempts.end()) {
      control::FillRandom(&given.attempt, sizeof(given.attempt));
      found =
          running->attempts
              .emplace(given.attempt, std::make_shared<ConnectAttempt>(running->identity, *device,
                                                                       given, config.traffic_class))
              .first;
      memcpy(kept, &given.attempt, sizeof(given.attempt));
    }
    attempt = found->second;
  }
  const absl::StatusOr<bool> connected = attempt->Step(running->clock.NowNs());
  if (connected.ok() && !*connected) return nullptr;
  {
    absl::MutexLock lock(&running->mutex);
    running->attempts.erase(given.attempt);
  }
  memset(kept, 0, sizeof(given.attempt));
  if (!connected.ok()) return connected.status();
  SendComm* const comm = AllPools().sends.Take();
  comm->connection = attempt->Finish(comm->storage);
  comm->device = device;
  comm->label = absl::StrCat(device->properties.name, " to ", attempt->peer().host);
  comm->connection->set_label(comm->label.c_str());
  comm->mark = ConnectionComm::Mark::kSend;
  Opened(running.get(), comm);
  Protect(running.get(), comm, engine::End::kSender, attempt->connection_id(), attempt->secret(),
          attempt->local(), attempt->peer(), comm->connection);
  RAILHOP_LOG(kInfo, "%s", attempt->Description().c_str());
  return comm;
}

absl::StatusOr<RecvComm*> Transport::Accept(ListenComm* listener) {
  const std::shared_ptr<State> running = Running();
  if (running == nullptr) return NotRunning();
  if (listener == nullptr || listener->mark != ListenComm::Mark::kOpen) {
    return absl::InvalidArgumentError("accept on a closed listener");
  }
  absl::StatusOr<std::unique_ptr<Listener::Caller>> caller =
      listener->listener->Step(running->clock.NowNs());
  if (!caller.ok()) return caller.status();
  if (*caller == nullptr) return nullptr;
  RecvComm* const comm = AllPools().recvs.Take();
  absl::StatusOr<datapath::RecvConnection*> connection =
      Listener::Finish(caller->get(), comm->storage);
  if (!connection.ok()) {
    AllPools().recvs.Give(comm);
    return connection.status();
  }
  comm->connection = *connection;
  comm->device = listener->device;
  comm->label =
      absl::StrCat(listener->device->properties.name, " from ", Listener::Peer(**caller).host);
  comm->connection->set_label(comm->label.c_str());
  comm->mark = ConnectionComm::Mark::kRecv;
  Opened(running.get(), comm);
  Protect(running.get(), comm, engine::End::kReceiver, Listener::ConnectionId(**caller),
          listener->listener->secret(), (*caller)->local, (*caller)->peer, comm->connection);
  RAILHOP_LOG(kInfo, "%s", Listener::Description(**caller).c_str());
  return comm;
}

absl::StatusOr<Memory*> Transport::RegisterMemory(ConnectionComm* comm, void* data, size_t size,
                                                  int type) {
  if (type != kPointerHost && type != kPointerCuda) {
    return absl::InvalidArgumentError(absl::StrCat("memory of unknown type ", type));
  }
  return RegisterRange(comm, {.data = data, .size = size});
}

absl::StatusOr<Memory*> Transport::RegisterDmaBuf(ConnectionComm* comm, void* data, size_t size,
                                                  int type, uint64_t offset, int fd) {
  if (type != kPointerHost && type != kPointerCuda) {
    return absl::InvalidArgumentError(absl::StrCat("memory of unknown type ", type));
  }
  return RegisterRange(comm, {.data = data, .size = size, .fd = fd, .offset = offset});
}

absl::Status Transport::Deregister(ConnectionComm* comm, Memory* memory) {
  // NCCL names the connection; it may be closed by now, the registration is its own master.
  (void)comm;
  const std::shared_ptr<State> running = Running();
  if (!IsLive(memory)) return absl::InvalidArgumentError("memory is not registered");
  if (running == nullptr) return NotRunning();
  RAILHOP_RETURN_IF_ERROR(running->cover().Deregister(memory));
  memory->mark = Memory::Mark::kOver;
  AllPools().memories.Give(memory);
  return absl::OkStatus();
}

absl::Status Transport::CloseSend(SendComm* comm) {
  if (AsSend(comm) == nullptr) return absl::InvalidArgumentError("the connection is closed");
  return CloseConnection(comm, comm->connection, &AllPools().sends);
}

absl::Status Transport::CloseRecv(RecvComm* comm) {
  if (AsRecv(comm) == nullptr) return absl::InvalidArgumentError("the connection is closed");
  return CloseConnection(comm, comm->connection, &AllPools().recvs);
}

absl::Status Transport::CloseListen(ListenComm* listener) {
  if (listener == nullptr || listener->mark != ListenComm::Mark::kOpen) {
    return absl::InvalidArgumentError("the listener is closed");
  }
  ReportStrangers(listener->listener->counters());
  listener->mark = ListenComm::Mark::kClosed;
  listener->listener.reset();
  AllPools().listens.Give(listener);
  return absl::OkStatus();
}

Outcome Transport::ISend(SendComm* comm, void* data, size_t size, int tag, Memory* memory,
                         Request** request) {
  const datapath::MemoryKeys* const keys = memory == nullptr ? nullptr : &memory->keys;
  if (AsSend(comm) == nullptr || (memory != nullptr && !IsLive(memory))) [[unlikely]] {
    *request = nullptr;
    return Outcome::kMisuse;
  }
  datapath::SendConnection* const connection = comm->connection;
  const Outcome outcome = connection->Send(data, size, tag, keys, request);
  if (outcome == Outcome::kOk) [[likely]]
    return outcome;
  return SendFailed(connection, outcome);
}

Outcome Transport::IRecv(RecvComm* comm, int n, void** data, const size_t* sizes, const int* tags,
                         Memory** memories, Request** request) {
  *request = nullptr;
  if (AsRecv(comm) == nullptr || n < 1 || n > kGroupedReceivesMax) return Outcome::kMisuse;
  const datapath::MemoryKeys* keys[kGroupedReceivesMax];
  if (!KeysOf(n, memories, keys)) return Outcome::kMisuse;
  const Outcome outcome = comm->connection->Receive(n, data, sizes, tags, keys, request);
  return outcome == Outcome::kOk ? outcome : Failed(comm->connection, outcome);
}

Outcome Transport::IFlush(RecvComm* comm, int n, void** data, const int* sizes, Memory** memories,
                          Request** request) {
  *request = nullptr;
  if (AsRecv(comm) == nullptr || n < 1 || n > kGroupedReceivesMax) return Outcome::kMisuse;
  const datapath::MemoryKeys* keys[kGroupedReceivesMax];
  if (!KeysOf(n, memories, keys)) return Outcome::kMisuse;
  const Outcome outcome = comm->connection->Flush(n, data, sizes, keys, request);
  return outcome == Outcome::kOk ? outcome : Failed(comm->connection, outcome);
}

Outcome Transport::Test(Request* request, int* done, int* sizes) {
  if (request != nullptr && request->kind == Request::kSend) {
    auto* const owner = static_cast<datapath::SendConnection*>(request->owner);
    const Outcome outcome = owner->Test(static_cast<datapath::SendRequest*>(request), done, sizes);
    return outcome == Outcome::kOk ? outcome : Failed(owner, outcome);
  }
  if (request != nullptr && request->kind == Request::kReceive) {
    auto* const owner = static_cast<datapath::RecvConnection*>(request->owner);
    const Outcome outcome = owner->Test(static_cast<datapath::Transfer*>(request), done, sizes);
    return outcome == Outcome::kOk ? outcome : Failed(owner, outcome);
  }
  if (request != nullptr && request->kind == Request::kFlush) {
    auto* const owner = static_cast<datapath::RecvConnection*>(request->owner);
    const Outcome outcome = owner->Test(static_cast<datapath::FlushRequest*>(request), done);
    return outcome == Outcome::kOk ? outcome : Failed(owner, outcome);
  }
  *done = 0;
  return Outcome::kMisuse;
}

}  // namespace railhop::runtime
