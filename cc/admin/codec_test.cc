#include "cc/admin/codec.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/prng.h"
#include "google/protobuf/compiler/importer.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace railhop::admin {
namespace {

namespace pb = google::protobuf;

// The messages as admin.proto has them, with reflection, which the generated ones have not.
class ProtoFile {
 public:
  ProtoFile() {
    tree_.MapPath("", ".");
    file_ = importer_.Import("cc/proto/admin.proto");
  }
  const pb::Descriptor* Find(const std::string& name) const {
    return file_ == nullptr ? nullptr : file_->FindMessageTypeByName(name);
  }
  std::unique_ptr<pb::Message> New(const std::string& name) {
    return std::unique_ptr<pb::Message>(factory_.GetPrototype(Find(name))->New());
  }
  const pb::FileDescriptor* file() const { return file_; }

 private:
  class Errors : public pb::compiler::MultiFileErrorCollector {
    void AddError(const std::string& name, int line, int, const std::string& text) override {
      ADD_FAILURE() << name << ":" << line << ": " << text;
    }
  };
  pb::compiler::DiskSourceTree tree_;
  Errors errors_;
  pb::compiler::Importer importer_{&tree_, &errors_};
  pb::DynamicMessageFactory factory_;
  const pb::FileDescriptor* file_ = nullptr;
};

// Gives every field a value of its own, two of each list; enumerations take their values in turn.
class Filler {
 public:
  void Fill(pb::Message* message) {
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const pb::FieldDescriptor* const field = message->GetDescriptor()->field(i);
      Set(message, field);
      if (field->is_repeated()) Set(message, field);
    }
  }

 private:
  void Set(pb::Message* message, const pb::FieldDescriptor* field) {
    const pb::Reflection* const to = message->GetReflection();
    const bool many = field->is_repeated();
    ++next_;
    switch (field->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(many ? to->AddMessage(message, field) : to->MutableMessage(message, field));
        break;
      case pb::FieldDescriptor::CPPTYPE_STRING:
        many ? to->AddString(message, field, "text " + std::to_string(next_))
             : to->SetString(message, field, "text " + std::to_string(next_));
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT64: {
        const uint64_t value = (uint64_t{1} << 60) + next_;
        many ? to->AddUInt64(message, field, value) : to->SetUInt64(message, field, value);
        break;
      }
      case pb::FieldDescriptor::CPPTYPE_INT64:
        to->SetInt64(message, field, (int64_t{1} << 60) + static_cast<int64_t>(next_));
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT32:
        to->SetUInt32(message, field, static_cast<uint32_t>(next_));
        break;
      case pb::FieldDescriptor::CPPTYPE_INT32:
        to->SetInt32(message, field, -static_cast<int32_t>(next_));
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        to->SetBool(message, field, true);
        break;
      case pb::FieldDescriptor::CPPTYPE_ENUM: {
        const pb::EnumDescriptor* const type = field->enum_type();
        int& last = enums_[type->name()];
        last = last % (type->value_count() - 1) + 1;
        to->SetEnumValue(message, field, last);
        break;
      }
      default:
        ADD_FAILURE() << field->full_name() << " is of a type that this test does not know";
    }
  }

  uint64_t next_ = 100;
  std::map<std::string, int> enums_;
};

template <typename Kind>
std::vector<std::unique_ptr<pb::Message>> FullOf(ProtoFile* file, const char* type, Kind) {
  std::vector<std::unique_ptr<pb::Message>> all;
  for (int i = 0; i < file->Find(type)->field_count(); ++i) {
    std::unique_ptr<pb::Message> message = file->New(type);
    const pb::FieldDescriptor* const body = message->GetDescriptor()->field(i);
    Filler().Fill(message->GetReflection()->MutableMessage(message.get(), body));
    all.push_back(std::move(message));
  }
  return all;
}

std::string Difference(const pb::Message& want, const std::string& bytes) {
  const std::unique_ptr<pb::Message> back(want.New());
  if (!back->ParseFromString(bytes)) return "no message";
  std::string report;
  pb::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  return differencer.Compare(want, *back) ? "" : report;
}

