// What the thread sanitizer cannot know of Abseil: the semaphore of a thread lives in memory that
// Abseil maps and hands over by fences which gcc's sanitizer does not model. Any test in which
// threads wait for an absl::Mutex meets it.
extern "C" const char* __tsan_default_suppressions();
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:absl::*::synchronization_internal::Waiter::Post\n"
         "race:absl::*::synchronization_internal::Waiter::Wait\n";
}
