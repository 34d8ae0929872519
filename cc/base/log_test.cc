#include "cc/base/log.h"

#include <cerrno>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace railhop {
namespace {

using ::testing::ElementsAre;

// Collects lines as long as it lives.
class Capture {
 public:
  Capture() { SetLogSink({&Capture::Write, this}); }
  ~Capture() {
    SetLogSink({});
    SetLogThreshold(LogSeverity::kInfo);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  static void Write(void* context, LogSeverity severity, const char* /*file*/, int /*line*/,
                    const char* line_text) {
    static_cast<Capture*>(context)->lines_.push_back(std::string(LogSeverityName(severity)) + " " +
                                                     line_text);
    errno = EIO;
  }

  std::vector<std::string> lines_;
};

TEST(Log, Lines_ReachTheSink) {
  Capture capture;
  RAILHOP_LOG(kWarning, "port %s:%d is down", "mlx5_0", 1);
  RAILHOP_LOG(kInfo, "up");
  EXPECT_THAT(capture.lines(), ElementsAre("WARN port mlx5_0:1 is down", "INFO up"));
}

TEST(Log, BelowTheThreshold_ArgumentsAreNotEvaluated) {
  Capture capture;
  int evaluated = 0;
  RAILHOP_LOG(kTrace, "%d", ++evaluated);
  EXPECT_EQ(evaluated, 0);
  SetLogThreshold(LogSeverity::kTrace);
  RAILHOP_LOG(kTrace, "%d", ++evaluated);
  EXPECT_THAT(capture.lines(), ElementsAre("TRACE 1"));
  SetLogThreshold(LogSeverity::kWarning);
  RAILHOP_LOG(kInfo, "%d", ++evaluated);
  EXPECT_EQ(evaluated, 1);
}

TEST(Log, LongLine_IsCut) {
  Capture capture;
  const std::string text(5000, 'x');
  RAILHOP_LOG(kInfo, "%s", text.c_str());
  ASSERT_EQ(capture.lines().size(), 1u);
  EXPECT_EQ(capture.lines()[0], "INFO " + std::string(1023, 'x'));
}

TEST(Log, Errno_IsKept) {
  Capture capture;
  errno = EAGAIN;
  RAILHOP_LOG(kInfo, "x");
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Log, NoSink_WritesToStandardError) {
  testing::internal::CaptureStderr();
  RAILHOP_LOG(kWarning, "to nobody");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "railhop WARN to nobody\n");
  { Capture capture; }
  testing::internal::CaptureStderr();
  RAILHOP_LOG(kInfo, "again");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "railhop INFO again\n");
}

}  // namespace
}  // namespace railhop