TEST(AdminCodec, EveryFieldOfEveryRequest_IsCarried) {
  ProtoFile file;
  const auto all = FullOf(&file, "Request", 0);
  EXPECT_EQ(all.size(), std::variant_size_v<Request>);
  for (const auto& message : all) {
    const Reply<Request> read = DecodeRequest(message->SerializeAsString());
    ASSERT_TRUE(read.ok()) << message->DebugString() << read.failure().message;
    EXPECT_EQ(Difference(*message, EncodeRequest(*read)), "");
  }
}

TEST(AdminCodec, EveryFieldOfEveryResponse_IsCarried) {
  ProtoFile file;
  const auto all = FullOf(&file, "Response", 0);
  EXPECT_EQ(all.size(), std::variant_size_v<Response>);
  for (const auto& message : all) {
    const Reply<Response> read = DecodeResponse(message->SerializeAsString());
    ASSERT_TRUE(read.ok()) << message->DebugString() << read.failure().message;
    EXPECT_EQ(Difference(*message, EncodeResponse(*read)), "");
  }
}

// How many initializers a struct takes: its fields.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: never defined, only asked about
};
template <typename T, size_t... i>
constexpr bool TakesInitializers(std::index_sequence<i...>) {
  return requires { T{(static_cast<void>(i), Anything{})...}; };
}
template <typename T, size_t n = 24>
constexpr size_t FieldCount() {
  if constexpr (n == 0 || TakesInitializers<T>(std::make_index_sequence<n>())) {
    return n;
  } else {
    return FieldCount<T, n - 1>();
  }
}

// The other direction: a field of a struct that the .proto file does not have.
TEST(AdminCodec, EveryFieldOfEveryStruct_IsInTheProtoFile) {
  ProtoFile file;
  const std::map<std::string, size_t> structs = {
      {"GetProcess", FieldCount<GetProcess>()},
      {"GetHealth", FieldCount<GetHealth>()},
      {"GetStats", FieldCount<GetStats>()},
      {"GetEvents", FieldCount<GetEvents>()},
      {"ForceFailover", FieldCount<ForceFailover>()},
      {"FailBack", FieldCount<FailBack>()},
      {"Hold", FieldCount<Hold>()},
      {"Release", FieldCount<Release>()},
      {"GetConfig", FieldCount<GetConfig>()},
      {"SetOption", FieldCount<SetOption>()},
      {"Process", FieldCount<Process>()},
      {"Device", FieldCount<Device>()},
      {"Port", FieldCount<Port>()},
      {"Path", FieldCount<Path>()},
      {"Connection", FieldCount<Connection>()},
      {"Episode", FieldCount<Episode>()},
      {"Health", FieldCount<Health>()},
      {"PortStats", FieldCount<PortStats>()},
      {"CauseCount", FieldCount<CauseCount>()},
      {"Histogram", FieldCount<Histogram>()},
      {"Stats", FieldCount<Stats>()},
      {"Event", FieldCount<Event>()},
      {"EventList", FieldCount<EventList>()},
      {"Option", FieldCount<Option>()},
      {"Config", FieldCount<Config>()},
      {"Outcome", FieldCount<Outcome>()},
      {"Error", FieldCount<Failure>()},
  };
  for (int i = 0; i < file.file()->message_type_count(); ++i) {
    const pb::Descriptor* const type = file.file()->message_type(i);
    if (type->name() == "Request" || type->name() == "Response") continue;
    const auto found = structs.find(type->name());
    ASSERT_NE(found, structs.end()) << type->name();
    EXPECT_EQ(static_cast<size_t>(type->field_count()), found->second) << type->name();
  }
}

