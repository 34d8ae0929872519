// Each table by its layout, on a transport that remembers: what every version converts.
#include "cc/plugin/tables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "cc/plugin/fake_transport.h"

namespace railhop::plugin {
namespace {

// One test body for all versions: what differs in the signatures, as functions over the table.
template <int kVersion, typename Net, typename Properties, Net* kTable>
struct Api {
  static constexpr int kApiVersion = kVersion;
  using Props = Properties;
  static const Net& table() { return *kTable; }

  static constexpr bool kHasContext = kVersion >= 11;
  static constexpr bool kWideSizes = kVersion >= 9;

  static nccl::Result Init(void** context, int traffic_class) {
    nccl::CommConfig config{traffic_class};
    if constexpr (kHasContext) {
      return table().init(context, 1, &config, nullptr, nullptr);
    } else if constexpr (kVersion == 10) {
      return table().init(nullptr, nullptr);
    } else {
      return table().init(nullptr);
    }
  }
  static nccl::Result Listen(void* context, int dev, void* handle, void** comm) {
    if constexpr (kHasContext)
      return table().listen(context, dev, handle, comm);
    else
      return table().listen(dev, handle, comm);
  }
  static nccl::Result Connect(void* context, int traffic_class, int dev, void* handle,
                              void** comm) {
    nccl::CommConfig config{traffic_class};
    if constexpr (kHasContext)
      return table().connect(context, dev, handle, comm, nullptr);
    else if constexpr (kVersion == 10)
      return table().connect(dev, &config, handle, comm, nullptr);
    else if constexpr (kVersion >= 8)
      return table().connect(dev, handle, comm, nullptr);
    else
      return table().connect(dev, handle, comm);
  }
  static nccl::Result Accept(void* listen, void** comm) {
    if constexpr (kVersion >= 8)
      return table().accept(listen, comm, nullptr);
    else
      return table().accept(listen, comm);
  }
  static nccl::Result ISend(void* comm, void* data, int64_t size, void* memory, void** request) {
    if constexpr (kVersion >= 10) {
      return table().isend(comm, data, static_cast<size_t>(size), 4, memory, nullptr, request);
    } else if constexpr (kVersion == 9) {
      return table().isend(comm, data, static_cast<size_t>(size), 4, memory, request);
    } else {
      return table().isend(comm, data, static_cast<int>(size), 4, memory, request);
    }
  }
  static nccl::Result IRecv(void* comm, int n, void** data, const int64_t* sizes, int* tags,
                            void** memories, void** request) {
    std::conditional_t<kWideSizes, size_t, int> own[16] = {};
    for (int i = 0; i < n && i < 16; ++i) own[i] = static_cast<decltype(own[0] + 0)>(sizes[i]);
    if constexpr (kVersion >= 10) {
      return table().irecv(comm, n, data, own, tags, memories, nullptr, request);
    } else {
      return table().irecv(comm, n, data, own, tags, memories, request);
    }
  }
};

using V6 = Api<6, nccl::NetV6, nccl::PropertiesV6, &ncclNetPlugin_v6>;
using V8 = Api<8, nccl::NetV8, nccl::PropertiesV8, &ncclNetPlugin_v8>;
using V9 = Api<9, nccl::NetV9, nccl::PropertiesV9, &ncclNetPlugin_v9>;
using V10 = Api<10, nccl::NetV10, nccl::PropertiesV10, &ncclNetPlugin_v10>;
using V11 = Api<11, nccl::NetV11, nccl::PropertiesV11, &ncclNetPlugin_v11>;
using V12 = Api<12, nccl::NetV12, nccl::PropertiesV12, &ncclNetPlugin_v12>;

template <typename T>
class TablesTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetFake();
    TheFake().properties = {.name = "mlx5_0",
                            .pci_path = "/sys/devices/pci/0000:17:00.0",
                            .guid = 0x1122334455667788,
                            .ptr_support = 5,
                            .reg_is_global = true,
                            .force_flush = true,
                            .speed_mbps = 400000,
                            .port = 3,
                            .latency_us = 1.5,
                            .max_comms = 77,
                            .max_recvs = 8,
                            .rail_id = 6,
                            .plane_id = 0x4003,
                            .fused = {0, 2, 4},
                            .max_p2p_bytes = uint64_t{1} << 40,
                            .max_coll_bytes = uint64_t{1} << 29,
                            .max_multi_request = 1};
    ASSERT_EQ(T::Init(&context_, 8), nccl::kSuccess);
    EXPECT_EQ(context_ != nullptr, T::kHasContext);
  }
  void TearDown() override {
    if constexpr (T::kHasContext) {
      EXPECT_EQ(T::table().finalize(context_), nccl::kSuccess);
    }
  }

