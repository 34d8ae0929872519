// The state of one of this process's ports, from events, from reading it, and from commands. One
// for each port, shared by all connections. The rows are in port_health_table.h;
// docs/reference/port-machine.md is made from them. Pure. Not thread-safe.
#ifndef RAILHOP_CC_ENGINE_PORT_HEALTH_H_
#define RAILHOP_CC_ENGINE_PORT_HEALTH_H_

#include <cstdint>

#include "cc/engine/messages.h"

namespace railhop::engine {

struct PortEvent {
  enum class Kind : uint8_t {
    kReadActive,     // read: active
    kReadNotActive,  // read: not active
    kFatal,          // the device has failed, or reading it has (EIO, gone)
    kReturned,       // the device is back
    kAddress,        // its GID, LID or P_Key table has changed, or is another than the lanes use
    kDrain,          // commands
    kHold,
    kRelease,
  };
  Kind kind = Kind::kReadActive;
};

struct PortStep {
  bool leave = false;      // its lanes are suspect at once
  bool drain = false;      // its lanes are to be retired in order
  bool try_paths = false;  // probe its paths at once
  bool announce = false;   // tell the peers
  bool resolve_address = false;
};

class PortHealth {
 public:
  PortStep Step(const PortEvent& event);
  // What peers are told: kHeld and kDrained while the port is physically active, else what is read.
  PortState state() const;
  // What a person has asked for: kHeld, kDrained, or kActive if nothing.
  PortState command() const { return command_; }
  // May new lanes be put on it, as far as this port knows?
  bool MayEnter() const { return state() == PortState::kActive; }
  // The id of the row that the last event took.
  const char* row() const { return row_; }

 private:
  PortState physical_ = PortState::kActive;  // kActive, kDown or kFatal
  PortState command_ = PortState::kActive;   // kActive (none), kHeld or kDrained
  const char* row_ = nullptr;
};

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_PORT_HEALTH_H_
