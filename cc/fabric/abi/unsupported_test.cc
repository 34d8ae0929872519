#include <cerrno>
#include <cstring>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

TEST(Operations, OfAContext_AreAllThere) {
  const ContextPtr context = Open("soft0");
  const verbs_context* const verbs = verbs_get_ctx(context.get());
  ASSERT_NE(verbs, nullptr);
  EXPECT_EQ(verbs->sz, sizeof(verbs_context));
  // Every word of the table is a function, but for what is no operation.
  const auto* const words = reinterpret_cast<void* const*>(verbs);
  for (size_t i = 0; i * sizeof(void*) < offsetof(verbs_context, _ABI_placeholder3); ++i) {
    const size_t offset = i * sizeof(void*);
    if (offset == offsetof(verbs_context, priv)) continue;
    if (offset == offsetof(verbs_context, ABI_placeholder1)) continue;
    if (offset == offsetof(verbs_context, ABI_placeholder2)) continue;
    EXPECT_NE(words[i], nullptr) << "at " << offset;
  }
  const auto* const ops = reinterpret_cast<void* const*>(&context->ops);
  for (size_t i = 0; i < sizeof(context->ops) / sizeof(void*); ++i) {
    EXPECT_NE(ops[i], nullptr) << "operation " << i;
  }
}

TEST(Unsupported, Calls_FailWithEopnotsupp) {
  Loopback loop;
  ibv_srq_init_attr srq = {};
  EXPECT_EQ(ibv_create_srq(loop.pd.get(), &srq), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_ah_attr ah = {};
  errno = 0;
  EXPECT_EQ(ibv_create_ah(loop.pd.get(), &ah), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(loop.pd.get(), IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_xrcd_init_attr xrcd = {};
  EXPECT_EQ(ibv_open_xrcd(loop.context.get(), &xrcd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_td_init_attr td = {};
  EXPECT_EQ(ibv_alloc_td(loop.context.get(), &td), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_alloc_dm_attr dm = {};
  EXPECT_EQ(ibv_alloc_dm(loop.context.get(), &dm), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_alloc_null_mr(loop.pd.get()), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_gid gid = {};
  EXPECT_EQ(ibv_attach_mcast(loop.qp.get(), &gid, 0), EOPNOTSUPP);
  ibv_modify_cq_attr moderation = {};
  EXPECT_EQ(ibv_modify_cq(loop.cq.get(), &moderation), EOPNOTSUPP);
  EXPECT_EQ(ibv_import_device(3), nullptr);
}

// Programs built with newer headers read request functions behind those that this library has.
TEST(ExtendedQueuePair, BehindItsRequests_IsNull) {
  Loopback loop;
  ibv_qp_init_attr_ex attr = QpInitAttrEx(loop.pd.get(), loop.cq.get(), IBV_QP_EX_WITH_SEND);
  const QpPtr qp(ibv_create_qp_ex(loop.context.get(), &attr));
  ASSERT_NE(qp, nullptr);
  const auto* const end = reinterpret_cast<const char*>(qp.get()) + sizeof(ibv_qp_ex);
  for (int i = 0; i < 7; ++i) {
    void* word;
    std::memcpy(&word, end + i * sizeof(void*), sizeof(word));
    EXPECT_EQ(word, nullptr) << i;
  }
}

}  // namespace
}  // namespace railhop::fabric::abi