// A word for each number, the one of the .proto file; none twice.
template <typename Enum>
void CheckWords(const ProtoFile& file, const char* name) {
  const pb::EnumDescriptor* const type = file.file()->FindEnumTypeByName(name);
  ASSERT_NE(type, nullptr) << name;
  std::string prefix;
  for (const char c : std::string(name)) {
    if (c >= 'A' && c <= 'Z' && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  for (int i = 0; i < type->value_count(); ++i) {
    std::string value = type->value(i)->name();
    for (char& c : value) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    EXPECT_EQ(type->value(i)->number(), i);
    EXPECT_EQ(value, prefix + "_" + Word(static_cast<Enum>(i)));
  }
  EXPECT_STREQ(Word(static_cast<Enum>(type->value_count())), "unknown");
}

TEST(AdminCodec, EveryEnumerator_HasItsWord) {
  ProtoFile file;
  CheckWords<PortState>(file, "PortState");
  CheckWords<PathState>(file, "PathState");
  CheckWords<ConnectionState>(file, "ConnectionState");
  CheckWords<Direction>(file, "Direction");
  CheckWords<Verdict>(file, "Verdict");
  CheckWords<Cause>(file, "Cause");
  CheckWords<Blame>(file, "Blame");
  CheckWords<EventKind>(file, "EventKind");
  CheckWords<Severity>(file, "Severity");
  CheckWords<FailoverMode>(file, "FailoverMode");
  CheckWords<ErrorCode>(file, "ErrorCode");
}

TEST(AdminCodec, NumberOfALaterVersion_IsUnknown) {
  ProtoFile file;
  std::unique_ptr<pb::Message> message = file.New("Response");
  pb::Message* const outcome = message->GetReflection()->MutableMessage(
      message.get(), message->GetDescriptor()->FindFieldByName("error"));
  outcome->GetReflection()->SetEnumValue(outcome, outcome->GetDescriptor()->FindFieldByName("code"),
                                         4711);
  const Reply<Response> read = DecodeResponse(message->SerializeAsString());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Failure>(*read).code, ErrorCode::kUnknown);
}

// A name that a stranger has chosen writes to nobody's terminal.
TEST(AdminCodec, UnprintableText_IsReplaced) {
  Event event;
  event.text = "a\x1b[2Jb\nc\xff";
  const Reply<Response> read =
      DecodeResponse(EncodeResponse(EventList{.events = {event}, .gone = 0, .last_serial = 1}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<EventList>(*read).events[0].text, "a?[2Jb c?");
}

TEST(AdminCodec, NoMessage_SaysSo) {
  EXPECT_EQ(DecodeRequest("").failure().code, ErrorCode::kInvalid);
  EXPECT_EQ(DecodeRequest({}).failure().code, ErrorCode::kInvalid);
  EXPECT_EQ(DecodeResponse({}).failure().code, ErrorCode::kInternal);
  EXPECT_EQ(DecodeRequest("\xff\xff").failure().code, ErrorCode::kInvalid);
  EXPECT_EQ(DecodeRequest(std::string(kRequestBytesMax + 1, 'x')).failure().code,
            ErrorCode::kInvalid);
  EXPECT_EQ(DecodeResponse("GET / HTTP/1.1").failure().code, ErrorCode::kInternal);
}

TEST(AdminCodec, TooLongResponse_BecomesAFailure) {
  EventList list;
  Event event;
  event.text.assign(1 << 20, 'x');
  list.events.assign(17, event);
  const Reply<Response> read = DecodeResponse(EncodeResponse(list));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<Failure>(*read).code, ErrorCode::kInternal);
}

// Any bytes: no crash (the sanitizers watch); what is taken can be sent again.
TEST(AdminCodec, AnyBytes_RefusedOrCarried) {
  ProtoFile file;
  std::vector<std::string> good;
  for (const auto& message : FullOf(&file, "Request", 0)) {
    good.push_back(message->SerializeAsString());
  }
  for (const auto& message : FullOf(&file, "Response", 0)) {
    good.push_back(message->SerializeAsString());
  }
  Prng prng(7);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good[prng.Below(good.size())];
    for (uint64_t i = prng.Below(4); i > 0 && !bytes.empty(); --i) {
      bytes[prng.Below(bytes.size())] = static_cast<char>(prng.Next());
    }
    if (prng.Chance(0.2)) bytes.resize(prng.Below(bytes.size() + 1));
    const Reply<Request> request = DecodeRequest(bytes);
    if (request.ok()) {
      const Reply<Request> again = DecodeRequest(EncodeRequest(*request));
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(*again, *request);
      ++taken;
    }
    const Reply<Response> response = DecodeResponse(bytes);
    if (response.ok()) {
      const Reply<Response> again = DecodeResponse(EncodeResponse(*response));
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(*again, *response);
      ++taken;
    }
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace railhop::admin
