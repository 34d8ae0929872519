#include "cc/netperf/report.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace railhop::netperf {
namespace {

std::string NumberText(double value) {
  char text[40];
  snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

double GapMs(const Counts& counts) { return static_cast<double>(counts.longest_gap_ns) / 1e6; }

std::string DeviceText(const Options& options) {
  std::string text;
  for (const int device : options.devices) {
    text += (text.empty() ? "" : options.fuse ? "+" : ",") + std::to_string(device);
  }
  return text;
}

std::string Plural(uint64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

JsonLine& JsonLine::Add(const char* key, const std::string& value) {
  text_ += (text_.empty() ? "\"" : ",\"") + std::string(key) + "\":" + value;
  return *this;
}

JsonLine& JsonLine::Text(const char* key, const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      quoted += code;
    } else {
      quoted += c;
    }
  }
  return Add(key, quoted + "\"");
}

JsonLine& JsonLine::Number(const char* key, double value) { return Add(key, NumberText(value)); }
JsonLine& JsonLine::Count(const char* key, uint64_t value) {
  return Add(key, std::to_string(value));
}
JsonLine& JsonLine::Bool(const char* key, bool value) { return Add(key, value ? "true" : "false"); }

JsonLine& JsonLine::List(const char* key, const std::vector<int>& values) {
  std::string list;
  for (const int value : values) list += (list.empty() ? "" : ",") + std::to_string(value);
  return Add(key, "[" + list + "]");
}

void Report::PrintHeading(const Figure& figure) {
  // With two plugins one heading for both.
  if (!figure.side.empty() && !heading_.empty()) return;
  const std::string path =
      figure.side.empty() ? figure.path
                          : "A " + options_.sides[0].plugin + ", B " + options_.sides[1].plugin;
  const std::string heading = "# " + path + ": " + figure.facts.name + ", API v" +
                              std::to_string(figure.facts.api) + ", devices " +
                              DeviceText(options_) + (options_.fuse ? " fused" : "") + ", " +
                              Plural(static_cast<uint64_t>(options_.connections), "connection") +
                              ", " + std::to_string(options_.in_flight) + " in flight, groups of " +
                              std::to_string(options_.group);
  if (heading == heading_) return;
  heading_ = heading;
  printf("%s\n%-22s %8s %12s %-10s %10s %8s %8s %10s\n", heading.c_str(), "metric", "size", "value",
         "unit", "messages", "wrong B", "errors", "gap ms");
}

void Report::Print(const Figure& figure) {
  EndProgress();
  const Counts& counts = figure.counts;
  if (options_.json) {
    JsonLine line;
    line.Text("metric", figure.metric).Count("size", figure.size).Number("value", figure.value);
    line.Text("unit", figure.unit).Count("messages", counts.messages);
    line.Count("connections", static_cast<uint64_t>(options_.connections));
    line.Count("in_flight", static_cast<uint64_t>(figure.in_flight));
    line.Count("group", static_cast<uint64_t>(figure.group));
    line.List("devices", options_.devices).Bool("fused", options_.fuse);
    line.Text("plugin", figure.facts.name).Text("path", figure.path);
    line.Count("api", static_cast<uint64_t>(figure.facts.api));
    line.Count("wrong_bytes", counts.wrong_bytes).Count("wrong_sizes", counts.wrong_sizes);
    line.Count("errors", counts.errors).Number("longest_gap_ms", GapMs(counts));
    if (!figure.side.empty()) line.Text("side", figure.side);
    for (const auto& [key, value] : figure.more) line.Number(key, value);
    printf("%s\n", line.text().c_str());
  } else {
    PrintHeading(figure);
    printf("%-22s %8s %12.6g %-10s %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %10.3f",
           (figure.side + (figure.side.empty() ? "" : " ") + figure.metric).c_str(),
           SizeText(figure.size).c_str(), figure.value, figure.unit.c_str(), counts.messages,
           counts.wrong_bytes, counts.errors, GapMs(counts));
    for (const auto& [key, value] : figure.more) printf("  %s %.4g", key, value);
    printf("\n");
  }
  fflush(stdout);
}

void Report::PrintSummary(const Counts& counts, const std::string& problem, const Ending& ending) {
  EndProgress();
  const bool survived = counts.Good() && problem.empty();
  if (options_.json) {
    JsonLine line;
    line.Bool("survived", survived).Count("messages", counts.messages).Count("bytes", counts.bytes);
    line.Count("wrong_bytes", counts.wrong_bytes).Count("wrong_sizes", counts.wrong_sizes);
    line.Count("errors", counts.errors).Number("longest_gap_ms", GapMs(counts));
    line.Count("longest_gap_after", counts.longest_gap_after).Text("problem", problem);
    line.Number("seconds", ending.seconds);
    line.Number("longest_turn_ms", static_cast<double>(counts.longest_turn_ns) / 1e6);
    line.Count("threads_left", static_cast<uint64_t>(ending.left.threads));
    line.Count("descriptors_left", static_cast<uint64_t>(ending.left.descriptors));
    line.Text("leftover_names", ending.left.names);
    if (options_.outlive) {
      line.Text("after_death", ending.after_death);
      line.Number("after_death_ms", static_cast<double>(ending.after_death_ns) / 1e6);
    }
    printf("%s\n", line.text().c_str());
  } else {
    printf("%s: %" PRIu64 " messages, %" PRIu64 " bytes, %" PRIu64 " wrong bytes, %" PRIu64
           " wrong sizes, %" PRIu64 " errors, longest gap %.3f ms after message %" PRIu64 "\n",
           survived ? "survived" : "FAILED", counts.messages, counts.bytes, counts.wrong_bytes,
           counts.wrong_sizes, counts.errors, GapMs(counts), counts.longest_gap_after);
    if (!problem.empty()) printf("problem: %s\n", problem.c_str());
    if (!problem.empty() && getenv("NCCL_DEBUG") == nullptr) {
      fprintf(stderr, "(NCCL_DEBUG=WARN shows what the plugin says about it)\n");
    }
  }
  fflush(stdout);
}

void Report::Progress(const std::string& what, uint64_t received, uint64_t all) {
  if (isatty(STDERR_FILENO) == 0) return;
  fprintf(stderr, "\r\033[K%s: %" PRIu64 " of %" PRIu64 " messages", what.c_str(), received, all);
  fflush(stderr);
  progress_shown_ = true;
}

void Report::EndProgress() {
  if (!progress_shown_) return;
  fprintf(stderr, "\r\033[K");
  fflush(stderr);
  progress_shown_ = false;
}

}  // namespace railhop::netperf
