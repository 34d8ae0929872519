#include "cc/config/settings.h"

#include <unistd.h>

#include <cstdio>
#include <memory>

#include "cc/base/strings.h"

namespace railhop::config {
namespace {

constexpr size_t kLineBytesMax = 4095;  // NCCL reads a longer line in pieces of this size
constexpr size_t kWordBytesMax = 1023;  // of a name and of a value
constexpr size_t kPathBytesMax = 1023;

struct FileCloser {
  void operator()(FILE* file) const { std::fclose(file); }
};

// The next line or piece of one, with neither LF nor CR at its end; advances *text.
std::string_view NextLine(std::string_view* text) {
  const size_t newline = text->find('\n');
  const size_t taken =
      std::min(newline == std::string_view::npos ? text->size() : newline + 1, kLineBytesMax);
  std::string_view line = text->substr(0, taken);
  text->remove_prefix(taken);
  if (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line.substr(0, line.find('\0'));
}

}  // namespace

Environment ReadProcessEnvironment() {
  Environment found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    // Of two entries with one name getenv gives the first.
    found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

std::optional<std::string> ReadWholeFile(const std::string& path) {
  const std::unique_ptr<FILE, FileCloser> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return std::nullopt;
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, file.get())) > 0;) {
    text.append(buffer, n);
  }
  return text;
}

Settings Settings::Load(const Environment& environment, const FileReader& read_file) {
  Settings settings;
  for (const auto& [name, value] : environment) {
    settings.all_.emplace(name, Setting{value, "environment"});
  }
  const auto value_of = [&](std::string_view name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  const auto add = [&](const std::string& path, const std::string& shown) {
    const std::optional<std::string> text = read_file(path.substr(0, kPathBytesMax));
    if (text.has_value()) settings.Add(shown, *text);
  };
  const std::string user_file = value_of("NCCL_CONF_FILE");
  if (!user_file.empty()) {
    add(user_file, user_file);
  } else if (environment.contains("HOME")) {
    add(value_of("HOME") + "/.nccl.conf", "~/.nccl.conf");
  }
  add("/etc/nccl.conf", "/etc/nccl.conf");
  return settings;
}

Settings Settings::LoadForProcess() { return Load(ReadProcessEnvironment(), ReadWholeFile); }

const Setting* Settings::Find(std::string_view name) const {
  const auto it = all_.find(name);
  return it == all_.end() ? nullptr : &it->second;
}

void Settings::Add(std::string_view path_shown, const std::string& text) {
  std::string_view rest(text);
  int next_number = 1;
  while (!rest.empty()) {
    const int number = next_number;
    const size_t begin = text.size() - rest.size();
    const std::string_view line = NextLine(&rest);
    // Pieces of a long line have that line's number.
    next_number += text.find('\n', begin) < text.size() - rest.size() ? 1 : 0;
    if (line.empty() || line.front() == '#') continue;
    const std::string place = std::string(path_shown) + ":" + std::to_string(number);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      if (!Trim(line).empty()) complaints_.push_back(place + ": no '=' in " + Quote(line));
      continue;
    }
    const std::string_view name = line.substr(0, std::min(equals, kWordBytesMax));
    if (name.empty()) continue;  // setenv refuses it
    if (Trim(name) != name) {
      complaints_.push_back(place + ": the name " + Quote(name) +
                            " has blanks, so it sets nothing");
    }
    const std::string value(line.substr(equals + 1, kWordBytesMax));
    const auto [it, fresh] = all_.try_emplace(std::string(name), Setting{value, place});
    if (!fresh && it->second.source == "environment" && it->second.value == value) {
      it->second.source += ", as " + place;
    }
  }
}

}  // namespace railhop::config
