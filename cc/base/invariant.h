// What must hold if the code is right.
//
// In tests and the simulator a broken invariant aborts. In a user's job it must not: aborting would
// kill the job with no message, and going on could corrupt data. So RAILHOP_INVARIANT is a
// condition that the caller has to act on, by giving up the one connection:
//
//   if (!RAILHOP_INVARIANT(slot < kSlots, "slot out of range")) return Poison();
//
// What happens at the break is the handler's choice: abort (the default) or report and return.
#ifndef RAILHOP_CC_BASE_INVARIANT_H_
#define RAILHOP_CC_BASE_INVARIANT_H_

namespace railhop {

// `condition` and `text` are string literals. Called on the thread that found the break.
using InvariantHandler = void (*)(const char* file, int line, const char* condition,
                                  const char* text);

// Writes one line to standard error and aborts. The default.
void AbortOnBrokenInvariant(const char* file, int line, const char* condition, const char* text);

// For jobs: logs one warning (at most 5 in the life of the process) and returns.
void LogBrokenInvariant(const char* file, int line, const char* condition, const char* text);

// Sets the handler of the process; returns the one before it. nullptr means the default.
InvariantHandler SetInvariantHandler(InvariantHandler handler);

// Calls the handler; returns false. Use RAILHOP_INVARIANT.
bool ReportBrokenInvariant(const char* file, int line, const char* condition, const char* text);

namespace invariant_internal {
[[nodiscard]] inline bool MustBeUsed(bool holds) { return holds; }
}  // namespace invariant_internal

}  // namespace railhop

// True if the condition holds. The result must be used.
#define RAILHOP_INVARIANT(condition, text)                    \
  (::railhop::invariant_internal::MustBeUsed(                 \
      __builtin_expect(static_cast<bool>(condition), true) || \
      ::railhop::ReportBrokenInvariant(__FILE__, __LINE__, #condition, (text))))

// Aborts if the condition does not hold, whatever the handler: for tests, tools and start-up code,
// never for what runs inside a user's job.
#define RAILHOP_CHECK(condition, text)                                           \
  do {                                                                           \
    if (!__builtin_expect(static_cast<bool>(condition), true)) {                 \
      ::railhop::AbortOnBrokenInvariant(__FILE__, __LINE__, #condition, (text)); \
    }                                                                            \
  } while (false)

#endif  // RAILHOP_CC_BASE_INVARIANT_H_
