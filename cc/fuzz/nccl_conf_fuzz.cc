// nccl.conf: the text of ~/.nccl.conf, then, behind a line that reads "----", of /etc/nccl.conf.
//
// The environment says NCCL_IB_TIMEOUT=17, so files may say it too and must not win.
#include <string>
#include <vector>

#include "cc/base/strings.h"
#include "cc/config/options.h"
#include "cc/config/settings.h"
#include "cc/fuzz/input.h"

namespace railhop::fuzz {
namespace {

using config::Environment;
using config::Setting;
using config::Settings;

constexpr std::string_view kBetween = "\n----\n";
constexpr const char* kHomeFile = "~/.nccl.conf";
constexpr const char* kSystemFile = "/etc/nccl.conf";

struct File {
  std::string_view shown;
  std::string text;
  std::vector<std::string_view> lines;  // of text
};

// The rest of `message` if it begins with "FILE:LINE" and there is such a line; nothing otherwise.
std::optional<std::string_view> BehindPlace(std::string_view message, const File& file,
                                            std::string_view* line) {
  if (!message.starts_with(std::string(file.shown) + ":")) return std::nullopt;
  message.remove_prefix(file.shown.size() + 1);
  size_t number = 0;
  while (!message.empty() && message[0] >= '0' && message[0] <= '9') {
    number = number * 10 + static_cast<size_t>(message[0] - '0');
    message.remove_prefix(1);
  }
  if (number < 1 || number > file.lines.size()) return std::nullopt;
  *line = file.lines[number - 1];
  return message;
}

void CheckSetting(const std::string& name, const Setting& setting, const std::vector<File>& files) {
  Require(!name.empty() && name.size() <= 1023, "a name has 1 to 1023 bytes", name);
  Require(name.find('=') == std::string::npos, "a name ends at the '='", name);
  Require(setting.value.size() <= 1023, "a value has at most 1023 bytes", name);
  Require((name + setting.value).find_first_of(std::string("\n\0", 2)) == std::string::npos,
          "a setting is of one line", name);
  if (setting.source.starts_with("environment")) return;
  for (const File& file : files) {
    std::string_view line;
    const auto rest = BehindPlace(setting.source, file, &line);
    if (!rest || !rest->empty()) continue;
    // Of a very long line a later piece may set something; long names are cut.
    Require(
        line.size() > 4000 || name.size() == 1023 || line.starts_with(name + "=" + setting.value),
        "the line that is named says so", line);
    return;
  }
  Require(false, "a setting says which line of which file it is from", setting.source);
}

void CheckComplaint(const std::string& complaint, const std::vector<File>& files) {
  RequireReadable(complaint);
  for (const File& file : files) {
    std::string_view line;
    const auto rest = BehindPlace(complaint, file, &line);
    if (rest && rest->starts_with(": ")) return;
  }
  Require(false, "a complaint begins with file and line", complaint);
}

Settings Load(const Environment& environment, const std::string& home, const std::string& system) {
  return Settings::Load(environment, [&](const std::string& path) -> std::optional<std::string> {
    if (path == "/home/ann/.nccl.conf") return home;
    if (path == kSystemFile) return system;
    return std::nullopt;
  });
}

// Written to a file of its own, all of it is read again.
void CheckRoundTrip(const Settings& settings) {
  std::string text;
  for (const auto& [name, setting] : settings.all()) {
    text += name + "=" + setting.value + "\r\n";
  }
  const Settings again = Load({}, "", text);
  Require(again.all().size() == settings.all().size(), "what is written is read", text);
  for (const auto& [name, setting] : settings.all()) {
    const Setting* const found = again.Find(name);
    Require(found != nullptr && found->value == setting.value, "and is the same", name);
  }
}

void CheckOptions(const Settings& settings) {
  const config::LoadedOptions loaded = config::LoadOptions(settings);
  Require(loaded.options.ib_timeout == 17, "the environment wins");
  for (const std::string& warning : loaded.warnings) RequireReadable(warning);
  for (const std::string& note : loaded.notes) RequireReadable(note);
  for (const std::string& line : config::OptionReport(loaded)) RequireReadable(line);
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace railhop::fuzz;  // NOLINT(google-build-using-namespace): the entry of the program
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t home_size = std::min(text.find(kBetween), size);
  std::vector<File> files = {
      {kHomeFile, std::string(text.substr(0, home_size)), {}},
      {kSystemFile, std::string(text.substr(std::min(home_size + kBetween.size(), size))), {}}};
  for (File& file : files) file.lines = railhop::Split(file.text, '\n');
  const Settings settings =
      Load({{"NCCL_IB_TIMEOUT", "17"}, {"HOME", "/home/ann"}}, files[0].text, files[1].text);
  for (const auto& [name, setting] : settings.all()) CheckSetting(name, setting, files);
  for (const std::string& complaint : settings.complaints()) CheckComplaint(complaint, files);
  Require(settings.Find("NCCL_IB_TIMEOUT")->source.starts_with("environment"),
          "the environment comes first");
  CheckRoundTrip(settings);
  CheckOptions(settings);
  return 0;
}
