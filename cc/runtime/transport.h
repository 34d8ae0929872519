// Everything that NCCL asks of a network, without NCCL's types: the plugin's adapters convert
// arguments and call this.
//
// Connections are made by calling Connect and Accept until each gives one: neither waits. After
// that the calls of the hot path (ISend, IRecv, IFlush, Test) go straight to the connection.
//
// The hard case is misuse: a closed connection, a request that is done, memory that was never
// registered. Connections, requests and registrations carry a mark that is erased when they end,
// and their memory is used again only for their own kind, so such a call gets kMisuse and no crash
// (unless its place has a new owner by then).
//
// Threads: Listen, Connect, Accept, Register*, Deregister and Close* may be called by any thread,
// several at once for different objects. ISend, IRecv, IFlush and Test of one connection may be
// called by several threads; they take its lock. Closing a connection while another thread is in a
// call on it is misuse.
#ifndef RAILHOP_CC_RUNTIME_TRANSPORT_H_
#define RAILHOP_CC_RUNTIME_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/control/socket_config.h"
#include "cc/datapath/datapath_config.h"
#include "cc/datapath/outcome.h"
#include "cc/runtime/failover_config.h"
#include "cc/runtime/net_device.h"
#include "cc/runtime/port_facts.h"

namespace railhop::datapath {
struct Request;
}  // namespace railhop::datapath

namespace railhop::runtime {

using datapath::Outcome;
// What ISend, IRecv and IFlush return.
using datapath::Request;

// What init of a communicator says (API v10 and later).
struct CommunicatorConfig {
  int traffic_class = -1;  // -1 = not given
};

// What the process hands over at the first Init.
struct Hooks {
  std::unique_ptr<DeviceSource> devices;  // must have at least one device
  datapath::DatapathConfig datapath;
  control::SocketConfig sockets;
  // None: off, as with RAILHOP_FAILOVER=0.
  std::optional<FailoverConfig> failover;
  PortRules ports;
};

class ListenComm;
// A connection of either direction: what registrations are made for. SendComm and RecvComm are
// ConnectionComm; the void* that NCCL holds must be made from a ConnectionComm*.
class ConnectionComm;
class SendComm;
class RecvComm;
class Memory;  // a registration: NCCL's mhandle

// SendComm* and ConnectionComm* are the same address; the definitions are in comm.h.
ConnectionComm* AsConnection(SendComm* comm);
ConnectionComm* AsConnection(RecvComm* comm);
// nullptr if it is closed or of the other direction.
SendComm* AsSend(ConnectionComm* comm);
RecvComm* AsRecv(ConnectionComm* comm);

class FailoverService;

struct TransportView;  // transport_view.h

// Static functions only: there is one transport for each process.
class Transport {
 public:
  // Starts the transport, or adds a reference if it runs (`hooks` are dropped then).
  // Errors: Unavailable (no interface for sockets: the message names NCCL_SOCKET_IFNAME),
  // InvalidArgument (no devices).
  static absl::Status Init(Hooks hooks);
  static bool IsRunning();
  // Drops a reference. The last one ends threads and unfinished connects, and closes what is left
  // open, so that the library may be unloaded.
  static void Release();

  // Nothing but `running` unless it runs. Takes each connection's lock for an instant.
  static TransportView View();
  // Null if it does not run or failover is off. The caller sees to it that nobody calls Release
  // while it is used.
  static FailoverService* Failover();

  // Between Init and Release:

  static int DeviceCount();
  // Errors: InvalidArgument.
  static absl::StatusOr<DeviceProperties> Properties(int dev);
  // Errors: as DeviceSource::Fuse.
  static absl::StatusOr<int> MakeVirtualDevice(absl::Span<const int> devices);

  // Fills handle[kHandleBytes], which goes to the peer's Connect.
  static absl::StatusOr<ListenComm*> Listen(int dev, void* handle);

  // One step towards a connection to the listener behind `handle`; nullptr = call again with the
  // same memory, in which the state of the attempt is kept.
  // Errors: Unavailable (the peer was not reached or went away, another plugin or version is at the
  // other end), InvalidArgument (misuse), Internal (local verbs or system). The attempt is over
  // then.
  static absl::StatusOr<SendComm*> Connect(const CommunicatorConfig& config, int dev, void* handle);

  // The same for the listening end. One listener may accept many connections.
  static absl::StatusOr<RecvComm*> Accept(ListenComm* listener);

  // `type` is one kPointer* bit. size > 0.
  // Errors: InvalidArgument (misuse), Internal (verbs refused: message names device and errno).
  static absl::StatusOr<Memory*> RegisterMemory(ConnectionComm* comm, void* data, size_t size,
                                                int type);
  // `fd` stays the caller's. `offset` into the DMA-BUF; `data` is the address NCCL will use.
  static absl::StatusOr<Memory*> RegisterDmaBuf(ConnectionComm* comm, void* data, size_t size,
                                                int type, uint64_t offset, int fd);
  // Errors: as above; Internal leaves the memory pinned.
  static absl::Status Deregister(ConnectionComm* comm, Memory* memory);

  // Work outstanding is dropped: its requests must not be tested any more. Never waits for the
  // peer.
  static absl::Status CloseSend(SendComm* comm);
  static absl::Status CloseRecv(RecvComm* comm);
  static absl::Status CloseListen(ListenComm* listener);

  // The hot path. *request is always written; nullptr with kOk = not now, call again.

  static Outcome ISend(SendComm* comm, void* data, size_t size, int tag, Memory* memory,
                       Request** request);
  // n in 1..kGroupedReceivesMax.
  static Outcome IRecv(RecvComm* comm, int n, void** data, const size_t* sizes, const int* tags,
                       Memory** memories, Request** request);
  // *request == nullptr with kOk: nothing to flush.
  static Outcome IFlush(RecvComm* comm, int n, void** data, const int* sizes, Memory** memories,
                        Request** request);
  // *done = 0 or 1. When done, the request is over and sizes[i] (if `sizes` is not null; one for
  // each receive of the group, one for a send) holds the bytes that were transferred, at most
  // INT_MAX.
  static Outcome Test(Request* request, int* done, int* sizes);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_TRANSPORT_H_
