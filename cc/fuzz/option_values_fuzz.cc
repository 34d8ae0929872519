// Values of options: the first byte picks a row of the option table, the rest is the text that
// somebody has set (with 255, the end of an unknown option's name). Every other reader of such text
// gets it as well.
#include <sys/socket.h>

#include <array>
#include <string>

#include "cc/base/strings.h"
#include "cc/base/units.h"
#include "cc/config/nccl_values.h"
#include "cc/config/option_table.h"
#include "cc/config/options.h"
#include "cc/control/socket_address.h"
#include "cc/fuzz/input.h"

namespace railhop::fuzz {
namespace {

using config::EffectiveOption;
using config::LoadedOptions;
using config::OptionRow;
using config::OptionType;

LoadedOptions LoadOne(const char* name, const std::string& value) {
  return config::LoadOptions(config::Settings::Load(
      {{name, value}}, [](const std::string&) { return std::optional<std::string>(); }));
}

void CheckRow(const OptionRow& row, const EffectiveOption& option, const std::string& text) {
  switch (row.type) {
    case OptionType::kDuration: {
      const Result<int64_t> ns = ParseDurationNs(text);
      Require(ns.ok() && *ns >= row.min && *ns <= row.max, "a duration is in range", text);
      break;
    }
    case OptionType::kChoice: {
      const auto words = Split(row.range, '|');
      Require(std::find(words.begin(), words.end(), text) != words.end(),
              "a choice is one of the words", text);
      break;
    }
    case OptionType::kFlag:
      Require(text == "0" || text == "1", "a flag is 0 or 1", text);
      break;
    default:
      break;
  }
  // What is in force can be written down and set again.
  const LoadedOptions again = LoadOne(row.name, option.value);
  for (const EffectiveOption& other : again.effective) {
    if (other.row == &row) Require(other.value == option.value, "set again it is the same", text);
  }
}

void CheckOption(const OptionRow& row, const std::string& text) {
  const LoadedOptions loaded = LoadOne(row.name, text);
  Require(loaded.effective.size() == config::OptionTable().size(), "every row has a value");
  for (const EffectiveOption& option : loaded.effective) {
    if (option.row == &row) {
      if (option.set) CheckRow(row, option, text);
      Require(option.set || text.empty() || !loaded.warnings.empty(),
              "what is set counts or is warned of", text);
    } else {
      Require(!option.set, "one option is set", option.row->name);
    }
  }
  for (const std::string& warning : loaded.warnings) {
    RequireReadable(warning);
    Require(warning.find(row.name) != std::string::npos, "a warning names the option", warning);
    Require(
        warning.find("wanted") != std::string::npos || warning.find("want") != std::string::npos,
        "a warning says what is allowed", warning);
  }
  for (const std::string& note : loaded.notes) RequireReadable(note);
  for (const std::string& line : config::OptionReport(loaded)) {
    Require(IsPrintable(line), "the report can be read", line);
  }
}

void CheckUnknownName(const std::string& text) {
  const std::string name = "RAILHOP_" + text.substr(0, 64);
  if (name.find('=') != std::string::npos) return;
  for (const std::string& warning : LoadOne(name.c_str(), "1").warnings) RequireReadable(warning);
}

void CheckFilter(const std::string& text) {
  const auto filter = config::NameFilter::Parse(text, config::NameFilter::kDevicesMax);
  const size_t entries = Split(text, ',').size();
  Require(filter.items().size() <= 32, "a filter has at most 32 items", text);
  Require(filter.items().size() + static_cast<size_t>(filter.dropped()) <= entries,
          "an item is one entry", text);
  for (const config::NameFilterItem& item : filter.items()) {
    Require(!item.name.empty() && item.name.size() <= 63, "a name has 1 to 63 bytes", item.name);
    Require(item.name.find_first_of(",:") == std::string::npos, "a name ends at ',' and ':'",
            item.name);
  }
  if (!filter.items().empty()) {
    const config::NameFilterItem& first = filter.items().front();
    const auto match = filter.Find(first.name, first.port);
    Require(match.selected == !filter.exclude(), "the first item matches itself", text);
  }
  control::MatchesInterfaceFilter("eth0", text);
}

// Bit by bit.
bool InRange(const config::AddressRange& range, const std::array<uint8_t, 16>& gid) {
  const size_t offset = range.family == AF_INET ? 12 : 0;
  for (int bit = 0; bit < range.prefix_length; ++bit) {
    const auto byte = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if (((range.address[byte] ^ gid[offset + byte]) & mask) != 0) return false;
  }
  return true;
}

void CheckRange(const std::string& text, int family) {
  std::string why;
  const config::AddressRange range = config::ParseAddressRange(text, family, &why);
  const int most = family == AF_INET ? 32 : 128;
  Require(range.prefix_length <= most, "a prefix is no longer than an address", text);
  if (!why.empty()) {
    RequireReadable(why);
    Require(range.prefix_length == 0, "what is ignored takes every address", text);
  }
  const size_t slash = text.find('/');
  if (why.empty() && slash < 100 && std::strtol(text.c_str() + slash + 1, nullptr, 10) < 0) {
    Require(range.prefix_length < 0, "a negative length matches nothing", text);
  }
  std::array<uint8_t, 16> gid = {};
  for (size_t i = 0; i < gid.size(); ++i) gid[i] = static_cast<uint8_t>(i * 17);
  const bool expected = range.prefix_length >= 0 && InRange(range, gid);
  Require(range.Contains(gid.data()) == expected, "an address is in the range or not", text);
  std::copy_n(range.address.begin(), family == AF_INET ? 4 : 16,
              gid.begin() + (family == AF_INET ? 12 : 0));
  Require(range.Contains(gid.data()) == (range.prefix_length >= 0),
          "the range's own address is in it", text);
}

void CheckUnits(const std::string& text) {
  if (const Result<int64_t> ns = ParseDurationNs(text); ns.ok()) {
    const Result<int64_t> again = ParseDurationNs(FormatDurationNs(*ns));
    Require(*ns >= 0 && again.ok() && *again == *ns, "a duration is the same again", text);
  } else {
    RequireReadable(ns.error());
  }
  if (const Result<int64_t> bytes = ParseSizeBytes(text); bytes.ok()) {
    const Result<int64_t> again = ParseSizeBytes(FormatSizeBytes(*bytes));
    Require(*bytes >= 0 && again.ok() && *again == *bytes, "a size is the same again", text);
  } else {
    RequireReadable(bytes.error());
  }
  if (const Result<int64_t> bps = ParseRateBps(text); bps.ok()) {
    const Result<int64_t> again = ParseRateBps(FormatRateBps(*bps));
    Require(*bps >= 0 && again.ok() && *again == *bps, "a rate is the same again", text);
  } else {
    RequireReadable(bps.error());
  }
}

void CheckIntegers(const std::string& text) {
  const config::NcclInt number = config::ParseNcclInt(text, -7);
  Require(number.set == !text.empty(), "text is set", text);
  if (number.set && number.clean) {
    const config::NcclInt again = config::ParseNcclInt(std::to_string(number.value), -7);
    Require(again.clean && again.value == number.value, "an integer is the same again", text);
  }
  if (const auto magic = config::ParseSocketMagic(text)) {
    Require(config::ParseSocketMagic(std::to_string(*magic)) == magic, "so is a magic", text);
  }
  if (const auto whole = ParseInt(text, -1000, 1000); whole.ok()) {
    Require(*whole >= -1000 && *whole <= 1000, "a whole number is in range", text);
  } else {
    RequireReadable(whole.error());
  }
  config::ParseAddressFamily(text, AF_INET);
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace railhop::fuzz;  // NOLINT(google-build-using-namespace): the entry of the program
  Input input(data, size);
  const auto rows = railhop::config::OptionTable();
  const uint8_t chosen = input.Byte();
  // Neither the environment nor a file can hold a zero.
  const std::string text(input.rest().substr(0, input.rest().find('\0')));
  if (chosen == 0xff) {
    CheckUnknownName(text);
  } else {
    CheckOption(rows[chosen % rows.size()], text);
  }
  CheckFilter(text);
  CheckRange(text, AF_INET);
  CheckRange(text, AF_INET6);
  CheckUnits(text);
  CheckIntegers(text);
  return 0;
}
