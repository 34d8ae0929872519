#include "cc/config/options.h"

#include <algorithm>
#include <optional>

#include "cc/base/strings.h"
#include "cc/base/units.h"
#include "cc/config/nccl_values.h"
#include "cc/config/option_table.h"

namespace railhop::config {
namespace {

constexpr size_t kNetNameBytesMax = 31;
constexpr size_t kUnknownNameBytesMax = 80;  // a longer one is cut in the warning

// One of our own options as text; an error is a sentence that names what is allowed.
struct OwnValue {
  std::optional<int64_t> number;
  std::string error;
};

OwnValue ParseOwn(const OptionRow& row, const std::string& text) {
  switch (row.type) {
    case OptionType::kFlag:
      if (text == "0" || text == "1") return {text == "1" ? 1 : 0, ""};
      return {std::nullopt, "wanted: 0 or 1"};
    case OptionType::kDuration: {
      const Result<int64_t> ns = ParseDurationNs(text);
      if (!ns.ok()) return {std::nullopt, ns.error()};
      if (*ns < row.min || *ns > row.max) {
        return {std::nullopt, std::string("wanted: ") + row.range};
      }
      return {*ns, ""};
    }
    case OptionType::kChoice: {
      const auto words = Split(row.range, '|');
      if (std::find(words.begin(), words.end(), text) != words.end()) return {0, ""};
      return {std::nullopt, "wanted: " + Join(words, ", ")};
    }
    default:
      return {0, ""};
  }
}

// As it is if it can be read; else as a message has it.
std::string Shown(const std::string& text) {
  const bool readable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; });
  return readable ? text : Quote(text);
}

// The name goes to NCCL, which compares and prints it.
std::string NetNameError(const std::string& name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (printable && name.size() <= kNetNameBytesMax) return "";
  return "wanted: 1 to 31 printable characters";
}

// Writes one row's value into the options; `text` has passed ParseOwn if the row is ours.
void Store(const OptionRow& row, const std::string& text, Options* options) {
  if (const auto* field = std::get_if<std::string Options::*>(&row.field)) {
    options->** field = text;
  } else if (const auto* flag = std::get_if<bool Options::*>(&row.field)) {
    options->** flag = ParseOwn(row, text).number.value_or(0) != 0;
  } else if (const auto* number = std::get_if<int64_t Options::*>(&row.field)) {
    if (row.type == OptionType::kNcclInt) {
      options->** number = ParseNcclInt(text, ParseNcclInt(row.default_value, 0).value).value;
    } else {
      options->** number = ParseOwn(row, text).number.value_or(0);
    }
  }
}

class Loader {
 public:
  explicit Loader(const Settings& settings) : settings_(settings) {}

  LoadedOptions Load() {
    for (const OptionRow& row : OptionTable()) LoadRow(row);
    for (const auto& [name, setting] : settings_.all()) CheckUnknown(name, setting);
    for (const std::string& complaint : settings_.complaints()) {
      loaded_.warnings.push_back(complaint);
    }
    return std::move(loaded_);
  }

 private:
  void LoadRow(const OptionRow& row) {
    EffectiveOption effective{&row, row.default_value, "default", false};
    const Setting* setting = settings_.Find(row.name);
    if (setting != nullptr && !setting->value.empty()) {
      const std::string error = Error(row, setting->value);
      if (error.empty()) {
        effective = {&row, setting->value, setting->source, true};
        Note(row, *setting, &effective);
      } else {
        loaded_.warnings.push_back(std::string(row.name) + "=" + Quote(setting->value) + " (" +
                                   setting->source + "): " + error + "; the default " +
                                   Quote(row.default_value) + " is used");
      }
    }
    Store(row, effective.value, &loaded_.options);
    if (effective.set && row.type == OptionType::kNcclInt) {
      effective.value = std::to_string(
          ParseNcclInt(setting->value, ParseNcclInt(row.default_value, 0).value).value);
    }
    if (effective.value.empty()) effective.value = "(unset)";
    loaded_.effective.push_back(std::move(effective));
  }

  static std::string Error(const OptionRow& row, const std::string& text) {
    if (std::string_view(row.name) == "RAILHOP_NET_NAME") return NetNameError(text);
    return ParseOwn(row, text).error;
  }

  // Says what NCCL would not say of its own knob.
  void Note(const OptionRow& row, const Setting& setting, EffectiveOption* effective) {
    const std::string shown = std::string(row.name) + "=" + Quote(setting.value);
    if (row.use == OptionUse::kNotApplied || row.use == OptionUse::kNotYet) {
      const std::string verdict = row.use == OptionUse::kNotYet ? "not used yet" : "not used";
      loaded_.notes.push_back(shown + " (" + setting.source + ") is " + verdict + ": " + row.doc);
      effective->source += ", " + verdict;
    }
    if (row.type == OptionType::kNcclInt) {
      const NcclInt parsed = ParseNcclInt(setting.value, ParseNcclInt(row.default_value, 0).value);
      if (!parsed.clean) {
        loaded_.notes.push_back(shown + " (" + setting.source +
                                ") is no whole number; as in NCCL " + std::to_string(parsed.value) +
                                " is used");
      }
    }
  }

  void CheckUnknown(const std::string& name, const Setting& setting) {
    if (!name.starts_with("RAILHOP_") || FindOption(name) != nullptr) return;
    for (const std::string_view prefix : kForeignPrefixes) {
      if (name.starts_with(prefix)) return;
    }
    const std::string nearest = NearestOption(name);
    loaded_.warnings.push_back(
        (name.size() > kUnknownNameBytesMax ? Quote(name) : Shown(name)) + " (" + setting.source +
        ") is no option of Railhop and has no effect" +
        (nearest.empty() ? std::string() : "; did you mean " + nearest + "?"));
  }

  const Settings& settings_;
  LoadedOptions loaded_;
};

}  // namespace

LoadedOptions LoadOptions(const Settings& settings) { return Loader(settings).Load(); }

std::string ChangeOption(const OptionRow& row, const std::string& value, const std::string& source,
                         LoadedOptions* loaded) {
  if (value.empty()) return std::string("wanted: ") + row.range;
  if (std::string error = ParseOwn(row, value).error; !error.empty()) return error;
  Store(row, value, &loaded->options);
  for (EffectiveOption& option : loaded->effective) {
    if (option.row == &row) option = {&row, value, source, true};
  }
  return "";
}

std::vector<std::string> OptionReport(const LoadedOptions& loaded) {
  constexpr size_t kLineBytes = 900;  // a longer one would be cut by the log
  std::vector<std::string> lines;
  std::string defaults;
  for (const EffectiveOption& option : loaded.effective) {
    if (option.set) {
      lines.push_back("option " + std::string(option.row->name) + "=" + Shown(option.value) + " (" +
                      option.source + ")");
    } else if (option.row->use == OptionUse::kApplied) {
      if (defaults.size() > kLineBytes) {
        lines.push_back("options with their defaults:" + defaults);
        defaults.clear();
      }
      defaults += " " + std::string(option.row->name) + "=" + option.value;
    }
  }
  lines.push_back("options with their defaults:" + defaults);
  return lines;
}

}  // namespace railhop::config
