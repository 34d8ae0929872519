#include "cc/config/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "cc/config/option_table.h"

namespace railhop::config {
namespace {

LoadedOptions Load(const Environment& environment) {
  return LoadOptions(Settings::Load(environment, [](const std::string&) { return std::nullopt; }));
}

const EffectiveOption& Effective(const LoadedOptions& loaded, const std::string& name) {
  for (const EffectiveOption& option : loaded.effective) {
    if (name == option.row->name) return option;
  }
  static const EffectiveOption kNone;
  ADD_FAILURE() << "no option " << name;
  return kNone;
}

TEST(OptionTable, EveryRow_IsWhole) {
  std::set<std::string> names;
  for (const OptionRow& row : OptionTable()) {
    const std::string name = row.name;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_TRUE(name.starts_with("NCCL_") || name.starts_with("RAILHOP_")) << name;
    const bool nccl_type = row.type == OptionType::kNcclInt || row.type == OptionType::kNcclText;
    EXPECT_EQ(nccl_type, name.starts_with("NCCL_")) << name;
    EXPECT_FALSE(std::string(row.doc).empty()) << name;
    EXPECT_TRUE(std::string(row.since).starts_with("NCCL 2.") ||
                std::string(row.since).starts_with("Railhop "))
        << name;
    if (row.use == OptionUse::kApplied) {
      EXPECT_FALSE(std::holds_alternative<std::monostate>(row.field)) << name << " has no field";
    }
    if (row.use == OptionUse::kCore) {
      EXPECT_TRUE(std::holds_alternative<std::monostate>(row.field)) << name;
    }
  }
}

TEST(OptionTable, Defaults_AreThoseOfTheStruct) {
  const LoadedOptions loaded = Load({});
  EXPECT_TRUE(loaded.warnings.empty());
  EXPECT_TRUE(loaded.notes.empty());
  const Options fresh;
  for (const OptionRow& row : OptionTable()) {
    if (row.type != OptionType::kNcclInt) continue;
    if (const auto* field = std::get_if<int64_t Options::*>(&row.field)) {
      EXPECT_EQ(loaded.options.**field, fresh.**field) << row.name;
    }
  }
  EXPECT_EQ(loaded.options.net_name, "Railhop");
  EXPECT_EQ(loaded.options.verbs_library, "libibverbs.so.1");
  EXPECT_EQ(loaded.options.stall_threshold_ns, 1'000'000'000);
  EXPECT_EQ(loaded.options.give_up_time_ns, 300'000'000'000);
  EXPECT_TRUE(loaded.options.failover);
  EXPECT_FALSE(loaded.options.confirm_receives);
}

TEST(OptionTable, EveryIntegerOfNccl_IsReadIntoItsField) {
  int64_t value = 1000;
  Environment environment;
  for (const OptionRow& row : OptionTable()) {
    if (row.type == OptionType::kNcclInt) environment[row.name] = std::to_string(++value);
  }
  const LoadedOptions loaded = Load(environment);
  value = 1000;
  for (const OptionRow& row : OptionTable()) {
    if (row.type != OptionType::kNcclInt) continue;
    ++value;
    EXPECT_EQ(Effective(loaded, row.name).value, std::to_string(value));
    if (const auto* field = std::get_if<int64_t Options::*>(&row.field)) {
      EXPECT_EQ(loaded.options.**field, value) << row.name << " shares its field";
    }
  }
}

TEST(Options, NcclText_KeptAsItIs) {
  const LoadedOptions loaded = Load({{"NCCL_IB_HCA", "^=mlx5_0:1"},
                                     {"NCCL_SOCKET_IFNAME", "eth0"},
                                     {"NCCL_SOCKET_FAMILY", "AF_INET6"},
                                     {"NCCL_IB_ADDR_FAMILY", "AF_INET6"},
                                     {"NCCL_IB_ADDR_RANGE", "fd00::/8"},
                                     {"NCCL_COMM_ID", "10.0.0.1:5"},
                                     {"NCCL_SOCKET_MAGIC", "0x1"}});
  EXPECT_EQ(loaded.options.ib_hca, "^=mlx5_0:1");
  EXPECT_EQ(loaded.options.socket_ifname, "eth0");
  EXPECT_EQ(loaded.options.socket_family, "AF_INET6");
  EXPECT_EQ(loaded.options.ib_addr_family, "AF_INET6");
  EXPECT_EQ(loaded.options.ib_addr_range, "fd00::/8");
  EXPECT_EQ(loaded.options.comm_id, "10.0.0.1:5");
  EXPECT_EQ(loaded.options.socket_magic, "0x1");
  EXPECT_EQ(Effective(loaded, "NCCL_IB_HCA").source, "environment");
}

TEST(Options, NumberWithText_UsedAsNcclDoesAndNamed) {
  const LoadedOptions loaded = Load({{"NCCL_IB_TC", "106 "}, {"NCCL_IB_SL", "high"}});
  EXPECT_EQ(loaded.options.ib_tc, 106);
  EXPECT_EQ(loaded.options.ib_sl, 0);
  EXPECT_TRUE(loaded.warnings.empty());
  ASSERT_EQ(loaded.notes.size(), 2u);
  EXPECT_EQ(loaded.notes[0],
            "NCCL_IB_SL='high' (environment) is no whole number; as in NCCL 0 is used");
}

TEST(Options, EmptyValue_IsUnset) {
  const LoadedOptions loaded = Load({{"NCCL_IB_TC", ""}, {"RAILHOP_FAILOVER", ""}});
  EXPECT_EQ(loaded.options.ib_tc, -1);
  EXPECT_TRUE(loaded.options.failover);
  EXPECT_FALSE(Effective(loaded, "NCCL_IB_TC").set);
  EXPECT_TRUE(loaded.warnings.empty());
}

TEST(Options, KnobThatRailhopDoesNotUse_IsNamed) {
  for (const OptionRow& row : OptionTable()) {
    const bool not_yet = row.use == OptionUse::kNotYet;
    if (row.use != OptionUse::kNotApplied && !not_yet) continue;
    // A value that every type of option takes.
    const std::string value = row.type == OptionType::kDuration ? row.default_value : "1";
    const std::string verdict = not_yet ? "not used yet" : "not used";
    const LoadedOptions loaded = Load({{row.name, value}});
    ASSERT_EQ(loaded.notes.size(), 1u) << row.name;
    EXPECT_TRUE(loaded.notes[0].starts_with(std::string(row.name) + "='" + value +
                                            "' (environment) is " + verdict + ": "));
    EXPECT_EQ(Effective(loaded, row.name).source, "environment, " + verdict);
  }
}

struct OwnCase {
  const char* name;
  const char* text;
  bool good;
};

TEST(Options, OwnValues_CheckedAndWarnedOf) {
  const OwnCase cases[] = {
      {"RAILHOP_FAILOVER", "0", true},
      {"RAILHOP_FAILOVER", "yes", false},
      {"RAILHOP_CONFIRM_RECEIVES", "1", true},
      {"RAILHOP_CONFIRM_RECEIVES", "2", false},
      {"RAILHOP_STALL_THRESHOLD", "50ms", true},
      {"RAILHOP_STALL_THRESHOLD", "50", false},
      {"RAILHOP_STALL_THRESHOLD", "1ms", false},
      {"RAILHOP_GIVE_UP_TIME", "10min", true},
      {"RAILHOP_GIVE_UP_TIME", "25h", false},
      {"RAILHOP_LOG", "trace", true},
      {"RAILHOP_LOG", "debug", false},
      {"RAILHOP_NET_NAME", "IB", true},
      {"RAILHOP_NET_NAME", "my net", false},
      {"RAILHOP_HOLD_DOWN", "0s", true},
      {"RAILHOP_PROBE_INTERVAL", "-1s", false},
      {"RAILHOP_VERBS_LIBRARY", "/x/y.so", true},
      {"RAILHOP_NET_NAME", "0123456789012345678901234567890", true},
      {"RAILHOP_NET_NAME", "01234567890123456789012345678901", false},
  };
  for (const OwnCase& c : cases) {
    const LoadedOptions loaded = Load({{c.name, c.text}});
    const EffectiveOption& effective = Effective(loaded, c.name);
    EXPECT_EQ(loaded.warnings.empty(), c.good) << c.name << "=" << c.text;
    EXPECT_EQ(effective.set, c.good) << c.name << "=" << c.text;
    EXPECT_EQ(effective.value, c.good ? c.text : FindOption(c.name)->default_value);
    if (c.good) continue;
    EXPECT_EQ(loaded.warnings[0].find(std::string(c.name) + "='" + c.text + "' (environment): "),
              0u);
    EXPECT_NE(loaded.warnings[0].find("is used"), std::string::npos);
  }
}

TEST(Options, OwnValues_ReachTheirFields) {
  const Options options = Load({{"RAILHOP_FAILOVER", "0"},
                                {"RAILHOP_CONFIRM_RECEIVES", "1"},
                                {"RAILHOP_STALL_THRESHOLD", "1500ms"},
                                {"RAILHOP_PROBE_INTERVAL", "2s"},
                                {"RAILHOP_GIVE_UP_TIME", "3s"},
                                {"RAILHOP_HOLD_DOWN", "4s"},
                                {"RAILHOP_HOLD_DOWN_MAX", "5s"},
                                {"RAILHOP_PORT_POLL_INTERVAL", "6s"},
                                {"RAILHOP_COVER", "2"},
                                {"RAILHOP_ADMIN", "0"},
                                {"RAILHOP_ADMIN_DIR", "/a"},
                                {"RAILHOP_JOB_ID", "7"},
                                {"RAILHOP_NET_NAME", "IB"},
                                {"RAILHOP_LOG", "warn"},
                                {"RAILHOP_VERBS_LIBRARY", "/x.so"}})
                              .options;
  EXPECT_FALSE(options.failover);
  EXPECT_TRUE(options.confirm_receives);
  EXPECT_EQ(options.stall_threshold_ns, 1'500'000'000);
  EXPECT_EQ(options.probe_interval_ns, 2'000'000'000);
  EXPECT_EQ(options.give_up_time_ns, 3'000'000'000);
  EXPECT_EQ(options.hold_down_ns, 4'000'000'000);
  EXPECT_EQ(options.hold_down_max_ns, 5'000'000'000);
  EXPECT_EQ(options.port_poll_interval_ns, 6'000'000'000);
  EXPECT_EQ(options.cover, "2");
  EXPECT_FALSE(options.admin);
  EXPECT_EQ(options.admin_dir, "/a");
  EXPECT_EQ(options.job_id, "7");
  EXPECT_EQ(options.net_name, "IB");
  EXPECT_EQ(options.log, "warn");
  EXPECT_EQ(options.verbs_library, "/x.so");
}

// While a job runs.
TEST(Options, Change_CheckedAndShown) {
  LoadedOptions loaded = Load({{"RAILHOP_HOLD_DOWN", "4s"}});
  const OptionRow& row = *FindOption("RAILHOP_HOLD_DOWN");
  EXPECT_EQ(ChangeOption(row, "1h", "command", &loaded), "wanted: 0s to 10min");
  EXPECT_NE(ChangeOption(row, "soon", "command", &loaded), "");
  EXPECT_NE(ChangeOption(row, "", "command", &loaded), "");
  EXPECT_EQ(loaded.options.hold_down_ns, 4'000'000'000);
  EXPECT_EQ(ChangeOption(row, "250ms", "command", &loaded), "");
  EXPECT_EQ(loaded.options.hold_down_ns, 250'000'000);
  const auto shown =
      std::find_if(loaded.effective.begin(), loaded.effective.end(),
                   [&row](const EffectiveOption& option) { return option.row == &row; });
  EXPECT_EQ(shown->value, "250ms");
  EXPECT_EQ(shown->source, "command");
  for (const std::string& name : ChangeableOptions()) {
    EXPECT_NE(FindOption(name), nullptr) << name;
    EXPECT_TRUE(IsChangeable(name));
  }
  EXPECT_FALSE(IsChangeable("RAILHOP_COVER"));
}

TEST(Options, UnknownOwnName_WarnsWithTheNearest) {
  const LoadedOptions loaded = Load({{"RAILHOP_FAIL_OVER", "0"},
                                     {"RAILHOP_SOMETHING_ELSE_ENTIRELY", "1"},
                                     {"RAILHOP_FABRIC_HOST", "alpha"},
                                     {"RAILHOP_TEST_X", "1"},
                                     {"NCCL_IB_TIMEOUTT", "1"}});
  ASSERT_EQ(loaded.warnings.size(), 2u);
  EXPECT_EQ(
      loaded.warnings[0],
      "RAILHOP_FAIL_OVER (environment) is no option of Railhop and has no effect; did you mean "
      "RAILHOP_FAILOVER?");
  EXPECT_EQ(
      loaded.warnings[1],
      "RAILHOP_SOMETHING_ELSE_ENTIRELY (environment) is no option of Railhop and has no effect");
}

TEST(Options, WhatCannotBePrinted_IsQuoted) {
  const LoadedOptions loaded =
      Load({{"RAILHOP_\n\x1b", "1"}, {"NCCL_IB_HCA", "mlx5\n"}, {"NCCL_IB_ADDR_RANGE", "\x1b[1m"}});
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_TRUE(loaded.warnings[0].starts_with("'RAILHOP_\\x0a\\x1b' (environment)"))
      << loaded.warnings[0];
  bool found = false;
  for (const std::string& line : OptionReport(loaded)) {
    EXPECT_EQ(line.find_first_of("\n\x1b"), std::string::npos) << line;
    found = found || line == "option NCCL_IB_HCA='mlx5\\x0a' (environment)";
  }
  EXPECT_TRUE(found);
}

TEST(OptionReport, NamesEverySetOptionAndItsSource) {
  const std::vector<std::string> lines =
      OptionReport(Load({{"NCCL_IB_TC", "0x6a"}, {"NCCL_IB_OOO_RQ", "1"}}));
  EXPECT_EQ(lines[0], "option NCCL_IB_TC=106 (environment)");
  EXPECT_EQ(lines[1], "option NCCL_IB_OOO_RQ=1 (environment, not used)");
  EXPECT_NE(lines.back().find("=", lines.back().find("options with their defaults:")),
            std::string::npos);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("RAILHOP_NET_NAME=Railhop") != std::string::npos;
  }));
  for (const std::string& line : lines) EXPECT_LT(line.size(), 1000u);
}

TEST(OptionReference, Page_IsThatOfTheTable) {
  std::ifstream file("docs/reference/environment.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), OptionReferenceMarkdown())
      << "run: bazel run //cc/config:option_reference > docs/reference/environment.md";
}

}  // namespace
}  // namespace railhop::config
