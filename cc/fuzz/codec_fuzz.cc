// Messages of the control channel: bytes into messages and back, and messages into bytes and back.
//
// First byte even: the rest are the bytes of a batch. Odd: a message of the kind that the second
// byte says, with lists as long as the third says, its fields from the rest.
#include <type_traits>
#include <vector>

#include "cc/control/codec.h"
#include "cc/control/testing/message_fields.h"
#include "cc/fuzz/input.h"

namespace railhop::fuzz {
namespace {

using control::DecodeBatch;
using control::EncodeMessage;
using engine::Message;

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string_view View(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

void CheckBatch(std::string_view bytes) {
  const absl::StatusOr<std::vector<Message>> messages = DecodeBatch(Bytes(bytes));
  if (!messages.ok()) {
    RequireReadable(View(messages.status()));
    Require(View(messages.status()).starts_with("control message"),
            "an error says what it is about", View(messages.status()));
    return;
  }
  Require(messages->size() <= bytes.size() / 2, "a message takes two bytes at least");
  std::string all;
  for (const Message& message : *messages) {
    const absl::StatusOr<std::string> encoded = EncodeMessage(message);
    Require(encoded.ok(), "what was read can be written", View(encoded.status()));
    all += *encoded;
  }
  if (all.size() > control::kBatchBytesMax) return;
  const absl::StatusOr<std::vector<Message>> again = DecodeBatch(Bytes(all));
  Require(again.ok(), "what was written can be read", View(again.status()));
  Require(*again == *messages, "what is read, written and read is the same");
}

// Small numbers are likely, so that most of a message is in range.
template <typename T>
T Leaf(Input* input) {
  const uint8_t byte = input->Byte();
  if (byte == 0xff) return input->Number<T>();
  if (byte == 0xfe) return static_cast<T>(~T{0});
  return static_cast<T>(byte);
}

Message MessageFrom(Input* input) {
  std::vector<Message> kinds;
  control::testing::AppendEveryKind(&kinds);
  Message message = kinds[input->Byte() % kinds.size()];
  control::testing::Walk walk(input->Byte() % 6);
  walk.Over(&message, [input](auto& leaf, size_t) {
    using T = std::remove_reference_t<decltype(leaf)>;
    if constexpr (std::is_same_v<T, std::string>) {
      leaf = input->Text(input->Byte());
    } else if constexpr (std::is_same_v<T, bool>) {
      leaf = (input->Byte() & 1) != 0;
    } else if constexpr (std::is_enum_v<T>) {
      leaf = static_cast<T>(Leaf<std::underlying_type_t<T>>(input));
    } else {
      leaf = Leaf<T>(input);
    }
  });
  return message;
}

// What is left of texts on the other side. Names are shorter; they are cut at that.
void MakePrintable(Message* message) {
  const bool has_names = std::holds_alternative<engine::Ports>(*message);
  const bool has_both = std::holds_alternative<engine::Answer>(*message);
  const bool has_devices = has_both || std::holds_alternative<engine::Offer>(*message);
  size_t names_left = has_names ? std::get<engine::Ports>(*message).ports.size() : 0;
  if (has_devices) {
    names_left = has_both ? std::get<engine::Answer>(*message).devices.size()
                          : std::get<engine::Offer>(*message).devices.size();
  }
  control::testing::Walk walk(0);
  walk.Over(message, [&names_left](auto& leaf, size_t) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(leaf)>, std::string>) {
      const bool is_name = names_left > 0;
      if (is_name) --names_left;
      leaf = leaf.substr(0, is_name ? control::kNameCharactersMax : control::kTextCharactersMax);
      for (char& c : leaf) c = c >= 0x20 && c < 0x7f ? c : '?';
    }
  });
}

void CheckMessage(Input* input) {
  Message message = MessageFrom(input);
  const absl::StatusOr<std::string> encoded = EncodeMessage(message);
  if (!encoded.ok()) {
    RequireReadable(View(encoded.status()));
    Require(View(encoded.status()).find(control::MessageName(message)) != std::string_view::npos,
            "an error names the kind of message", View(encoded.status()));
    return;
  }
  const absl::StatusOr<std::vector<Message>> read = DecodeBatch(Bytes(*encoded));
  Require(read.ok() && read->size() == 1, "what was written can be read", View(read.status()));
  MakePrintable(&message);
  Require(read->front() == message, "what is written and read is the same",
          control::MessageName(message));
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  railhop::fuzz::Input input(data, size);
  if (input.Byte() % 2 == 0) {
    railhop::fuzz::CheckBatch(input.rest());
  } else {
    railhop::fuzz::CheckMessage(&input);
  }
  return 0;
}
