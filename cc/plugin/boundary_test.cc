#include "cc/plugin/boundary.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/log.h"
#include "cc/plugin/fake_transport.h"

namespace railhop::plugin {
namespace {

std::vector<std::string> logged;

void Log(int level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
  char text[2000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logged.push_back(std::to_string(level) + " " + text);
}

// The calls with what NCCL may and may not pass. Connections of the fake are made once.
class BoundaryTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetFake();
    logged.clear();
    ASSERT_EQ(InitCommunicator(&context_, 5, Log), nccl::kSuccess);
    ASSERT_EQ(Listen(context_, 0, handle_, &listen_), nccl::kSuccess);
    ASSERT_EQ(Connect(context_, -1, 0, handle_, &send_), nccl::kSuccess);
    ASSERT_EQ(Accept(listen_, &recv_), nccl::kSuccess);
    ASSERT_EQ(RegMr(send_, buffer_, sizeof buffer_, nccl::kPtrHost, &memory_), nccl::kSuccess);
  }
  void TearDown() override {
    TheFake().status = absl::OkStatus();
    TheFake().throws = false;
    EXPECT_EQ(CloseSend(send_), nccl::kSuccess);
    EXPECT_EQ(CloseRecv(recv_), nccl::kSuccess);
    EXPECT_EQ(CloseListen(listen_), nccl::kSuccess);
    if (context_ != nullptr) {
      EXPECT_EQ(Finalize(context_), nccl::kSuccess);
    }
    SetLogSink({});
  }

  // With *request as NCCL may leave it: a wild pointer, or the hint.
  Result Send(void** request) { return ISend(send_, buffer_, 8, 3, memory_, nullptr, request); }
  Result Receive(void** request) {
    void* data[] = {buffer_};
    size_t sizes[] = {8};
    int tags[] = {3};
    void* memories[] = {memory_};
    return IRecv(recv_, 1, data, sizes, tags, memories, nullptr, request);
  }

