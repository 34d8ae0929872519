#include "cc/plugin/fake_transport.h"

#include <algorithm>
#include <stdexcept>

#include "cc/runtime/start.h"

namespace railhop::datapath {
struct Request {};
}  // namespace railhop::datapath

namespace railhop::runtime {

class ConnectionComm {
 public:
  explicit ConnectionComm(bool sends) : sends_(sends) {}
  bool sends() const { return sends_; }

 private:
  const bool sends_;
};
class SendComm : public ConnectionComm {
 public:
  SendComm() : ConnectionComm(true) {}
};
class RecvComm : public ConnectionComm {
 public:
  RecvComm() : ConnectionComm(false) {}
};
class ListenComm {};
class Memory {};

namespace {

SendComm the_send;
RecvComm the_recv;
ListenComm the_listen;
Memory the_memory;
Request the_request;

plugin::FakeTransport& Called(const char* name) {
  plugin::FakeTransport& fake = plugin::TheFake();
  fake.last = name;
  if (fake.throws) throw std::runtime_error("thrown by the fake");
  return fake;
}

template <typename T>
absl::StatusOr<T*> Answer(plugin::FakeTransport& fake, T* made) {
  if (!fake.status.ok()) return fake.status;
  return fake.not_yet ? nullptr : made;
}

Outcome Ask(plugin::FakeTransport& fake, Request** request) {
  *request = fake.not_yet || fake.outcome != Outcome::kOk ? nullptr : &the_request;
  return fake.outcome;
}

}  // namespace

ConnectionComm* AsConnection(SendComm* comm) { return comm; }
ConnectionComm* AsConnection(RecvComm* comm) { return comm; }
SendComm* AsSend(ConnectionComm* comm) {
  return comm->sends() ? static_cast<SendComm*>(comm) : nullptr;
}
RecvComm* AsRecv(ConnectionComm* comm) {
  return comm->sends() ? nullptr : static_cast<RecvComm*>(comm);
}

absl::Status StartTransport() {
  plugin::FakeTransport& fake = Called("start");
  if (fake.start_status.ok()) ++fake.starts;
  return fake.start_status;
}
void StopTransport(Devices devices) {
  plugin::FakeTransport& fake = Called("stop");
  ++fake.stops;
  fake.kept_devices = devices == Devices::kKeep;
}
bool TransportRuns() { return plugin::TheFake().running(); }

bool IsForkedCopy() { return false; }
bool Transport::IsRunning() { return plugin::TheFake().running(); }

int Transport::DeviceCount() { return Called("devices").device_count; }
absl::StatusOr<DeviceProperties> Transport::Properties(int dev) {
  plugin::FakeTransport& fake = Called("properties");
  fake.dev = dev;
  if (!fake.status.ok()) return fake.status;
  return fake.properties;
}
absl::StatusOr<int> Transport::MakeVirtualDevice(absl::Span<const int> devices) {
  plugin::FakeTransport& fake = Called("fuse");
  fake.devices.assign(devices.begin(), devices.end());
  if (!fake.status.ok()) return fake.status;
  return fake.virtual_device;
}
absl::StatusOr<ListenComm*> Transport::Listen(int dev, void* handle) {
  plugin::FakeTransport& fake = Called("listen");
  fake.dev = dev;
  std::fill_n(static_cast<char*>(handle), kHandleBytes, 'h');
  return Answer(fake, &the_listen);
}
absl::StatusOr<SendComm*> Transport::Connect(const CommunicatorConfig& config, int dev,
                                             void* /*handle*/) {
  plugin::FakeTransport& fake = Called("connect");
  fake.traffic_class = config.traffic_class;
  fake.dev = dev;
  return Answer(fake, &the_send);
}
absl::StatusOr<RecvComm*> Transport::Accept(ListenComm* /*listener*/) {
  return Answer(Called("accept"), &the_recv);
}
absl::StatusOr<Memory*> Transport::RegisterMemory(ConnectionComm* /*comm*/, void* data, size_t size,
                                                  int type) {
  plugin::FakeTransport& fake = Called("reg_mr");
  fake.data = data;
  fake.sizes = {size};
  fake.type = type;
  return Answer(fake, &the_memory);
}
absl::StatusOr<Memory*> Transport::RegisterDmaBuf(ConnectionComm* /*comm*/, void* data, size_t size,
                                                  int type, uint64_t offset, int fd) {
  plugin::FakeTransport& fake = Called("reg_mr_dma_buf");
  fake.data = data;
  fake.sizes = {size};
  fake.type = type;
  fake.offset = offset;
  fake.fd = fd;
  return Answer(fake, &the_memory);
}
absl::Status Transport::Deregister(ConnectionComm* /*comm*/, Memory* /*memory*/) {
  return Called("dereg_mr").status;
}
absl::Status Transport::CloseSend(SendComm* /*comm*/) { return Called("close_send").status; }
absl::Status Transport::CloseRecv(RecvComm* /*comm*/) { return Called("close_recv").status; }
absl::Status Transport::CloseListen(ListenComm* /*listener*/) {
  return Called("close_listen").status;
}
Outcome Transport::ISend(SendComm* /*comm*/, void* data, size_t size, int tag, Memory* /*memory*/,
                         Request** request) {
  plugin::FakeTransport& fake = Called("isend");
  fake.data = data;
  fake.sizes = {size};
  fake.tags = {tag};
  return Ask(fake, request);
}
Outcome Transport::IRecv(RecvComm* /*comm*/, int n, void** data, const size_t* sizes,
                         const int* tags, Memory** /*memories*/, Request** request) {
  plugin::FakeTransport& fake = Called("irecv");
  fake.data = data[0];
  fake.sizes.assign(sizes, sizes + n);
  fake.tags.assign(tags, tags + n);
  return Ask(fake, request);
}
Outcome Transport::IFlush(RecvComm* /*comm*/, int n, void** data, const int* sizes,
                          Memory** /*memories*/, Request** request) {
  plugin::FakeTransport& fake = Called("iflush");
  fake.data = data[0];
  fake.sizes.assign(sizes, sizes + n);
  return Ask(fake, request);
}
Outcome Transport::Test(Request* /*request*/, int* done, int* sizes) {
  plugin::FakeTransport& fake = Called("test");
  *done = fake.outcome == Outcome::kOk ? fake.done : 0;
  if (sizes != nullptr) std::copy(fake.test_sizes.begin(), fake.test_sizes.end(), sizes);
  return fake.outcome;
}

}  // namespace railhop::runtime

namespace railhop::plugin {

FakeTransport& TheFake() {
  static FakeTransport fake;
  return fake;
}

void ResetFake() {
  FakeTransport fresh;
  fresh.starts = TheFake().starts;
  fresh.stops = TheFake().stops;
  TheFake() = fresh;
}

}  // namespace railhop::plugin
