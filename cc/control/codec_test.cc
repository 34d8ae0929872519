#include "cc/control/codec.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/control/testing/message_fields.h"
#include "google/protobuf/compiler/importer.h"
#include "google/protobuf/dynamic_message.h"
#include "gtest/gtest.h"

namespace railhop::control {
namespace {

using testing::FullMessages;
using testing::Walk;

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Encoded(const engine::Message& message) {
  absl::StatusOr<std::string> bytes = EncodeMessage(message);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

engine::Message ThereAndBack(const engine::Message& message) {
  const absl::StatusOr<std::vector<engine::Message>> back = DecodeBatch(BytesOf(Encoded(message)));
  EXPECT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->size(), 1u);
  return back->front();
}

std::string WhyRefused(const engine::Message& message) {
  return std::string(EncodeMessage(message).status().message());
}

// Another value of the same type that is allowed wherever 1 and 3 are.
template <typename Leaf>
void Change(Leaf* leaf) {
  if constexpr (std::is_same_v<Leaf, std::string>) {
    *leaf = "b";
  } else if constexpr (std::is_same_v<Leaf, bool>) {
    *leaf = !*leaf;
  } else if constexpr (std::is_same_v<Leaf, engine::End>) {
    *leaf = engine::Opposite(*leaf);
  } else {
    *leaf = static_cast<Leaf>(2);
  }
}

// Reflection over the structs: a field that the codec forgets, or puts where another belongs,
// comes back changed.
TEST(Codec, EveryFieldOfEveryStruct_IsCarried) {
  int changed = 0;
  for (const engine::Message& full : FullMessages()) {
    EXPECT_EQ(ThereAndBack(full), full) << MessageName(full);
    engine::Message counted = full;
    int leaves = 0;
    Walk(2).Over(&counted, [&](auto&, size_t) { ++leaves; });
    for (int chosen = 0; chosen < leaves; ++chosen) {
      engine::Message message = full;
      int at = 0;
      Walk(2).Over(&message, [&](auto& leaf, size_t) {
        if (at++ == chosen) Change(&leaf);
      });
      ASSERT_NE(message, full);
      EXPECT_EQ(ThereAndBack(message), message) << MessageName(full) << ", leaf " << chosen;
      ++changed;
    }
  }
  EXPECT_GT(changed, 300);
}

// Reflection over the .proto file: every field is filled, and every kind of message has a struct.
class ProtoFile {
 public:
  ProtoFile() {
    tree_.MapPath("", ".");
    file_ = importer_.Import("cc/proto/control.proto");
  }
  const google::protobuf::Descriptor* Find(const char* name) const {
    return file_ == nullptr ? nullptr : file_->FindMessageTypeByName(name);
  }
  std::unique_ptr<google::protobuf::Message> New(const google::protobuf::Descriptor* type) {
    return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(type)->New());
  }

 private:
  class Errors : public google::protobuf::compiler::MultiFileErrorCollector {
    void AddError(const std::string& name, int line, int, const std::string& text) override {
      ADD_FAILURE() << name << ":" << line << ": " << text;
    }
  };
  google::protobuf::compiler::DiskSourceTree tree_;
  Errors errors_;
  google::protobuf::compiler::Importer importer_{&tree_, &errors_};
  google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::FileDescriptor* file_ = nullptr;
};

// Names of fields that are not set, but for those of a oneof.
void FindUnset(const google::protobuf::Message& message, std::set<std::string>* unset,
               std::set<std::string>* seen) {
  const google::protobuf::Reflection* const reflection = message.GetReflection();
  EXPECT_TRUE(reflection->GetUnknownFields(message).empty());
  seen->insert(message.GetDescriptor()->name());
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = message.GetDescriptor()->field(i);
    const bool is_message = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      if (reflection->FieldSize(message, field) == 0) unset->insert(field->full_name());
      for (int n = 0; is_message && n < reflection->FieldSize(message, field); ++n) {
        FindUnset(reflection->GetRepeatedMessage(message, field, n), unset, seen);
      }
    } else if (!reflection->HasField(message, field)) {
      if (field->containing_oneof() == nullptr) unset->insert(field->full_name());
    } else if (is_message) {
      FindUnset(reflection->GetMessage(message, field), unset, seen);
    }
  }
}

