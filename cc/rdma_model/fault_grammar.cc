#include "cc/rdma_model/fault_grammar.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "cc/base/units.h"
#include "cc/rdma_model/fault_words.h"

namespace railhop::rdma {
namespace {

constexpr uint32_t kMaxIndex = 255;  // of GID and P_Key tables
constexpr uint64_t kMaxNumber = 1ull << 48;
constexpr uint32_t kPpbPerPercent = kPpb / 100;

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t at = 0;
  while (true) {
    at = text.find_first_not_of(" \t\r\n", at);
    if (at == std::string_view::npos) return words;
    const size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
}

// What a bad word looks like in a message: whole, printable, not endless.
std::string Quoted(std::string_view word) {
  std::string text = "'";
  for (const char c : word.substr(0, 60)) text += (c >= ' ' && c < 0x7f) ? c : '?';
  return text + (word.size() > 60 ? "...'" : "'");
}

std::optional<uint64_t> Number(std::string_view word, uint64_t max) {
  uint64_t value = 0;
  const bool hex = word.starts_with("0x");
  if (hex) word.remove_prefix(2);
  const auto [end, code] =
      std::from_chars(word.data(), word.data() + word.size(), value, hex ? 16 : 10);
  if (code != std::errc() || end != word.data() + word.size() || value > max) return std::nullopt;
  return value;
}

// "0.01%" in parts per billion; at least one and at most all.
std::optional<uint32_t> Percentage(std::string_view word) {
  if (!word.ends_with('%')) return std::nullopt;
  word.remove_suffix(1);
  const size_t dot = word.find('.');
  const auto whole = Number(word.substr(0, dot), 100);
  if (!whole || word.starts_with("0x")) return std::nullopt;
  uint64_t ppb = *whole * kPpbPerPercent;
  if (dot != std::string_view::npos) {
    uint64_t digit_value = kPpbPerPercent / 10;
    if (dot + 1 == word.size()) return std::nullopt;
    for (const char c : word.substr(dot + 1)) {
      if (c < '0' || c > '9' || (digit_value == 0 && c != '0')) return std::nullopt;
      ppb += static_cast<uint64_t>(c - '0') * digit_value;
      digit_value /= 10;
    }
  }
  if (ppb == 0 || ppb > kPpb) return std::nullopt;
  return static_cast<uint32_t>(ppb);
}

std::optional<Gid> ParseGid(std::string_view word) {
  const std::string text(word);
  if (text.find('\0') != std::string::npos) return std::nullopt;  // C's functions stop there
  Gid gid;
  in_addr v4;
  if (inet_pton(AF_INET6, text.c_str(), gid.raw) == 1) return gid;
  if (inet_pton(AF_INET, text.c_str(), &v4) != 1) return std::nullopt;
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &v4, sizeof(v4));
  return gid;
}

// Reads words one by one; the first failure is kept and ends it.
class Parser {
 public:
  Parser(std::vector<std::string_view> words, std::string* error)
      : words_(std::move(words)), error_(error) {}

  bool ParseTarget(FaultCommand* command);
  bool ParseSpec(FaultSpec* spec);

