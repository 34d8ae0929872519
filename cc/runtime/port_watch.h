// The thread that waits for ports that are down to come up.
//
// It polls, since an event may be lost; it also wakes at events of devices of which no port is in
// use. Events of the others belong to whoever carries data over them, who calls
// DeviceTable::JoinPorts.
#ifndef RAILHOP_CC_RUNTIME_PORT_WATCH_H_
#define RAILHOP_CC_RUNTIME_PORT_WATCH_H_

#include <cstdint>
#include <thread>

namespace railhop::runtime {

class DeviceTable;

class PortWatch {
 public:
  // table outlives this. The thread ends by itself once no port waits.
  PortWatch(DeviceTable* table, int64_t interval_ns);
  // Ends the thread; waits for it.
  ~PortWatch();
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

 private:
  void Run();
  // Sleeps for the interval or until an event; false when the thread is to end.
  bool Wait();

  DeviceTable* const table_;
  const int interval_ms_;
  const int stop_fd_;  // eventfd
  std::thread thread_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_PORT_WATCH_H_
