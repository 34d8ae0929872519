#include "integration/verbs/expectations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "integration/verbs/capabilities.h"

namespace railhop::conformance {
namespace {

std::vector<Case> TwoCases() {
  return {{"A.One_Works", "clause 1", {}, nullptr}, {"B.Two_Works", "clause 2", {"srq"}, nullptr}};
}

std::string ErrorOf(const std::string& text) {
  Expectations out;
  std::string error;
  return ParseExpectations("f.expect", text, TwoCases(), &out, &error) ? "" : error;
}

TEST(Expectations, GoodFile_IsFound) {
  Expectations out;
  std::string error;
  const std::string text =
      "# a comment\n\nunsupported | srq | not needed\n"
      "differs | A.* | got 2 | man x | it is old\n";
  ASSERT_TRUE(ParseExpectations("f.expect", text, TwoCases(), &out, &error)) << error;
  EXPECT_EQ(out.FindUnsupported(TwoCases()[0]), nullptr);
  ASSERT_NE(out.FindUnsupported(TwoCases()[1]), nullptr);
  EXPECT_EQ(out.FindUnsupported(TwoCases()[1])->reason, "not needed");
  ASSERT_NE(out.FindDifference("A.One_Works"), nullptr);
  EXPECT_EQ(out.FindDifference("A.One_Works")->fragment, "got 2");
  EXPECT_EQ(out.FindDifference("B.Two_Works"), nullptr);
}

TEST(Expectations, UnknownWord_NamesLineAndAllowed) {
  EXPECT_EQ(ErrorOf("\nskip | A.One_Works\n"),
            "f.expect:2: unknown word \"skip\"; allowed are: unsupported, differs");
}

TEST(Expectations, UnknownCapability_NamesIt) {
  const std::string error = ErrorOf("unsupported | wings | none\n");
  EXPECT_NE(error.find("f.expect:1: unknown capability \"wings\"; there are: atomics"),
            std::string::npos)
      << error;
}

TEST(Expectations, UnknownCase_NamesIt) {
  EXPECT_EQ(ErrorOf("differs | C.Three | x | y | z\n"),
            "f.expect:1: no case is named \"C.Three\"; --list shows them");
}

TEST(Expectations, FieldMissing_SaysWhich) {
  EXPECT_EQ(ErrorOf("differs | A.One_Works | x\n"),
            "f.expect:1: differs takes a case, a text, a clause and a reason");
  EXPECT_EQ(ErrorOf("unsupported | srq\n"),
            "f.expect:1: unsupported takes a capability and a reason");
}

TEST(Expectations, NoFile_NamesIt) {
  Expectations out;
  std::string error;
  EXPECT_FALSE(LoadExpectations("/none/such", TwoCases(), &out, &error));
  EXPECT_EQ(error, "cannot read the expectations file /none/such");
  EXPECT_TRUE(LoadExpectations("", TwoCases(), &out, &error));
}

TEST(Glob, StarAndQuestionMark_Match) {
  EXPECT_TRUE(MatchesGlob("a*c", "abbc"));
  EXPECT_TRUE(MatchesGlob("*b?", "abbc"));
  EXPECT_TRUE(MatchesGlob("abc", "abc"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_FALSE(MatchesGlob("a?", "a"));
  EXPECT_FALSE(MatchesGlob("abc", "abcd"));
  EXPECT_FALSE(MatchesGlob("*x", "abc"));
}

TEST(Cases, All_NameKnownCapabilitiesOnce) {
  std::vector<std::string> names;
  for (const Case& c : AllCases()) {
    EXPECT_EQ(std::count(names.begin(), names.end(), c.name), 0) << c.name << " is there twice";
    EXPECT_FALSE(c.clause.empty()) << c.name;
    EXPECT_NE(c.name.find('_'), std::string::npos) << c.name;
    for (const std::string& need : c.needs) {
      EXPECT_NE(FindCapability(need), nullptr) << c.name << " needs " << need;
    }
    names.push_back(c.name);
  }
  EXPECT_GT(names.size(), 300u);
}

}  // namespace
}  // namespace railhop::conformance
