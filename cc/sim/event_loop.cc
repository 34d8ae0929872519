#include "cc/sim/event_loop.h"

#include <algorithm>

namespace railhop::sim {

void EventLoop::At(uint64_t when_ns, Actor* actor, uint64_t arg) {
  heap_.push_back({std::max(when_ns, now_ns_), ties_.Next(), actor, arg});
  std::push_heap(heap_.begin(), heap_.end(), Later());
}

bool EventLoop::Step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), Later());
  const Entry entry = heap_.back();
  heap_.pop_back();
  now_ns_ = std::max(now_ns_, entry.when_ns);  // a nested run may have gone further
  ++events_;
  entry.actor->OnEvent(entry.arg);
  return true;
}

void EventLoop::RunUntil(uint64_t until_ns) {
  while (next_ns() <= until_ns) Step();
  now_ns_ = std::max(now_ns_, until_ns);
}

}  // namespace railhop::sim
