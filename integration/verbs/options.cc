#include "integration/verbs/options.h"

#include <stdlib.h>

namespace railhop::conformance {
namespace {

bool ParseNumber(const std::string& text, double low, double high, double* value) {
  char* end = nullptr;
  *value = strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 && *value >= low && *value <= high;
}

std::vector<std::string> SplitCommas(const std::string& text) {
  std::vector<std::string> words;
  size_t start = 0;
  for (;;) {
    const size_t comma = text.find(',', start);
    words.push_back(text.substr(start, comma - start));
    if (comma == std::string::npos) return words;
    start = comma + 1;
  }
}

// Sets one option. Empty when it is good, else what is wrong.
std::string SetOption(const std::string& name, const std::string& value, Options* options) {
  const struct {
    const char* name;
    std::string* target;
  } texts[] = {{"--library", &options->library}, {"--fabric", &options->fabric},
               {"--expect", &options->expect},   {"--fault-command", &options->fault_command},
               {"--filter", &options->filter},   {"--report", &options->report},
               {"--junit", &options->junit}};
  for (const auto& text : texts) {
    if (name != text.name) continue;
    *text.target = value;
    return "";
  }
  double number = 0;
  if (name == "--devices") {
    options->devices = SplitCommas(value);
    if (options->devices.size() <= 2 && !options->devices[0].empty()) return "";
    return "--devices=" + value + ": give one or two names, as in --devices=soft0,soft1";
  }
  if (name == "--port") {
    if (!ParseNumber(value, 1, 255, &number)) return "--port=" + value + ": 1 to 255";
    options->port = static_cast<uint8_t>(number);
    return "";
  }
  if (name == "--gid-index") {
    if (!ParseNumber(value, 0, 255, &number)) return "--gid-index=" + value + ": 0 to 255";
    options->gid_index = static_cast<int>(number);
    return "";
  }
  if (name == "--deadline") {
    if (!ParseNumber(value, 1, 3600, &number)) return "--deadline=" + value + ": 1 to 3600 seconds";
    options->deadline_s = static_cast<int>(number);
    return "";
  }
  if (name == "--time-factor") {
    if (!ParseNumber(value, 0.1, 100, &options->time_factor)) {
      return "--time-factor=" + value + ": 0.1 to 100";
    }
    return "";
  }
  return "unknown option " + name +
         "; there are: --library --devices --port --gid-index --fabric --expect --fault-command "
         "--filter --report --junit --deadline --time-factor --list";
}

}  // namespace

bool ParseOptions(const std::vector<std::string>& arguments, Options* options, std::string* error) {
  for (const std::string& argument : arguments) {
    if (argument == "--list") {
      options->list = true;
      continue;
    }
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      *error = "give options as --name=value, not \"" + argument + "\"";
      return false;
    }
    *error = SetOption(argument.substr(0, equals), argument.substr(equals + 1), options);
    if (!error->empty()) return false;
  }
  return true;
}

}  // namespace railhop::conformance