  void* context_ = nullptr;
  char handle_[nccl::kHandleBytes] = {};
  char buffer_[64] = {};
};

using Versions = testing::Types<V6, V8, V9, V10, V11, V12>;
class VersionNames {
 public:
  template <typename T>
  static std::string GetName(int) {
    return "V" + std::to_string(T::kApiVersion);
  }
};
TYPED_TEST_SUITE(TablesTest, Versions, VersionNames);

TYPED_TEST(TablesTest, Name_IsRailhop) { EXPECT_STREQ(TypeParam::table().name, "Railhop"); }

TYPED_TEST(TablesTest, Properties_EveryFieldOfTheVersion) {
  typename TypeParam::Props p;
  std::memset(&p, 0xff, sizeof p);
  ASSERT_EQ(TypeParam::table().get_properties(2, &p), nccl::kSuccess);
  EXPECT_EQ(TheFake().dev, 2);
  EXPECT_STREQ(p.name, "mlx5_0");
  EXPECT_STREQ(p.pci_path, "/sys/devices/pci/0000:17:00.0");
  EXPECT_EQ(p.guid, 0x1122334455667788u);
  EXPECT_EQ(p.ptr_support, 5);
  EXPECT_EQ(p.speed_mbps, 400000);
  EXPECT_EQ(p.port, 3);
  EXPECT_EQ(p.latency_us, 1.5f);
  EXPECT_EQ(p.max_comms, 77);
  EXPECT_EQ(p.max_recvs, 8);
  if constexpr (TypeParam::kApiVersion >= 8) {
    EXPECT_EQ(p.reg_is_global, 1);
    EXPECT_EQ(p.net_device_type, 0);
    EXPECT_EQ(p.net_device_version, 0);
  }
  if constexpr (TypeParam::kApiVersion >= 9) {
    EXPECT_EQ(p.force_flush, 1);
    EXPECT_EQ(p.fused.count, 3);
    EXPECT_EQ(p.fused.devs[2], 4);
    EXPECT_EQ(p.max_p2p_bytes, size_t{1} << 40);
    EXPECT_EQ(p.max_coll_bytes, size_t{1} << 29);
  }
  if constexpr (TypeParam::kApiVersion >= 11) {
    EXPECT_EQ(p.max_multi_request, 1);
  }
  if constexpr (TypeParam::kApiVersion >= 12) {
    EXPECT_EQ(p.rail_id, 6);
    EXPECT_EQ(p.plane_id, 0x4003);
  }
  EXPECT_EQ(TypeParam::table().get_properties(0, nullptr), nccl::kInternalError);
}