TEST(Codec, EveryFieldOfTheProtoFile_IsFilled) {
  ProtoFile file;
  const google::protobuf::Descriptor* const type = file.Find("Batch");
  ASSERT_NE(type, nullptr);
  ASSERT_EQ(file.Find("Message")->oneof_decl(0)->field_count(),
            static_cast<int>(std::variant_size_v<engine::Message>));
  std::set<std::string> unset;
  std::set<std::string> seen;
  for (const engine::Message& full : FullMessages()) {
    std::unique_ptr<google::protobuf::Message> batch = file.New(type);
    ASSERT_TRUE(batch->ParseFromString(Encoded(full)));
    FindUnset(*batch, &unset, &seen);
    const google::protobuf::Message& message =
        batch->GetReflection()->GetRepeatedMessage(*batch, type->FindFieldByName("messages"), 0);
    const google::protobuf::FieldDescriptor* const kind =
        message.GetReflection()->GetOneofFieldDescriptor(message,
                                                         file.Find("Message")->oneof_decl(0));
    ASSERT_NE(kind, nullptr);
    EXPECT_EQ(kind->name(), MessageName(full));
  }
  EXPECT_EQ(unset, std::set<std::string>());
  EXPECT_EQ(static_cast<int>(seen.size()), type->file()->message_type_count());
}

TEST(Codec, BatchOfMany_InOrder) {
  std::string bytes;
  for (const engine::Message& message : FullMessages()) bytes += Encoded(message);
  const absl::StatusOr<std::vector<engine::Message>> back = DecodeBatch(BytesOf(bytes));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, FullMessages());
  EXPECT_TRUE(DecodeBatch({})->empty());
}

template <typename T>
T Full() {
  for (const engine::Message& message : FullMessages()) {
    if (const T* const found = std::get_if<T>(&message)) return *found;
  }
  return {};
}

TEST(Codec, OutOfRange_RefusedByNameBothWays) {
  engine::Fence fence = Full<engine::Fence>();
  fence.lanes.back().index = 128;
  EXPECT_EQ(WhyRefused(fence), "control message fence: lane index is 128, allowed are 0 to 127");
  fence = Full<engine::Fence>();
  fence.cause = static_cast<engine::Cause>(99);
  EXPECT_EQ(WhyRefused(fence), "control message fence: cause is 99, allowed are 0 to 11");
  fence = Full<engine::Fence>();
  fence.lanes = {{3, 1}, {1, 1}};
  EXPECT_EQ(WhyRefused(fence), "control message fence: lanes are not in order");
  fence.lanes = {{3, 1}, {3, 1}};
  EXPECT_EQ(WhyRefused(fence), "control message fence: lanes are not in order");
  fence = Full<engine::Fence>();
  fence.to.end = static_cast<engine::End>(2);
  EXPECT_EQ(WhyRefused(fence), "control message fence: to.end is 2, allowed are 0 to 1");

  engine::Offer offer = Full<engine::Offer>();
  offer.devices.resize(9, offer.devices[0]);
  EXPECT_EQ(WhyRefused(offer), "control message offer: 9 devices, at most 8 are allowed");
  offer = Full<engine::Offer>();
  offer.devices[1].mtu = 0;
  EXPECT_EQ(WhyRefused(offer), "control message offer: device mtu is 0, allowed are 1 to 5");
  offer = Full<engine::Offer>();
  offer.lanes[0].qp_number = 1 << 24;
  EXPECT_NE(WhyRefused(offer).find("lane qp_number is 16777216"), std::string::npos);
  offer = Full<engine::Offer>();
  offer.devices[0].physical = -1;
  EXPECT_NE(WhyRefused(offer).find("device physical is 4294967295"), std::string::npos);

  engine::Record record = Full<engine::Record>();
  record.receiver.open.resize(33);
  EXPECT_NE(WhyRefused(record).find("33 open transfers"), std::string::npos);
  record = Full<engine::Record>();
  record.receiver.open[0].receives.resize(9);
  EXPECT_NE(WhyRefused(record).find("9 receives of a transfer"), std::string::npos);
  record = Full<engine::Record>();
  record.receiver.open[1].receives[0].stripes = 129;
  EXPECT_NE(WhyRefused(record).find("stripes is 129"), std::string::npos);

  engine::Ports ports = Full<engine::Ports>();
  ports.ports[0].rail = -2;
  EXPECT_NE(WhyRefused(ports).find("rail is -2"), std::string::npos);
}