 private:
  bool Done() const { return at_ == words_.size(); }
  std::string_view Peek() const { return Done() ? std::string_view() : words_[at_]; }
  bool Take(std::string_view word) {
    if (Done() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  // Says what is wrong with the word that comes next.
  bool Fail(std::string_view expected) {
    *error_ = Done()
                  ? (at_ == 0 ? "no words"
                              : "after word " + std::to_string(at_) + " " + Quoted(words_[at_ - 1]))
                  : "word " + std::to_string(at_ + 1) + " " + Quoted(words_[at_]);
    *error_ += ": expected ";
    *error_ += expected;
    return false;
  }

  bool TakeNumber(uint64_t min, uint64_t max, const char* what, uint64_t* value);
  bool TakeTime(uint64_t* value);
  bool TakeBandwidth(uint64_t* value);
  bool TakeName(std::span<const NamedValue> rows, uint64_t* value);
  bool TakeNameOrNumber(std::span<const NamedValue> rows, uint64_t min, uint64_t max,
                        uint64_t* value);
  bool TakeGid(Gid* gid);
  bool TakeKind(FaultSpec* spec);
  bool TakeClearedKind(FaultSpec* spec);
  bool TakeParameters(FaultSpec* spec);
  bool TakeAddressParameters(FaultSpec* spec);
  bool TakeVerb(FaultSpec* spec);
  bool TakeEventMode(bool early_allowed, FaultSpec* spec);
  bool TakeOption(FaultSpec* spec);
  bool TakeAfter(FaultSpec* spec);
  bool Once(FaultOption option);
  std::string AllowedOptions() const;
  bool CheckWhole(const FaultSpec& spec);

  std::vector<std::string_view> words_;
  std::string* error_;
  size_t at_ = 0;
  const FaultKindRow* row_ = nullptr;
  uint32_t given_ = 0;  // options seen
  size_t after_at_ = 0;
};

bool Parser::TakeNumber(uint64_t min, uint64_t max, const char* what, uint64_t* value) {
  const auto number = Number(Peek(), max);
  if (!number || *number < min) {
    return Fail(std::string(what) + ", a number from " + std::to_string(min) + " to " +
                std::to_string(max));
  }
  *value = *number;
  ++at_;
  return true;
}

bool Parser::TakeTime(uint64_t* value) {
  const auto time = ParseDurationNs(Peek());
  if (!time.ok() || *time == 0) return Fail("a time above 0 such as 100ms (ns, us, ms, s, min, h)");
  *value = static_cast<uint64_t>(*time);
  ++at_;
  return true;
}

bool Parser::TakeBandwidth(uint64_t* value) {
  const auto rate = ParseRateBps(Peek());
  if (!rate.ok() || *rate == 0)
    return Fail("a rate above 0 such as 500Mb/s (b/s, kb/s, Mb/s, Gb/s, MB/s, GB/s)");
  *value = static_cast<uint64_t>(*rate);
  ++at_;
  return true;
}

bool Parser::TakeName(std::span<const NamedValue> rows, uint64_t* value) {
  const NamedValue* row = FindName(rows, Peek());
  if (row == nullptr) return Fail("one of " + JoinNames(rows));
  *value = row->value;
  ++at_;
  return true;
}

bool Parser::TakeNameOrNumber(std::span<const NamedValue> rows, uint64_t min, uint64_t max,
                              uint64_t* value) {
  if (const auto number = Number(Peek(), max); number && *number >= min) {
    *value = *number;
    ++at_;
    return true;
  }
  const NamedValue* row = FindName(rows, Peek());
  if (row == nullptr) {
    return Fail("a number from " + std::to_string(min) + " to " + std::to_string(max) +
                " or one of " + JoinNames(rows));
  }
  *value = row->value;
  ++at_;
  return true;
}

bool Parser::TakeGid(Gid* gid) {
  const auto parsed = ParseGid(Peek());
  if (!parsed) return Fail("an IPv6 or IPv4 address");
  *gid = *parsed;
  ++at_;
  return true;
}

bool Parser::ParseTarget(FaultCommand* command) {
  constexpr std::string_view kShape = "a device: DEVICE, DEVICE:PORT or HOST/DEVICE:PORT";
  constexpr std::string_view kNameChars =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  std::string_view word = Peek();
  if (const size_t slash = word.find('/'); slash != std::string_view::npos) {
    command->host = word.substr(0, slash);
    if (command->host.empty() || command->host.find_first_not_of(kNameChars) != std::string::npos)
      return Fail(kShape);
    word.remove_prefix(slash + 1);
  }
  if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
    const auto port = Number(word.substr(colon + 1), 255);
    if (!port || *port == 0) return Fail("a port from 1 to 255 behind the colon");
    command->port = static_cast<uint32_t>(*port);
    word = word.substr(0, colon);
  }
  if (word.empty() || word.find_first_not_of(kNameChars) != std::string_view::npos)
    return Fail(kShape);
  command->device = word;
  ++at_;
  return true;
}

bool Parser::TakeKind(FaultSpec* spec) {
  std::string first_words;
  std::string second_words;
  for (const FaultKindRow& row : FaultKindRows()) {
    const std::string_view words = row.words;
    const size_t space = words.find(' ');
    const std::string_view first = words.substr(0, space);
    if (first == Peek()) {
      if (space == std::string_view::npos ||
          (at_ + 1 < words_.size() && words_[at_ + 1] == words.substr(space + 1))) {
        row_ = &row;
        at_ += space == std::string_view::npos ? 1 : 2;
        spec->kind = row.kind;
        return true;
      }
      second_words += (second_words.empty() ? "" : ", ") + std::string(words.substr(space + 1));
    }
    if (space == std::string_view::npos || !first_words.ends_with(first)) {
      first_words += (first_words.empty() ? "" : ", ") + std::string(first);
    }
  }
  if (second_words.empty()) return Fail("one of " + first_words);
  ++at_;
  return Fail("one of " + second_words);
}

// What `clear` is about: a kind by its name, gid_set, or as it is written in a command, gid set.
bool Parser::TakeClearedKind(FaultSpec* spec) {
  std::string names;
  for (const FaultKindRow& row : FaultKindRows()) {
    if (row.kind == FaultKind::kClear || row.kind == FaultKind::kList) continue;
    const std::string_view words = row.words;
    const size_t space = words.find(' ');
    const bool two_words = space != std::string_view::npos && at_ + 1 < words_.size() &&
                           words_[at_] == words.substr(0, space) &&
                           words_[at_ + 1] == words.substr(space + 1);
    if (two_words || row.name == Peek()) {
      spec->index = static_cast<uint32_t>(row.kind);
      at_ += two_words ? 2 : 1;
      return true;
    }
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return Fail("nothing or one of " + names);
}

bool Parser::TakeVerb(FaultSpec* spec) {
  uint64_t call = 0;
  if (!TakeName(VerbNames(), &call)) return false;
  spec->index = static_cast<uint32_t>(call);
  if (call != static_cast<uint64_t>(VerbCall::kModifyQp)) return true;
  if (const NamedValue* state = FindName(QpStateNames(), Peek())) {
    spec->index2 = static_cast<uint32_t>(state->value) + 1;
    ++at_;
  }
  return true;
}

bool Parser::TakeEventMode(bool early_allowed, FaultSpec* spec) {
  if (Take("lost")) {
    spec->event_mode = EventMode::kLost;
    return true;
  }
  if (Take("doubled")) {
    spec->event_mode = EventMode::kDoubled;
    return true;
  }
  if (Take("late")) {
    spec->event_mode = EventMode::kLate;
    return TakeTime(&spec->event_ns);
  }
  if (early_allowed && Take("early")) {
    spec->event_mode = EventMode::kEarly;
    return TakeTime(&spec->event_ns);
  }
  return Fail(early_allowed ? "one of lost, early TIME, late TIME, doubled"
                            : "one of lost, late TIME, doubled");
}

bool Parser::TakeAddressParameters(FaultSpec* spec) {
  uint64_t index = 0;
  if (!TakeNumber(0, kMaxIndex, "an index", &index)) return false;
  spec->index = static_cast<uint32_t>(index);
  switch (spec->kind) {
    case FaultKind::kPkey:
      return TakeNumber(0, 0xffff, "a P_Key", &spec->value);
    case FaultKind::kGidMove:
      if (!TakeNumber(0, kMaxIndex, "the new index", &index)) return false;
      spec->index2 = static_cast<uint32_t>(index);
      return true;
    case FaultKind::kGidSet: {
      if (!TakeGid(&spec->gid)) return false;
      const NamedValue* type = FindName(GidTypeNames(), Peek());
      spec->index2 = static_cast<uint32_t>(
          type != nullptr ? type->value : static_cast<uint64_t>(GidType::kRoceV2));
      if (type != nullptr) ++at_;
      return true;
    }
    default:
      return true;
  }
}

bool Parser::TakeParameters(FaultSpec* spec) {
  uint64_t value = 0;
  switch (spec->kind) {
    case FaultKind::kDelay:
      return TakeTime(&spec->value) && (!Take("jitter") || TakeTime(&spec->value2));
    case FaultKind::kReorder:
      spec->value = 1;
      return !Take("by") || TakeNumber(1, 1 << 20, "how many packets", &spec->value);
    case FaultKind::kCap:
    case FaultKind::kSpeed:
      return TakeBandwidth(&spec->value);
    case FaultKind::kComplete:
      if (!Take("status")) return Fail("status");
      return TakeNameOrNumber(StatusNames(), 1, 21, &spec->value) &&
             (!Take("vendor") || TakeNumber(0, 0xffffffff, "a vendor error", &spec->value2));
    case FaultKind::kFailVerb:
      return TakeVerb(spec) && TakeNameOrNumber(ErrnoNames(), 1, 4095, &spec->value);
    case FaultKind::kHangVerb:
      return TakeVerb(spec) && TakeTime(&spec->value);
    case FaultKind::kEvents:
      if (const NamedValue* event = FindName(EventNames(), Peek())) {
        spec->index = static_cast<uint32_t>(event->value) + 1;
        ++at_;
      }
      return TakeEventMode(false, spec);
    case FaultKind::kFlap:
      if (!Take("every")) return Fail("every");
      if (!TakeTime(&spec->value) || (Take("down") && !TakeTime(&spec->value2))) return false;
      if (spec->value2 < spec->value) return true;
      --at_;
      return Fail("a time down that is shorter than the period");
    case FaultKind::kMtu:
      if (!TakeNumber(256, 4096, "an MTU: 256, 512, 1024, 2048, 4096", &spec->value)) return false;
      if ((spec->value & (spec->value - 1)) == 0) return true;
      --at_;
      return Fail("one of 256, 512, 1024, 2048, 4096");
    case FaultKind::kLid:
    case FaultKind::kSmLid:
      return TakeNumber(1, 0xbfff, "a unicast LID", &spec->value);
    case FaultKind::kPkey:
    case FaultKind::kGidSet:
    case FaultKind::kGidRemove:
    case FaultKind::kGidMove:
      return TakeAddressParameters(spec);
    case FaultKind::kEvent:
      if (!TakeName(EventNames(), &value)) return false;
      spec->index = static_cast<uint32_t>(value);
      return true;
    case FaultKind::kQuirk:
      if (!TakeName(QuirkRows(), &spec->value)) return false;
      if (Take("off")) spec->value2 = 1;
      return true;
    case FaultKind::kClear:
      return Done() || TakeClearedKind(spec);
    default:
      return true;
  }
}

bool Parser::Once(FaultOption option) {
  if ((given_ & option) != 0) return Fail("it only once");
  given_ |= option;
  ++at_;
  return true;
}

std::string Parser::AllowedOptions() const {
  std::string text;
  for (const FaultOptionRow& row : FaultOptionRows()) {
    if ((row_->options & row.option) == 0 || (given_ & row.option) != 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(row.words);
  }
  return text.empty() ? "nothing more" : "nothing more or one of " + text;
}

bool Parser::TakeAfter(FaultSpec* spec) {
  after_at_ = at_ - 1;
  if ((row_->options & kOptCalls) != 0) {
    if (!TakeNumber(1, kMaxNumber, "how many calls", &spec->after)) return false;
    spec->after_unit = TriggerUnit::kCalls;
    Take("calls");
    return true;
  }
  if (const auto size = ParseSizeBytes(Peek());
      size.ok() && *size > 0 && !Number(Peek(), UINT64_MAX)) {
    if (static_cast<uint64_t>(*size) > kMaxNumber) return Fail("a size of at most 256TiB");
    spec->after = static_cast<uint64_t>(*size);
    spec->after_unit = TriggerUnit::kBytes;
    ++at_;
    Take("bytes");
  } else {
    if (!TakeNumber(1, kMaxNumber, "how many, or a size such as 64KiB", &spec->after)) return false;
    if (Take("messages")) {
      spec->after_unit = TriggerUnit::kMessages;
    } else if (Take("packets")) {
      spec->after_unit = TriggerUnit::kPackets;
    } else if (Take("bytes")) {
      spec->after_unit = TriggerUnit::kBytes;
    } else {
      return Fail("one of messages, packets, bytes");
    }
  }
  if (Take("sent"))
    spec->after_direction = FaultDirection::kTx;
  else if (Take("received"))
    spec->after_direction = FaultDirection::kRx;
  return true;
}

bool Parser::TakeOption(FaultSpec* spec) {
  const std::string_view word = Peek();
  const uint32_t allowed = row_->options;
  const auto is = [&](FaultOption option, std::string_view name) {
    return (allowed & option) != 0 && word == name;
  };
  uint64_t number = 0;
  if (is(kOptDirection, "tx") || is(kOptDirection, "rx") || is(kOptDirection, "both")) {
    spec->direction = word == "tx"   ? FaultDirection::kTx
                      : word == "rx" ? FaultDirection::kRx
                                     : FaultDirection::kBoth;
    return Once(kOptDirection);
  }
  if (is(kOptClass, "data") || is(kOptClass, "acks") || is(kOptClass, "all")) {
    spec->packets = word == "data"   ? PacketClass::kData
                    : word == "acks" ? PacketClass::kAcks
                                     : PacketClass::kAll;
    return Once(kOptClass);
  }
  if ((allowed & kOptRate) != 0 && word.ends_with('%')) {
    const auto rate = Percentage(word);
    if (!rate) return Fail("a share above 0% and up to 100%, in steps of 0.0000001%");
    spec->rate_ppb = *rate;
    return Once(kOptRate);
  }
  if (is(kOptPacket, "packet"))
    return Once(kOptPacket) && TakeNumber(1, kMaxNumber, "a packet's number", &spec->packet);
  if (is(kOptQp, "of") || is(kOptQp, "qp")) {
    if (!Once(kOptQp)) return false;
    if (word == "of" && !Take("qp")) return Fail("qp");
    if (!TakeNumber(0, 0xffffffff, "a queue pair's number", &number)) return false;
    spec->of_qp = 1;
    spec->qp = static_cast<uint32_t>(number);
    return true;
  }
  if (is(kOptAfter, "after")) return Once(kOptAfter) && TakeAfter(spec);
  if (is(kOptCalls, "after")) return Once(kOptCalls) && TakeAfter(spec);
  if (is(kOptAt, "at")) return Once(kOptAt) && TakeTime(&spec->at_ns);
  if (is(kOptFor, "for")) return Once(kOptFor) && TakeTime(&spec->for_ns);
  if (is(kOptCount, "count"))
    return Once(kOptCount) && TakeNumber(1, kMaxNumber, "a count", &spec->count);
  if (is(kOptCount, "next")) {
    if (!Once(kOptCount)) return false;
    spec->count = 1;
    return Number(Peek(), kMaxNumber) ? TakeNumber(1, kMaxNumber, "a count", &spec->count) : true;
  }
  if (is(kOptSeed, "seed"))
    return Once(kOptSeed) && TakeNumber(0, UINT64_MAX, "a seed", &spec->seed);
  if (is(kOptEvent, "event"))
    return Once(kOptEvent) && TakeEventMode(spec->kind != FaultKind::kFlap, spec);
  return Fail(AllowedOptions());
}

// Rules between options; the error names the word that began the second of them.
bool Parser::CheckWhole(const FaultSpec& spec) {
  if (spec.of_qp != 0 && spec.after_direction != FaultDirection::kBoth) {
    at_ = after_at_;
    return Fail("no 'sent' or 'received' with 'qp N', which counts what the queue pair sends");
  }
  if (spec.packet != 0 && spec.rate_ppb != 0) return Fail("either 'packet N' or a share, not both");
  const bool of_qp = spec.kind == FaultKind::kEvent &&
                     (spec.index <= static_cast<uint32_t>(AsyncEvent::kPathMigErr) ||
                      spec.index == static_cast<uint32_t>(AsyncEvent::kQpLastWqeReached));
  if (of_qp && spec.of_qp == 0) return Fail("qp N: which queue pair the event is about");
  return true;
}

bool Parser::ParseSpec(FaultSpec* spec) {
  *spec = FaultSpec();
  if (!TakeKind(spec) || !TakeParameters(spec)) return false;
  while (!Done()) {
    if (!TakeOption(spec)) return false;
  }
  return CheckWhole(*spec);
}

}  // namespace

bool ParseFault(std::string_view text, FaultCommand* command, std::string* error) {
  *command = FaultCommand();
  Parser parser(Words(text), error);
  return parser.ParseTarget(command) && parser.ParseSpec(&command->spec);
}

bool ParseFaultSpec(std::string_view text, FaultSpec* spec, std::string* error) {
  return Parser(Words(text), error).ParseSpec(spec);
}

}  // namespace railhop::rdma
