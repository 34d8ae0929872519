#include "python/railhop/_transport/inbox.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace railhop::transport {
namespace {

class InboxTest : public testing::Test {
 protected:
  std::string Come(uint64_t serial, uint64_t tag, const std::string& whole, uint64_t offset,
                   uint64_t size, uint32_t kind = 0) {
    Header header;
    header.kind = kind;
    header.serial = serial;
    header.tag = tag;
    header.total = whole.size();
    header.offset = offset;
    std::vector<uint8_t> slot(kHeaderBytes + size);
    memcpy(slot.data(), &header, sizeof(header));
    if (size > 0) memcpy(slot.data() + kHeaderBytes, whole.data() + offset, size);
    return inbox_.Take(slot.data(), slot.size(), &complete_);
  }

  std::shared_ptr<Operation> Ask(uint64_t tag, std::string* into) {
    auto operation = std::make_shared<Operation>();
    operation->peer = 1;
    operation->tag = tag;
    operation->data = reinterpret_cast<uint8_t*>(into->data());
    operation->size = into->size();
    waiting_.push_back(operation);
    inbox_.MatchWaiting(&complete_);
    return operation;
  }

  WaitingReceives waiting_;
  Inbox::Matched complete_;
  Inbox inbox_{1, &waiting_};
};

TEST_F(InboxTest, PartsOutOfOrder_MakeOneMessage) {
  std::string into(6, '.');
  Ask(7, &into);
  EXPECT_EQ(Come(0, 7, "abcdef", 4, 2), "");
  EXPECT_TRUE(complete_.empty());
  EXPECT_EQ(Come(0, 7, "abcdef", 0, 4), "");
  ASSERT_EQ(complete_.size(), 1u);
  EXPECT_EQ(into, "abcdef");
}

TEST_F(InboxTest, LaterMessageFirst_IsMatchedAfterTheEarlier) {
  std::string first(3, '.');
  std::string second(3, '.');
  Ask(7, &first);
  Ask(7, &second);
  Come(1, 7, "two", 0, 3);
  EXPECT_TRUE(complete_.empty());
  Come(0, 7, "one", 0, 3);
  EXPECT_EQ(complete_.size(), 2u);
  EXPECT_EQ(first, "one");
  EXPECT_EQ(second, "two");
}

TEST_F(InboxTest, EmptyMessagesOutOfOrder_AllComplete) {
  std::string nothing;
  Ask(1, &nothing);
  Ask(2, &nothing);
  Come(1, 2, "", 0, 0);
  EXPECT_TRUE(complete_.empty());
  Come(0, 1, "", 0, 0);
  EXPECT_EQ(complete_.size(), 2u);
}

TEST_F(InboxTest, MessageBeforeItsReceive_IsKept) {
  Come(0, 7, "abc", 0, 2);
  std::string into(3, '.');
  Ask(7, &into);
  EXPECT_TRUE(complete_.empty());
  Come(0, 7, "abc", 2, 1);
  ASSERT_EQ(complete_.size(), 1u);
  EXPECT_EQ(into, "abc");
}

TEST_F(InboxTest, WrongSize_IsSaidAtOnce_AndTheRestDropped) {
  std::string into(3, '.');
  const auto operation = Ask(7, &into);
  Come(0, 7, "abcdef", 0, 3);
  ASSERT_EQ(complete_.size(), 1u);
  EXPECT_EQ(operation->problem, "0 6");
  EXPECT_EQ(operation->failure, FailureKind::kMismatch);
  Come(0, 7, "abcdef", 3, 3);
  EXPECT_EQ(complete_.size(), 1u);
  EXPECT_EQ(into, "...");
}

TEST_F(InboxTest, ForgottenReceive_IsNotWritten) {
  std::string into(4, '.');
  const auto operation = Ask(7, &into);
  Come(0, 7, "abcd", 0, 2);
  inbox_.Forget(operation.get());
  Come(0, 7, "abcd", 2, 2);
  EXPECT_TRUE(complete_.empty());
  EXPECT_EQ(into, "ab..");
}

TEST_F(InboxTest, Goodbye_CountsOnceAllBeforeItHaveCome) {
  Come(1, 0, "", 0, 0, kGoodbyeKind);
  EXPECT_FALSE(inbox_.said_goodbye());
  Come(0, 7, "a", 0, 1);
  EXPECT_TRUE(inbox_.said_goodbye());
}

TEST_F(InboxTest, Nonsense_IsRefused) {
  EXPECT_NE(Come(0, 7, "abc", 2, 2), "");
  const uint8_t garbage[kHeaderBytes] = {1, 2, 3};
  EXPECT_NE(inbox_.Take(garbage, sizeof(garbage), &complete_), "");
  EXPECT_NE(inbox_.Take(garbage, 5, &complete_), "");
}

}  // namespace
}  // namespace railhop::transport
