// For tests of the state machines: a test named after each row, that takes it.
#ifndef RAILHOP_CC_ENGINE_TESTING_ROW_TEST_H_
#define RAILHOP_CC_ENGINE_TESTING_ROW_TEST_H_

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace railhop::engine {

// A test of this fixture fails unless it took the row whose id is its name.
class RowTest : public testing::Test {
 protected:
  void Took(const char* row) {
    if (row != nullptr) taken_.insert(row);
  }
  void TearDown() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    EXPECT_EQ(taken_.count(name), 1u) << "did not take the row of its name";
  }

 private:
  std::set<std::string> taken_;
};

// The tests of this suite that are not there, of those that `rows` want.
template <typename Rows>
std::string RowsWithoutTest(const std::string& suite, const Rows& rows) {
  std::set<std::string> tests;
  const testing::UnitTest* const all = testing::UnitTest::GetInstance();
  for (int i = 0; i < all->total_test_suite_count(); ++i) {
    const testing::TestSuite* const one = all->GetTestSuite(i);
    if (one->name() != suite) continue;
    for (int j = 0; j < one->total_test_count(); ++j) tests.insert(one->GetTestInfo(j)->name());
  }
  std::string missing;
  for (const auto& row : rows) {
    if (tests.count(row.id) == 0) missing += std::string(row.id) + " ";
  }
  return missing;
}

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_TESTING_ROW_TEST_H_
