#include "cc/engine/port_health.h"

#include <algorithm>

#include "cc/engine/port_health_table.h"

namespace railhop::engine {

namespace {

using port::Do;

int StateOf(PortState read, PortState command) {
  const int column = read == PortState::kFatal ? 2 : read == PortState::kDown ? 1 : 0;
  const int line = command == PortState::kDrained ? 2 : command == PortState::kHeld ? 1 : 0;
  return 3 * line + column;
}
static_assert(port::kDrainedFatal == 8 && port::kHeldDown == 4);

}  // namespace

PortStep PortHealth::Step(const PortEvent& event) {
  PortStep step;
  const int state = StateOf(physical_, command_);
  const auto row =
      std::find_if(port::kRows.begin(), port::kRows.end(), [&](const port::Row& candidate) {
        return Fits(candidate, state, static_cast<int>(event.kind));
      });
  if (row == port::kRows.end()) return step;  // never: the table is complete
  row_ = row->id;
  for (const Do action : row->actions) {
    switch (action) {
      case Do::kNone:
        break;
      case Do::kSetActive:
        physical_ = PortState::kActive;
        break;
      case Do::kSetDown:
        physical_ = PortState::kDown;
        break;
      case Do::kSetFatal:
        physical_ = PortState::kFatal;
        break;
      case Do::kSetFree:
        command_ = PortState::kActive;
        break;
      case Do::kSetHeld:
        command_ = PortState::kHeld;
        break;
      case Do::kSetDrained:
        command_ = PortState::kDrained;
        break;
      case Do::kLeave:
        step.leave = true;
        break;
      case Do::kDrain:
        step.drain = true;
        break;
      case Do::kTryPaths:
        step.try_paths = true;
        break;
      case Do::kAnnounce:
        step.announce = true;
        break;
      case Do::kResolve:
        step.resolve_address = true;
        break;
    }
  }
  return step;
}

PortState PortHealth::state() const {
  return physical_ == PortState::kActive ? command_ : physical_;
}

}  // namespace railhop::engine