  void* context_ = nullptr;
  char handle_[nccl::kHandleBytes] = {};
  char buffer_[64] = {};
  void* listen_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  void* memory_ = nullptr;
};

struct StatusCase {
  absl::Status status;
  Result result;
};

TEST(ToResult, EveryStatus_HasItsCode) {
  const StatusCase cases[] = {
      {absl::OkStatus(), nccl::kSuccess},
      {absl::InvalidArgumentError("x"), nccl::kInternalError},
      {absl::FailedPreconditionError("x"), nccl::kInvalidUsage},
      {absl::UnavailableError("x"), nccl::kRemoteError},
      {absl::InternalError("x"), nccl::kSystemError},
      {absl::NotFoundError("x"), nccl::kSystemError},
      {absl::UnimplementedError("x"), nccl::kSystemError},
      {absl::ResourceExhaustedError("x"), nccl::kSystemError},
  };
  for (const StatusCase& c : cases) EXPECT_EQ(ToResult(c.status), c.result) << c.status;
  EXPECT_EQ(ToResult(datapath::Outcome::kOk), nccl::kSuccess);
  EXPECT_EQ(ToResult(datapath::Outcome::kMisuse), nccl::kInternalError);
  EXPECT_EQ(ToResult(datapath::Outcome::kSystem), nccl::kSystemError);
  EXPECT_EQ(ToResult(datapath::Outcome::kRemote), nccl::kRemoteError);
  EXPECT_EQ(ToResult(datapath::Outcome::kBadSetting), nccl::kInvalidUsage);
}

TEST_F(BoundaryTest, RequestNotNow_IsWrittenNull) {
  TheFake().not_yet = true;
  for (const uintptr_t before : {uintptr_t{1}, uintptr_t{0xdead}}) {
    void* request = reinterpret_cast<void*>(before);
    EXPECT_EQ(Send(&request), nccl::kSuccess);
    EXPECT_EQ(request, nullptr);
    request = reinterpret_cast<void*>(before);
    EXPECT_EQ(Receive(&request), nccl::kSuccess);
    EXPECT_EQ(request, nullptr);
  }
}

TEST_F(BoundaryTest, OptionalCompletionHint_IsIgnored) {
  void* request = reinterpret_cast<void*>(nccl::kOptionalReceiveCompletion);
  EXPECT_EQ(Receive(&request), nccl::kSuccess);
  EXPECT_NE(request, nullptr);
  EXPECT_NE(request, reinterpret_cast<void*>(nccl::kOptionalReceiveCompletion));
  EXPECT_EQ(TheFake().last, "irecv");
}

TEST_F(BoundaryTest, FailedRequest_IsWrittenNull) {
  TheFake().outcome = runtime::Outcome::kRemote;
  void* request = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(Send(&request), nccl::kRemoteError);
  EXPECT_EQ(request, nullptr);
  request = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(Receive(&request), nccl::kRemoteError);
  EXPECT_EQ(request, nullptr);
}

TEST_F(BoundaryTest, Exception_BecomesACode) {
  TheFake().throws = true;
  void* out = reinterpret_cast<void*>(0xdead);
  int number = 0;
  NamedProperties properties;
  EXPECT_EQ(Send(&out), nccl::kSystemError);
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(Receive(&out), nccl::kSystemError);
  EXPECT_EQ(Devices(&number), nccl::kSystemError);
  EXPECT_EQ(GetProperties(0, &properties), nccl::kSystemError);
  EXPECT_EQ(Listen(context_, 0, handle_, &out), nccl::kSystemError);
  EXPECT_EQ(Connect(context_, -1, 0, handle_, &out), nccl::kSystemError);
  EXPECT_EQ(Accept(listen_, &out), nccl::kSystemError);
  EXPECT_EQ(RegMr(send_, buffer_, 8, nccl::kPtrHost, &out), nccl::kSystemError);
  EXPECT_EQ(DeregMr(send_, memory_), nccl::kSystemError);
  EXPECT_EQ(plugin::Test(memory_, &number, nullptr), nccl::kSystemError);
}

TEST_F(BoundaryTest, NullWhereNothingIsAsked_IsMisuseAndNoCrash) {
  void* out = nullptr;
  void* data[] = {buffer_};
  size_t sizes[] = {8};
  int int_sizes[] = {8};
  int tags[] = {0};
  void* memories[] = {memory_};
  const Result results[] = {
      Devices(nullptr),
      Listen(context_, 0, nullptr, &out),
      Listen(context_, 0, handle_, nullptr),
      Connect(context_, -1, 0, nullptr, &out),
      Connect(context_, -1, 0, handle_, nullptr),
      Accept(nullptr, &out),
      Accept(listen_, nullptr),
      RegMr(nullptr, buffer_, 8, nccl::kPtrHost, &out),
      RegMr(send_, nullptr, 8, nccl::kPtrHost, &out),
      RegMr(send_, buffer_, 0, nccl::kPtrHost, &out),
      RegMr(send_, buffer_, 8, nccl::kPtrHost, nullptr),
      RegMrDmaBuf(send_, buffer_, 8, nccl::kPtrHost, 0, -1, &out),
      RegMrDmaBuf(nullptr, buffer_, 8, nccl::kPtrHost, 0, 3, &out),
      DeregMr(nullptr, memory_),
      ISend(nullptr, buffer_, 8, 0, memory_, nullptr, &out),
      ISend(send_, buffer_, 8, 0, memory_, nullptr, nullptr),
      IRecv(nullptr, 1, data, sizes, tags, memories, nullptr, &out),
      IRecv(recv_, 1, data, sizes, tags, memories, nullptr, nullptr),
      IRecv(recv_, 1, nullptr, sizes, tags, memories, nullptr, &out),
      IRecv(recv_, 1, data, nullptr, tags, memories, nullptr, &out),
      IRecv(recv_, 1, data, sizes, nullptr, memories, nullptr, &out),
      IRecv(recv_, 1, data, sizes, tags, nullptr, nullptr, &out),
      IRecv(recv_, 0, data, sizes, tags, memories, nullptr, &out),
      IRecv(recv_, -1, data, sizes, tags, memories, nullptr, &out),
      IRecv(recv_, 9, data, sizes, tags, memories, nullptr, &out),
      IFlush(nullptr, 1, data, int_sizes, memories, &out),
      IFlush(recv_, 1, data, int_sizes, memories, nullptr),
      IFlush(recv_, 1, nullptr, int_sizes, memories, &out),
      IFlush(recv_, 9, data, int_sizes, memories, &out),
      plugin::Test(nullptr, int_sizes, nullptr),
      plugin::Test(memory_, nullptr, nullptr),
      InitCommunicator(nullptr, 0, Log),
      Finalize(nullptr),
      Finalize(buffer_),
  };
  for (size_t i = 0; i < std::size(results); ++i) {
    EXPECT_EQ(results[i], nccl::kInternalError) << i;
  }
}

TEST_F(BoundaryTest, NullThatNcclMayPass_IsNoError) {
  EXPECT_EQ(CloseSend(nullptr), nccl::kSuccess);
  EXPECT_EQ(CloseRecv(nullptr), nccl::kSuccess);
  EXPECT_EQ(CloseListen(nullptr), nccl::kSuccess);
  EXPECT_EQ(DeregMr(send_, nullptr), nccl::kSuccess);
  void* request = nullptr;
  EXPECT_EQ(ISend(send_, nullptr, 0, 0, nullptr, nullptr, &request), nccl::kSuccess);
  int done = 0;
  EXPECT_EQ(plugin::Test(request, &done, nullptr), nccl::kSuccess);
  EXPECT_EQ(done, 1);
}

TEST_F(BoundaryTest, CloseOfTheOtherKind_IsMisuse) {
  EXPECT_EQ(CloseSend(recv_), nccl::kInternalError);
  EXPECT_EQ(CloseRecv(send_), nccl::kInternalError);
}

TEST_F(BoundaryTest, NotYetConnected_IsSuccessWithNull) {
  TheFake().not_yet = true;
  void* comm = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(Connect(context_, -1, 0, handle_, &comm), nccl::kSuccess);
  EXPECT_EQ(comm, nullptr);
  comm = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(Accept(listen_, &comm), nccl::kSuccess);
  EXPECT_EQ(comm, nullptr);
}

TEST_F(BoundaryTest, FailedCall_SaysWhyOnce) {
  TheFake().status = absl::UnavailableError("node-17 does not answer");
  void* comm = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(Connect(context_, -1, 0, handle_, &comm), nccl::kRemoteError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(logged, std::vector<std::string>{"2 NET/Railhop : connect: node-17 does not answer"});
}

TEST_F(BoundaryTest, FuseRefused_IsInvalidUsageForEveryReason) {
  int dev = -1;
  const int devices[] = {0, 1};
  for (const absl::Status& status :
       {absl::InvalidArgumentError("x"), absl::FailedPreconditionError("y")}) {
    TheFake().status = status;
    EXPECT_EQ(MakeVirtualDevice(&dev, devices), nccl::kInvalidUsage);
    EXPECT_EQ(dev, -1);
  }
}

TEST_F(BoundaryTest, TrafficClass_OfTheContextOrOfTheCall) {
  void* comm = nullptr;
  EXPECT_EQ(Connect(context_, 9, 2, handle_, &comm), nccl::kSuccess);
  EXPECT_EQ(TheFake().traffic_class, 5);
  EXPECT_EQ(TheFake().dev, 2);
  EXPECT_EQ(CloseSend(comm), nccl::kSuccess);
  EXPECT_EQ(Connect(nullptr, 9, 2, handle_, &comm), nccl::kSuccess);
  EXPECT_EQ(TheFake().traffic_class, 9);
  EXPECT_EQ(CloseSend(comm), nccl::kSuccess);
}

TEST_F(BoundaryTest, Properties_StringsStayGood) {
  TheFake().properties.name = "mlx5_0";
  TheFake().properties.pci_path = "/sys/x";
  NamedProperties first;
  ASSERT_EQ(GetProperties(0, &first), nccl::kSuccess);
  TheFake().properties.name = "mlx5_1";
  TheFake().properties.pci_path = "";
  NamedProperties second;
  ASSERT_EQ(GetProperties(1, &second), nccl::kSuccess);
  EXPECT_STREQ(first.name, "mlx5_0");
  EXPECT_STREQ(first.pci_path, "/sys/x");
  EXPECT_STREQ(second.name, "mlx5_1");
  EXPECT_EQ(second.pci_path, nullptr);
}

TEST_F(BoundaryTest, FinalizeOfEachContext_StopsWithTheLast) {
  void* second = nullptr;
  ASSERT_EQ(InitCommunicator(&second, 0, Log), nccl::kSuccess);
  EXPECT_EQ(Finalize(second), nccl::kSuccess);
  EXPECT_EQ(Finalize(second), nccl::kInternalError) << "twice";
  EXPECT_TRUE(TheFake().running());
  EXPECT_EQ(Finalize(context_), nccl::kSuccess);
  context_ = nullptr;
  EXPECT_FALSE(TheFake().running());
  EXPECT_FALSE(TheFake().kept_devices);
  int count = 0;
  EXPECT_EQ(Devices(&count), nccl::kSystemError) << "nothing runs";
}

TEST(Boundary, CannotServe_SaysSoOnceWithTheReason) {
  ResetFake();
  logged.clear();
  TheFake().start_status = absl::NotFoundError("libibverbs.so.1: no such file");
  void* context = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(InitCommunicator(&context, 0, Log), nccl::kSystemError);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(InitCommunicator(&context, 0, Log), nccl::kSystemError);
  EXPECT_EQ(
      logged,
      std::vector<std::string>{
          "2 NET/Railhop : cannot serve: libibverbs.so.1: no such file. If NCCL goes on, this "
          "job runs on another transport, UNPROTECTED against link failures (NCCL_NET=Railhop "
          "makes it stop instead)"});
  SetLogSink({});
}

TEST(Boundary, LoggerNull_IsNoCrash) {
  ResetFake();
  void* context = nullptr;
  EXPECT_EQ(InitCommunicator(&context, 0, nullptr), nccl::kSuccess);
  EXPECT_EQ(Finalize(context), nccl::kSuccess);
}

}  // namespace
}  // namespace railhop::plugin