TYPED_TEST(TablesTest, MessageFromInitToClose_ReachesTheTransport) {
  const auto& table = TypeParam::table();
  int count = 0;
  ASSERT_EQ(table.devices(&count), nccl::kSuccess);
  EXPECT_EQ(count, 1);
  void* listen = nullptr;
  void* send = nullptr;
  void* recv = nullptr;
  ASSERT_EQ(TypeParam::Listen(this->context_, 0, this->handle_, &listen), nccl::kSuccess);
  ASSERT_EQ(TypeParam::Connect(this->context_, 8, 0, this->handle_, &send), nccl::kSuccess);
  EXPECT_EQ(TheFake().traffic_class, TypeParam::kApiVersion >= 10 ? 8 : -1);
  ASSERT_EQ(TypeParam::Accept(listen, &recv), nccl::kSuccess);
  void* memory = nullptr;
  ASSERT_EQ(table.reg_mr(send, this->buffer_, 64, nccl::kPtrHost, &memory), nccl::kSuccess);
  EXPECT_EQ(TheFake().sizes[0], 64u);
  void* dma_buf = nullptr;
  ASSERT_EQ(table.reg_mr_dma_buf(recv, this->buffer_, 64, nccl::kPtrCuda, 4096, 9, &dma_buf),
            nccl::kSuccess);
  EXPECT_EQ(TheFake().offset, 4096u);
  EXPECT_EQ(TheFake().fd, 9);
  EXPECT_EQ(TheFake().type, nccl::kPtrCuda);

  void* request = nullptr;
  ASSERT_EQ(TypeParam::ISend(send, this->buffer_, 1 << 30, memory, &request), nccl::kSuccess);
  EXPECT_NE(request, nullptr);
  EXPECT_EQ(TheFake().sizes[0], size_t{1} << 30);
  EXPECT_EQ(TheFake().tags[0], 4);
  void* data[8];
  int64_t sizes[8];
  int tags[8];
  void* memories[8];
  for (int i = 0; i < 8; ++i) {
    data[i] = this->buffer_;
    sizes[i] = 100 + i;
    tags[i] = 200 + i;
    memories[i] = memory;
  }
  request = reinterpret_cast<void*>(nccl::kOptionalReceiveCompletion);
  ASSERT_EQ(TypeParam::IRecv(recv, 8, data, sizes, tags, memories, &request), nccl::kSuccess);
  EXPECT_EQ(TheFake().sizes, (std::vector<size_t>{100, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(TheFake().tags, (std::vector<int>{200, 201, 202, 203, 204, 205, 206, 207}));
  TheFake().test_sizes = {7, 8};
  int done = 0;
  int got[8] = {};
  ASSERT_EQ(table.test(request, &done, got), nccl::kSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(got[1], 8);
  int flush_sizes[] = {100};
  ASSERT_EQ(table.iflush(recv, 1, data, flush_sizes, memories, &request), nccl::kSuccess);
  EXPECT_EQ(TheFake().last, "iflush");
  ASSERT_EQ(table.dereg_mr(send, memory), nccl::kSuccess);
  ASSERT_EQ(table.close_send(send), nccl::kSuccess);
  ASSERT_EQ(table.close_recv(recv), nccl::kSuccess);
  ASSERT_EQ(table.close_listen(listen), nccl::kSuccess);
}

TYPED_TEST(TablesTest, GroupOutOfRange_IsMisuseWithNullRequest) {
  void* listen = nullptr;
  void* recv = nullptr;
  ASSERT_EQ(TypeParam::Listen(this->context_, 0, this->handle_, &listen), nccl::kSuccess);
  ASSERT_EQ(TypeParam::Accept(listen, &recv), nccl::kSuccess);
  void* data[16] = {};
  int64_t sizes[16] = {};
  int tags[16] = {};
  for (const int n : {-1, 0, 9, 16}) {
    void* request = reinterpret_cast<void*>(0xdead);
    EXPECT_EQ(TypeParam::IRecv(recv, n, data, sizes, tags, data, &request), nccl::kInternalError);
    EXPECT_EQ(request, nullptr);
  }
  EXPECT_EQ(TypeParam::table().close_recv(recv), nccl::kSuccess);
  EXPECT_EQ(TypeParam::table().close_listen(listen), nccl::kSuccess);
}

TYPED_TEST(TablesTest, OptionalSlots_AsTheVersionHasThem) {
  const auto& table = TypeParam::table();
  if constexpr (TypeParam::kApiVersion >= 8) {
    EXPECT_EQ(table.get_device_mr, nullptr);
    EXPECT_EQ(table.irecv_consumed, nullptr);
  }
  if constexpr (TypeParam::kApiVersion >= 9) {
    decltype(TypeParam::Props::fused) own = {3, {5, 6, 7}};
    int dev = -1;
    EXPECT_EQ(table.make_v_device(&dev, &own), nccl::kSuccess);
    EXPECT_EQ(dev, 7);
    EXPECT_EQ(TheFake().devices, (std::vector<int>{5, 6, 7}));
    own.count = static_cast<int>(std::size(own.devs)) + 1;
    EXPECT_EQ(table.make_v_device(&dev, &own), nccl::kInvalidUsage);
    own.count = -1;
    EXPECT_EQ(table.make_v_device(&dev, &own), nccl::kInvalidUsage);
    EXPECT_EQ(table.make_v_device(nullptr, &own), nccl::kInternalError);
    EXPECT_EQ(table.make_v_device(&dev, nullptr), nccl::kInternalError);
  }
  if constexpr (TypeParam::kApiVersion >= 11) {
    nccl::NetAttributes attributes = {};
    EXPECT_EQ(table.set_net_attr(this->context_, &attributes), nccl::kSuccess);
    EXPECT_EQ(table.set_net_attr(this->context_, nullptr), nccl::kSuccess);
  }
}

template <typename T>
class NarrowTablesTest : public TablesTest<T> {};
using NarrowVersions = testing::Types<V6, V8>;
TYPED_TEST_SUITE(NarrowTablesTest, NarrowVersions, VersionNames);

TYPED_TEST(NarrowTablesTest, NegativeSize_IsMisuse) {
  void* listen = nullptr;
  void* send = nullptr;
  void* recv = nullptr;
  ASSERT_EQ(TypeParam::Listen(this->context_, 0, this->handle_, &listen), nccl::kSuccess);
  ASSERT_EQ(TypeParam::Connect(this->context_, -1, 0, this->handle_, &send), nccl::kSuccess);
  ASSERT_EQ(TypeParam::Accept(listen, &recv), nccl::kSuccess);
  void* request = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(TypeParam::ISend(send, this->buffer_, -1, nullptr, &request), nccl::kInternalError);
  EXPECT_EQ(request, nullptr);
  void* data[] = {this->buffer_};
  const int64_t sizes[] = {-1};
  int tags[] = {0};
  request = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(TypeParam::IRecv(recv, 1, data, sizes, tags, data, &request), nccl::kInternalError);
  EXPECT_EQ(request, nullptr);
  if constexpr (TypeParam::kApiVersion == 6) {
    void* memory = reinterpret_cast<void*>(0xdead);
    EXPECT_EQ(TypeParam::table().reg_mr(send, this->buffer_, -1, nccl::kPtrHost, &memory),
              nccl::kInternalError);
    EXPECT_EQ(memory, nullptr);
  }
  EXPECT_EQ(TypeParam::table().close_send(send), nccl::kSuccess);
  EXPECT_EQ(TypeParam::table().close_recv(recv), nccl::kSuccess);
  EXPECT_EQ(TypeParam::table().close_listen(listen), nccl::kSuccess);
}

// Tables without finalize: the last close ends the threads, and the next call starts them anew.
TEST(LegacyLife, LastClose_StopsAndKeepsTheDevices) {
  ResetFake();
  ASSERT_EQ(ncclNetPlugin_v6.init(nullptr), nccl::kSuccess);
  ASSERT_TRUE(TheFake().running());
  char handle[nccl::kHandleBytes];
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(ncclNetPlugin_v6.listen(0, handle, &first), nccl::kSuccess);
  ASSERT_EQ(ncclNetPlugin_v6.listen(0, handle, &second), nccl::kSuccess);
  ASSERT_EQ(ncclNetPlugin_v6.close_listen(first), nccl::kSuccess);
  EXPECT_TRUE(TheFake().running());
  ASSERT_EQ(ncclNetPlugin_v6.close_listen(second), nccl::kSuccess);
  EXPECT_FALSE(TheFake().running());
  EXPECT_TRUE(TheFake().kept_devices);
  int count = 0;
  ASSERT_EQ(ncclNetPlugin_v6.devices(&count), nccl::kSuccess);
  EXPECT_TRUE(TheFake().running());
  EXPECT_EQ(ncclNetPlugin_v6.init(nullptr), nccl::kSuccess) << "again, as newer shims do";
  EXPECT_EQ(TheFake().starts - TheFake().stops, 1) << "one reference, however often";
}

}  // namespace
}  // namespace railhop::plugin
