#include "cc/config/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace railhop::config {
namespace {

using Files = std::map<std::string, std::string>;

Settings Load(const Environment& environment, const Files& files) {
  return Settings::Load(environment, [&](const std::string& path) -> std::optional<std::string> {
    const auto it = files.find(path);
    if (it == files.end()) return std::nullopt;
    return it->second;
  });
}

std::string Shown(const Settings& settings, const std::string& name) {
  const Setting* setting = settings.Find(name);
  return setting == nullptr ? "-" : setting->value + " <- " + setting->source;
}

TEST(Settings, FirstSetterWins_EnvironmentThenUserThenSystem) {
  const Files files = {{"/home/u/.nccl.conf", "A=user\nB=user\nE=\n"},
                       {"/etc/nccl.conf", "A=etc\nB=etc\nC=etc\nE=etc\n"}};
  const Settings settings = Load({{"HOME", "/home/u"}, {"A", "env"}}, files);
  EXPECT_EQ(Shown(settings, "A"), "env <- environment");
  EXPECT_EQ(Shown(settings, "B"), "user <- ~/.nccl.conf:2");
  EXPECT_EQ(Shown(settings, "C"), "etc <- /etc/nccl.conf:3");
  EXPECT_EQ(Shown(settings, "E"), " <- ~/.nccl.conf:3") << "empty is set, and keeps others out";
  EXPECT_EQ(Shown(settings, "Z"), "-");
}

TEST(Settings, EmptyInEnvironment_KeepsTheFilesOut) {
  const Settings settings = Load({{"A", ""}}, {{"/etc/nccl.conf", "A=etc\n"}});
  EXPECT_EQ(Shown(settings, "A"), " <- environment");
}

TEST(Settings, ConfFileNamed_ReplacesTheHomeFile) {
  const Files files = {{"/x/my.conf", "A=mine\n"},
                       {"/home/u/.nccl.conf", "A=home\nB=home\n"},
                       {"/etc/nccl.conf", "C=etc\n"}};
  const Settings named = Load({{"HOME", "/home/u"}, {"NCCL_CONF_FILE", "/x/my.conf"}}, files);
  EXPECT_EQ(Shown(named, "A"), "mine <- /x/my.conf:1");
  EXPECT_EQ(Shown(named, "B"), "-");
  EXPECT_EQ(Shown(named, "C"), "etc <- /etc/nccl.conf:1");
  const Settings missing = Load({{"HOME", "/home/u"}, {"NCCL_CONF_FILE", "/none"}}, files);
  EXPECT_EQ(Shown(missing, "A"), "-") << "also if the named file is not there";
  const Settings empty = Load({{"HOME", "/home/u"}, {"NCCL_CONF_FILE", ""}}, files);
  EXPECT_EQ(Shown(empty, "A"), "home <- ~/.nccl.conf:1");
}

TEST(Settings, InsideAJob_TellsWhichFileNcclTookItFrom) {
  const Settings settings = Load({{"A", "1"}, {"B", "2"}}, {{"/etc/nccl.conf", "A=1\nB=3\n"}});
  EXPECT_EQ(Shown(settings, "A"), "1 <- environment, as /etc/nccl.conf:1");
  EXPECT_EQ(Shown(settings, "B"), "2 <- environment");
}

TEST(Settings, LinesOfAFile_AsNcclReadsThem) {
  const std::string text =
      "# NCCL_IB_TC=1\n"
      " # X=1\n"
      "NO_EQUALS\n"
      "\n"
      "A = 5\n"
      "B= 5 # no comment here\n"
      "C=\"q\"\r\n"
      "D=a=b\n"
      "=nothing\n"
      "E=last line without an end";
  const Settings settings = Load({}, {{"/etc/nccl.conf", text}});
  EXPECT_EQ(Shown(settings, "NCCL_IB_TC"), "-");
  EXPECT_EQ(Shown(settings, " # X"), "1 <- /etc/nccl.conf:2");
  EXPECT_EQ(Shown(settings, "A"), "-");
  EXPECT_EQ(Shown(settings, "A "), " 5 <- /etc/nccl.conf:5");
  EXPECT_EQ(Shown(settings, "B"), " 5 # no comment here <- /etc/nccl.conf:6");
  EXPECT_EQ(Shown(settings, "C"), "\"q\" <- /etc/nccl.conf:7");
  EXPECT_EQ(Shown(settings, "D"), "a=b <- /etc/nccl.conf:8");
  EXPECT_EQ(Shown(settings, ""), "-");
  EXPECT_EQ(Shown(settings, "E"), "last line without an end <- /etc/nccl.conf:10");
  ASSERT_EQ(settings.complaints().size(), 3u);
  EXPECT_EQ(settings.complaints()[1], "/etc/nccl.conf:3: no '=' in 'NO_EQUALS'");
  EXPECT_EQ(settings.complaints()[2],
            "/etc/nccl.conf:5: the name 'A ' has blanks, so it sets nothing");
}

TEST(Settings, LongValue_CutAt1023Bytes) {
  const Settings settings =
      Load({}, {{"/etc/nccl.conf", "A=" + std::string(2000, 'x') + "\nB=1\n"}});
  EXPECT_EQ(settings.Find("A")->value.size(), 1023u);
  EXPECT_EQ(Shown(settings, "B"), "1 <- /etc/nccl.conf:2");
}

TEST(Settings, LineBehindAVeryLongOne_KeepsItsNumber) {
  const std::string text = "A=" + std::string(9000, 'x') + "\nnothing\nB=1\n";
  const Settings settings = Load({}, {{"/etc/nccl.conf", text}});
  EXPECT_EQ(Shown(settings, "B"), "1 <- /etc/nccl.conf:3");
  ASSERT_FALSE(settings.complaints().empty());
  EXPECT_EQ(settings.complaints().back(), "/etc/nccl.conf:2: no '=' in 'nothing'");
}

TEST(Settings, Process_ReadsItsEnvironment) {
  ASSERT_EQ(setenv("RAILHOP_TEST_SETTING", "a=b", 1), 0);
  const Environment environment = ReadProcessEnvironment();
  EXPECT_EQ(environment.at("RAILHOP_TEST_SETTING"), "a=b");
  EXPECT_EQ(ReadWholeFile("/no/such/file"), std::nullopt);
}

}  // namespace
}  // namespace railhop::config
