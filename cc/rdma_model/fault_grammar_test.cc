#include "cc/rdma_model/fault_grammar.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

#include "cc/base/prng.h"
#include "cc/rdma_model/fault_words.h"

namespace railhop::rdma {
namespace {

FaultCommand Parsed(const std::string& text) {
  FaultCommand command;
  std::string error;
  EXPECT_TRUE(ParseFault(text, &command, &error)) << text << ": " << error;
  return command;
}

std::string ErrorOf(const std::string& text) {
  FaultCommand command;
  std::string error;
  EXPECT_FALSE(ParseFault(text, &command, &error)) << text;
  return error;
}

// ---- the way there and back: the second is what FormatFault makes of the first

struct RoundTrip {
  const char* words;
  const char* formatted;  // nullptr: the same
};

class FaultRoundTrip : public testing::TestWithParam<RoundTrip> {};

TEST_P(FaultRoundTrip, ParsedAndFormatted_SameCommand) {
  const std::string words = std::string("soft0 ") + GetParam().words;
  const FaultCommand command = Parsed(words);
  const std::string formatted = FormatFault(command);
  const char* expected = GetParam().formatted != nullptr ? GetParam().formatted : GetParam().words;
  EXPECT_EQ(formatted, std::string("soft0 ") + expected);
  EXPECT_EQ(Parsed(formatted), command);
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultRoundTrip,
    testing::Values(
        RoundTrip{"down", nullptr}, RoundTrip{"up", nullptr},
        RoundTrip{"down after 5000 messages", nullptr},
        RoundTrip{"down event early 300ms for 5s", nullptr},
        RoundTrip{"down for 5s event lost", "down event lost for 5s"},
        RoundTrip{"up event late 2s at 1min", nullptr}, RoundTrip{"up event doubled", nullptr},
        RoundTrip{"blackhole", nullptr}, RoundTrip{"blackhole tx", nullptr},
        RoundTrip{"blackhole both all", "blackhole"},
        RoundTrip{"blackhole rx acks for 2s", nullptr},
        RoundTrip{"blackhole data rx", "blackhole rx data"}, RoundTrip{"loss 1%", nullptr},
        RoundTrip{"loss 0.01% seed 7", nullptr}, RoundTrip{"loss 0.0000001%", nullptr},
        RoundTrip{"loss 33.3333333%", nullptr}, RoundTrip{"loss 100%", nullptr},
        RoundTrip{"loss packet 17 qp 3", "loss packet 17 of qp 3"},
        RoundTrip{"loss next", "loss count 1"}, RoundTrip{"loss next 3 acks", "loss acks count 3"},
        RoundTrip{"delay 1ms jitter 200us 10%", nullptr}, RoundTrip{"delay 1500us", "delay 1.5ms"},
        RoundTrip{"duplicate 0.1% data", "duplicate data 0.1%"},
        RoundTrip{"reorder by 3 0.5%", nullptr}, RoundTrip{"reorder by 1", "reorder"},
        RoundTrip{"hold packet 17 of qp 3", nullptr}, RoundTrip{"hold next", "hold count 1"},
        RoundTrip{"cap 500Mb/s", nullptr}, RoundTrip{"cap 1GB/s tx", "cap 8Gb/s tx"},
        RoundTrip{"unwritten rx after 100 messages", nullptr},
        RoundTrip{"unwritten 1% qp 3", "unwritten 1% of qp 3"},
        RoundTrip{"complete status 12 after 100 messages", nullptr},
        RoundTrip{"complete status retry_exc_err vendor 129", "complete status 12 vendor 129"},
        RoundTrip{"wedge qp 3 after 1000 messages", "wedge after 1000 messages of qp 3"},
        RoundTrip{"kill rx after 100 messages received", nullptr},
        RoundTrip{"kill after 64KiB", nullptr},
        RoundTrip{"kill after 64KiB bytes sent", "kill after 64KiB sent"},
        RoundTrip{"kill after 100 bytes", nullptr}, RoundTrip{"kill after 17 packets", nullptr},
        RoundTrip{"fail reg_mr ENOMEM after 10", nullptr},
        RoundTrip{"fail reg_mr 12 after 10 calls", "fail reg_mr ENOMEM after 10"},
        RoundTrip{"fail modify_qp ETIMEDOUT count 1", nullptr},
        RoundTrip{"fail modify_qp rtr ETIMEDOUT 50%", nullptr},
        RoundTrip{"fail create_qp 4000", nullptr},
        RoundTrip{"hang destroy_qp 60s", "hang destroy_qp 1min"}, RoundTrip{"events lost", nullptr},
        RoundTrip{"events late 2s for 10s", nullptr},
        RoundTrip{"events port_active doubled count 2", nullptr},
        RoundTrip{"flap every 400ms for 20s", nullptr},
        RoundTrip{"flap every 400ms down 100ms count 3 event lost", nullptr},
        RoundTrip{"speed 100Gb/s", nullptr}, RoundTrip{"mtu 1024 for 1s", nullptr},
        RoundTrip{"lid 17", nullptr}, RoundTrip{"smlid 2 event lost", nullptr},
        RoundTrip{"pkey 1 0x8001", "pkey 1 32769"},
        RoundTrip{"gid set 3 10.0.0.7", "gid set 3 10.0.0.7 v2"},
        RoundTrip{"gid set 3 ::ffff:10.0.0.7 v1", "gid set 3 10.0.0.7 v1"},
        RoundTrip{"gid set 0 fe80::1 ib", nullptr}, RoundTrip{"gid remove 3 for 1.5s", nullptr},
        RoundTrip{"gid move 3 8", nullptr},
        RoundTrip{"gid linklocal for 1500ms", "gid linklocal for 1.5s"},
        RoundTrip{"event port_err", nullptr},
        RoundTrip{"event qp_fatal qp 3", "event qp_fatal of qp 3"},
        RoundTrip{"remove after 100 messages for 5s", nullptr}, RoundTrip{"return at 10s", nullptr},
        RoundTrip{"quirk no_uc", nullptr}, RoundTrip{"quirk hang_verbs off", nullptr},
        RoundTrip{"release", nullptr}, RoundTrip{"clear", nullptr},
        RoundTrip{"clear gid_linklocal", nullptr}, RoundTrip{"clear gid set", "clear gid_set"},
        RoundTrip{"list", nullptr}));

TEST(FaultGrammar, Values_LandInTheirFields) {
  const FaultSpec spec = Parsed("soft0 fail modify_qp rtr ETIMEDOUT after 4 count 2").spec;
  EXPECT_EQ(spec.kind, FaultKind::kFailVerb);
  EXPECT_EQ(spec.index, static_cast<uint32_t>(VerbCall::kModifyQp));
  EXPECT_EQ(spec.index2, static_cast<uint32_t>(QpState::kRtr) + 1);
  EXPECT_EQ(spec.value, static_cast<uint64_t>(ETIMEDOUT));
  EXPECT_EQ(spec.after, 4u);
  EXPECT_EQ(spec.after_unit, TriggerUnit::kCalls);
  const FaultSpec loss = Parsed("soft0 loss 0.01% rx acks of qp 7 after 2KiB at 1ms").spec;
  EXPECT_EQ(loss.rate_ppb, 100'000u);
  EXPECT_EQ(loss.direction, FaultDirection::kRx);
  EXPECT_EQ(loss.packets, PacketClass::kAcks);
}

TEST(FaultGrammar, Target_HostDevicePort) {
  const FaultCommand plain = Parsed("soft0 down");
  EXPECT_EQ(plain.host, "");
  EXPECT_EQ(plain.device, "soft0");
  EXPECT_EQ(plain.port, 0u);
  const FaultCommand full = Parsed("  host-1.a/mlx5_0:2\tdown ");
  EXPECT_EQ(full.host, "host-1.a");
  EXPECT_EQ(full.device, "mlx5_0");
  EXPECT_EQ(full.port, 2u);
  EXPECT_EQ(FormatFault(full), "host-1.a/mlx5_0:2 down");
}

// ---- errors name the word, its place and what is allowed

struct BadWords {
  const char* words;
  const char* error;  // its beginning
};

class FaultErrors : public testing::TestWithParam<BadWords> {};

TEST_P(FaultErrors, Parsed_NameWordAndChoices) {
  const std::string error = ErrorOf(GetParam().words);
  EXPECT_EQ(error.substr(0, std::string(GetParam().error).size()), GetParam().error) << error;
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultErrors,
    testing::Values(
        BadWords{"", "no words: expected a device"},
        BadWords{"soft0", "after word 1 'soft0': expected one of blackhole, loss, delay"},
        BadWords{"so!ft0 down", "word 1 'so!ft0': expected a device"},
        BadWords{"/soft0 down", "word 1 '/soft0': expected a device"},
        BadWords{"soft0:0 down", "word 1 'soft0:0': expected a port"},
        BadWords{"soft0:x down", "word 1 'soft0:x': expected a port"},
        BadWords{"soft0 dwon", "word 2 'dwon': expected one of blackhole"},
        BadWords{"soft0 down tx",
                 "word 3 'tx': expected nothing more or one of [of] qp N, after N"},
        BadWords{"soft0 release now", "word 3 'now': expected nothing more"},
        BadWords{"soft0 down after", "after word 3 'after': expected how many"},
        BadWords{"soft0 down after 0 messages", "word 4 '0': expected how many"},
        BadWords{"soft0 down after 5",
                 "after word 4 '5': expected one of messages, packets, bytes"},
        BadWords{"soft0 down after 5 apples", "word 5 'apples': expected one of messages"},
        BadWords{"soft0 down for 5", "word 4 '5': expected a time"},
        BadWords{"soft0 down for 0s", "word 4 '0s': expected a time above 0"},
        BadWords{"soft0 down for 1s for 2s", "word 5 'for': expected it only once"},
        BadWords{"soft0 down event", "after word 3 'event': expected one of lost, early"},
        BadWords{"soft0 flap every 1s event early 1ms",
                 "word 6 'early': expected one of lost, late"},
        BadWords{"soft0 flap 1s", "word 3 '1s': expected every"},
        BadWords{"soft0 flap every 1s down 2s",
                 "word 6 '2s': expected a time down that is shorter"},
        BadWords{"soft0 loss 0%", "word 3 '0%': expected a share"},
        BadWords{"soft0 loss 101%", "word 3 '101%': expected a share"},
        BadWords{"soft0 loss 1.%", "word 3 '1.%': expected a share"},
        BadWords{"soft0 loss 0.00000001%", "word 3 '0.00000001%': expected a share"},
        BadWords{"soft0 loss 1% packet 4", "after word 5 '4': expected either"},
        BadWords{"soft0 loss tx rx", "word 4 'rx': expected it only once"},
        BadWords{"soft0 hold packet 0", "word 4 '0': expected a packet's number"},
        BadWords{"soft0 hold packet 17 of 3", "word 6 '3': expected qp"},
        BadWords{"soft0 delay", "after word 2 'delay': expected a time"},
        BadWords{"soft0 cap 500", "word 3 '500': expected a rate"},
        BadWords{"soft0 complete 12", "word 3 '12': expected status"},
        BadWords{"soft0 complete status 22",
                 "word 4 '22': expected a number from 1 to 21 or one of loc"},
        BadWords{"soft0 fail reg_mrs ENOMEM", "word 3 'reg_mrs': expected one of any, open_device"},
        BadWords{"soft0 fail reg_mr rtr ENOMEM",
                 "word 4 'rtr': expected a number from 1 to 4095 or"},
        BadWords{"soft0 gid", "after word 2 'gid': expected one of set, remove, move, linklocal"},
        BadWords{"soft0 gid put 3", "word 3 'put': expected one of set, remove, move, linklocal"},
        BadWords{"soft0 gid set 3 10.0.0", "word 5 '10.0.0': expected an IPv6 or IPv4 address"},
        BadWords{"soft0 gid set 300 fe80::1",
                 "word 4 '300': expected an index, a number from 0 to 255"},
        BadWords{"soft0 mtu 1000", "word 3 '1000': expected one of 256"},
        BadWords{"soft0 lid 0", "word 3 '0': expected a unicast LID"},
        BadWords{"soft0 event qp_fatal", "after word 3 'qp_fatal': expected qp N"},
        BadWords{"soft0 event port_er", "word 3 'port_er': expected one of cq_err"},
        BadWords{"soft0 quirk uc", "word 3 'uc': expected one of no_uc"},
        BadWords{"soft0 clear everything",
                 "word 3 'everything': expected nothing or one of blackhole, loss"},
        BadWords{"soft0 kill after 5 messages sent of qp 1", "word 3 'after': expected no 'sent'"},
        BadWords{"soft0 loss \x01\xff", "word 3 '\?\?': expected nothing more or"}));

TEST(FaultGrammar, EveryWord_HasARowWithAWorkingExample) {
  std::set<FaultKind> kinds;
  std::set<std::string> names;
  for (const FaultKindRow& row : FaultKindRows()) {
    EXPECT_TRUE(kinds.insert(row.kind).second) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    const FaultCommand command = Parsed(std::string("soft0 ") + row.example);
    EXPECT_EQ(command.spec.kind, row.kind) << row.example;
    EXPECT_EQ(Parsed(FormatFault(command)), command) << row.example;
  }
}

// Words in any order: what is taken comes back the same, what is not has an error that names a
// word.
TEST(FaultGrammar, WordSoup_NeverCrashesAndRoundTrips) {
  std::vector<std::string> words = {"soft0",    "h/soft0:2",
                                    "of",       "qp",
                                    "3",        "0",
                                    "17",       "1%",
                                    "0.5%",     "100ms",
                                    "1s",       "64KiB",
                                    "5Gb/s",    "status",
                                    "vendor",   "jitter",
                                    "by",       "every",
                                    "10.0.0.1", "fe80::2",
                                    "v1",       "ib",
                                    "calls",    "off",
                                    "\xff\xfe", "%",
                                    ".%",       "99999999999999999999",
                                    "0x",       "0xffff",
                                    "-1",       "next",
                                    "packet",   "seed",
                                    "count",    "after",
                                    "at",       "for",
                                    "event",    "lost",
                                    "late",     "early",
                                    "doubled",  "tx",
                                    "rx",       "both",
                                    "data",     "acks",
                                    "messages", "bytes",
                                    "packets",  "sent",
                                    "received", std::string(300, 'x')};
  std::vector<std::string> first_words;
  for (const FaultKindRow& row : FaultKindRows()) first_words.push_back(row.words);
  for (const auto rows :
       {VerbNames(), ErrnoNames(), StatusNames(), EventNames(), QuirkRows(), QpStateNames()}) {
    for (const NamedValue& row : rows) words.emplace_back(row.name);
  }
  Prng prng(2024);
  int taken = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string text = "soft0 " + first_words[prng.Below(first_words.size())];
    for (uint64_t n = prng.Below(6); n > 0; --n) text += " " + words[prng.Below(words.size())];
    FaultCommand command;
    std::string error;
    if (!ParseFault(text, &command, &error)) {
      ASSERT_NE(error.find("word "), std::string::npos) << text << ": " << error;
      continue;
    }
    ++taken;
    ASSERT_EQ(Parsed(FormatFault(command)), command) << text;
  }
  EXPECT_GT(taken, 600);
}

TEST(FaultGrammar, RandomBytes_NeverCrash) {
  Prng prng(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (uint64_t n = prng.Below(40); n > 0; --n) text += static_cast<char>(prng.Below(256));
    FaultCommand command;
    std::string error;
    if (!ParseFault(text, &command, &error)) {
      EXPECT_FALSE(error.empty());
    }
  }
}

TEST(FaultGrammar, AnySpec_FormatsWithoutCrash) {
  Prng prng(11);
  for (int i = 0; i < 20'000; ++i) {
    FaultSpec spec;
    auto* bytes = reinterpret_cast<unsigned char*>(&spec);
    for (size_t b = 0; b < sizeof(spec); ++b)
      bytes[b] = static_cast<unsigned char>(prng.Below(256));
    spec.kind = static_cast<FaultKind>(prng.Below(static_cast<uint64_t>(FaultKind::kCount) + 3));
    EXPECT_FALSE(FormatFaultSpec(spec).empty());
  }
}

TEST(FaultReference, Page_IsWhatTheTablesSay) {
  std::ifstream file("docs/reference/faults.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), FaultReferenceMarkdown())
      << "run: bazel run //cc/rdma_model:fault_reference > docs/reference/faults.md";
}

TEST(FaultGrammar, SizeThatNoNumberMayBe_IsRefused) {
  const std::string error = ErrorOf("soft0 down after 1000001GB");
  EXPECT_NE(error.find("word 4 '1000001GB': expected a size of at most 256TiB"), std::string::npos)
      << error;
  const FaultCommand most = Parsed("soft0 down after 256TiB");
  EXPECT_EQ(Parsed(FormatFault(most)), most);
}

TEST(FaultGrammar, ZeroInAnAddress_IsRefused) {
  using namespace std::string_literals;  // NOLINT(google-build-using-namespace)
  ErrorOf("soft0 gid set 1 ::1\0x v1"s);
  ErrorOf("soft0 gid set 1 10.0.0.1\0x v1"s);
}

TEST(FaultNames, KnownAndUnknown) {
  EXPECT_EQ(FaultKindName(FaultKind::kGidLinkLocal), "gid_linklocal");
  EXPECT_EQ(VerbCallName(VerbCall::kRegMr), "reg_mr");
  EXPECT_EQ(LogKindName(LogKind::kDrop), "drop");
  EXPECT_EQ(LogKindName(static_cast<LogKind>(999)), "unknown");
  EXPECT_EQ(AsyncEventName(AsyncEvent::kPortErr), "port_err");
  EXPECT_EQ(QuirkNames(kQuirkNoUc | kQuirkHangVerbs), "no_uc,hang_verbs");
  EXPECT_EQ(QuirkNames(0), "");
}

}  // namespace
}  // namespace railhop::rdma
