// Where log lines go: one sink for the process, standard error until another is set.
//
// The plugin sets NCCL's logger as the sink; tools and the fabric keep standard error. Only printf
// formatting, no dependency. Not for the hot path. Who logs what is a rule of docs/style.md: the
// first place that knows the cause, once.
#ifndef RAILHOP_CC_BASE_LOG_H_
#define RAILHOP_CC_BASE_LOG_H_

namespace railhop {

enum class LogSeverity {
  kTrace = 0,    // for a developer
  kInfo = 1,     // what happened
  kWarning = 2,  // a person may need to act
};

// "TRACE", "INFO", "WARN".
const char* LogSeverityName(LogSeverity severity);

// Receives one line without a newline. May be called from any thread, several at once; `file` lives
// for ever, `line_text` only during the call.
struct LogSink {
  void (*write)(void* context, LogSeverity severity, const char* file, int line,
                const char* line_text) = nullptr;
  void* context = nullptr;
};

// Sets the sink and the lowest severity that reaches it (kInfo at the start); write == nullptr
// means standard error. Set it before other threads log, or keep the old context alive.
void SetLogSink(LogSink sink);
void SetLogThreshold(LogSeverity lowest);

// Whether a line of this severity would be written. Cheap.
bool LogEnabled(LogSeverity severity);

// Formats (lines over 1,023 bytes are cut) and hands over. Use RAILHOP_LOG. Keeps errno.
void LogLine(LogSeverity severity, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

}  // namespace railhop

// RAILHOP_LOG(kWarning, "port %s is down", name): evaluates its arguments only if they are wanted.
#define RAILHOP_LOG(severity, ...)                                                           \
  do {                                                                                       \
    if (::railhop::LogEnabled(::railhop::LogSeverity::severity)) {                           \
      ::railhop::LogLine(::railhop::LogSeverity::severity, __FILE__, __LINE__, __VA_ARGS__); \
    }                                                                                        \
  } while (false)

#endif  // RAILHOP_CC_BASE_LOG_H_
