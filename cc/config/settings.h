// Where a value was set: the environment and NCCL's configuration files, first setter wins.
//
// Inside a job NCCL has copied the files into the environment before it loads a plugin; tools and
// drills run outside, so the files are read here as well. In a job that changes nothing, but tells
// which file a value came from. This folder holds the plugin's only reads of the environment.
#ifndef RAILHOP_CC_CONFIG_SETTINGS_H_
#define RAILHOP_CC_CONFIG_SETTINGS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace railhop::config {

// Name to value, of a process or as a test wants it.
using Environment = std::map<std::string, std::string, std::less<>>;

// Of this process. Not thread-safe against setenv.
Environment ReadProcessEnvironment();

// The text of a file, or nothing if it cannot be opened.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> ReadWholeFile(const std::string& path);

// A value and who set it.
struct Setting {
  std::string value;
  // "environment"; "/etc/nccl.conf:3" (file and line); "environment, as ~/.nccl.conf:3" where both
  // say the same, which is what a job sees of a file.
  std::string source;
};

class Settings {
 public:
  Settings() = default;

  // The environment first, then the file that NCCL_CONF_FILE names if that is set and not empty,
  // else
  // ~/.nccl.conf (of $HOME), then /etc/nccl.conf. An empty value counts as set here, as in NCCL: it
  // keeps later files from setting the name.
  // Source: NCCL v2.30.7-1 src/misc/param.cc.
  static Settings Load(const Environment& environment, const FileReader& read_file);

  // Of this process and machine.
  static Settings LoadForProcess();

  // Null if nobody set it. Lives as long as this.
  const Setting* Find(std::string_view name) const;

  const std::map<std::string, Setting, std::less<>>& all() const { return all_; }

  // Lines of the files that NCCL passes over though they look as if they meant something, as
  // "file:line: why". NAME=VALUE is taken with every blank that it has.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  void Add(std::string_view path_shown, const std::string& text);

  std::map<std::string, Setting, std::less<>> all_;
  std::vector<std::string> complaints_;
};

}  // namespace railhop::config

#endif  // RAILHOP_CC_CONFIG_SETTINGS_H_
