#include "cc/base/log.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace railhop {
namespace {

constexpr int kLineMax = 1024;

void WriteToStderr(void* /*context*/, LogSeverity severity, const char* /*file*/, int /*line*/,
                   const char* line_text) {
  // One call, so that lines of several threads and processes do not mix.
  std::fprintf(stderr, "railhop %s %s\n", LogSeverityName(severity), line_text);
}

std::mutex sink_mutex;
LogSink sink{&WriteToStderr, nullptr};                   // guarded by sink_mutex
std::atomic<LogSeverity> threshold{LogSeverity::kInfo};  // relaxed: publishes nothing else

LogSink CurrentSink() {
  const std::lock_guard<std::mutex> lock(sink_mutex);
  return sink;
}

}  // namespace

const char* LogSeverityName(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kTrace:
      return "TRACE";
    case LogSeverity::kInfo:
      return "INFO";
    case LogSeverity::kWarning:
      return "WARN";
  }
  return "?";
}

void SetLogSink(LogSink new_sink) {
  const std::lock_guard<std::mutex> lock(sink_mutex);
  sink = new_sink.write != nullptr ? new_sink : LogSink{&WriteToStderr, nullptr};
}

void SetLogThreshold(LogSeverity lowest) { threshold.store(lowest, std::memory_order_relaxed); }

bool LogEnabled(LogSeverity severity) {
  return severity >= threshold.load(std::memory_order_relaxed);
}

void LogLine(LogSeverity severity, const char* file, int line, const char* format, ...) {
  const int saved_errno = errno;
  char text[kLineMax];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* line_text = length >= 0 ? text : format;
  const LogSink target = CurrentSink();
  target.write(target.context, severity, file, line, line_text);
  errno = saved_errno;
}

}  // namespace railhop