TEST(Codec, LongText_IsCutUnprintableReplaced) {
  engine::Goodbye goodbye;
  goodbye.reason = std::string(2000, 'x') + "end";
  goodbye.reason[3] = '\n';
  goodbye.reason[4] = '\xff';
  const auto back = std::get<engine::Goodbye>(ThereAndBack(goodbye));
  EXPECT_EQ(back.reason.size(), kTextCharactersMax);
  EXPECT_EQ(back.reason.substr(0, 6), "xxx??x");
}

// The largest that can be: far below what a batch may have.
TEST(Codec, LargestRecord_Fits) {
  engine::Record record;
  for (uint8_t i = 0; i < 128; ++i) record.lanes.push_back({i, 0xffffffff});
  for (uint64_t i = 0; i < 32; ++i) {
    engine::OpenTransfer open;
    open.sequence = ~i;
    open.receives.resize(8, {.stripes = 128, .arrived = {~uint64_t{0}, ~uint64_t{0}}});
    record.receiver.open.push_back(open);
    record.sender.announcements.push_back(~i);
  }
  EXPECT_EQ(ThereAndBack(record), engine::Message(record));
  EXPECT_LT(Encoded(record).size(), 10000u);
}

TEST(Codec, EveryTruncation_RefusedOrValid) {
  std::string bytes;
  for (const engine::Message& message : FullMessages()) bytes += Encoded(message);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const absl::StatusOr<std::vector<engine::Message>> cut =
        DecodeBatch(BytesOf(bytes).subspan(0, n));
    // A cut between two messages is a batch of its own.
    if (cut.ok()) {
      EXPECT_LT(cut->size(), FullMessages().size());
    }
  }
}

// Any bytes: no crash (the sanitizers watch); what is taken is in range, so it can be sent again.
TEST(Codec, AnyBytes_RefusedOrInRange) {
  Prng prng(7);
  std::vector<std::string> good;
  for (const engine::Message& message : FullMessages()) good.push_back(Encoded(message));
  int taken = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string bytes = good[prng.Below(good.size())];
    if (prng.Chance(0.3)) bytes += good[prng.Below(good.size())];
    const uint64_t changes = prng.Below(6);
    for (uint64_t i = 0; i < changes; ++i) {
      bytes[prng.Below(bytes.size())] = static_cast<char>(prng.Next());
    }
    if (prng.Chance(0.1)) bytes.resize(prng.Below(2 * bytes.size()));
    const absl::StatusOr<std::vector<engine::Message>> messages = DecodeBatch(BytesOf(bytes));
    if (!messages.ok()) {
      EXPECT_FALSE(messages.status().message().empty());
      continue;
    }
    for (const engine::Message& message : *messages) {
      EXPECT_EQ(ThereAndBack(message), message);
      ++taken;
    }
  }
  EXPECT_GT(taken, 1000);
}

TEST(Codec, TooManyBytes_Refused) {
  const std::vector<uint8_t> bytes(kBatchBytesMax + 1);
  EXPECT_FALSE(DecodeBatch(bytes).ok());
}

}  // namespace
}  // namespace railhop::control
