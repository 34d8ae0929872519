#include "cc/runtime/registration_cache.h"

#include <cerrno>
#include <memory>
#include <vector>

#include "cc/base/prng.h"
#include "cc/verbs/context.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

int registered = 0;   // regions that exist
int calls = 0;        // of reg_mr
int dereg_error = 0;  // what dereg_mr returns
int refused = 0;      // errno of reg_mr, 0 = works
unsigned last_access = 0;

std::unique_ptr<verbs::Context> MakeContext() {
  auto table = std::make_shared<verbs::Table>();
  table->get_device_name = [](ibv_device*) -> const char* { return "fake0"; };
  table->get_device_guid = [](ibv_device*) -> __be64 { return 1; };
  table->open_device = [](ibv_device*) { return new ibv_context(); };
  table->close_device = [](ibv_context* context) {
    delete context;
    return 0;
  };
  table->alloc_pd = [](ibv_context*) { return new ibv_pd(); };
  table->dealloc_pd = [](ibv_pd* pd) {
    delete pd;
    return 0;
  };
  table->reg_mr = [](ibv_pd*, void* addr, size_t length, int access) -> ibv_mr* {
    ++calls;
    last_access = static_cast<unsigned>(access);
    if (refused != 0) {
      errno = refused;
      return nullptr;
    }
    ++registered;
    auto* mr = new ibv_mr();
    mr->addr = addr;
    mr->length = length;
    mr->lkey = mr->rkey = static_cast<uint32_t>(calls);
    return mr;
  };
  table->reg_mr_iova2 = [](ibv_pd*, void*, size_t, uint64_t, unsigned access) -> ibv_mr* {
    last_access = access;
    ++registered;
    return new ibv_mr();
  };
  table->reg_dmabuf_mr = [](ibv_pd*, uint64_t offset, size_t length, uint64_t iova, int,
                            int) -> ibv_mr* {
    ++registered;
    auto* mr = new ibv_mr();
    mr->addr = reinterpret_cast<void*>(iova);
    mr->length = length;
    mr->lkey = static_cast<uint32_t>(offset);
    return mr;
  };
  table->dereg_mr = [](ibv_mr* mr) {
    if (dereg_error != 0) return dereg_error;
    --registered;
    delete mr;
    return 0;
  };
  return verbs::Context::Open(table, nullptr).value();
}

class RegistrationCacheTest : public testing::Test {
 protected:
  RegistrationCacheTest() : context_(MakeContext()) {
    registered = calls = dereg_error = refused = 0;
  }
  static void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

  std::unique_ptr<verbs::Context> context_;
};

TEST_F(RegistrationCacheTest, SamePages_OneRegistration) {
  RegistrationCache cache(context_.get(), false);
  Registration* const a = cache.Acquire(At(0x10010), 100).value();
  Registration* const b = cache.Acquire(At(0x10f00), 0x100).value();
  EXPECT_EQ(a, b);
  EXPECT_EQ(a->begin, 0x10000u);
  EXPECT_EQ(a->end, 0x11000u);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(cache.Release(a).ok());
  EXPECT_EQ(registered, 1);
  EXPECT_TRUE(cache.Release(b).ok());
  EXPECT_EQ(registered, 0);
  EXPECT_EQ(cache.size(), 0u);
}

TEST_F(RegistrationCacheTest, Inside_SharedAcross_Not) {
  RegistrationCache cache(context_.get(), false);
  Registration* const whole = cache.Acquire(At(0x10000), 0x10000).value();
  EXPECT_EQ(cache.Acquire(At(0x14000), 0x1000).value(), whole);
  EXPECT_NE(cache.Acquire(At(0x1f000), 0x2000).value(), whole);
  EXPECT_NE(cache.Acquire(At(0xf000), 0x2000).value(), whole);
  EXPECT_EQ(cache.size(), 3u);
}

// A small registration that begins later must not hide a large one that began before.
TEST_F(RegistrationCacheTest, Overlapping_CoveringOneFound) {
  RegistrationCache cache(context_.get(), false);
  Registration* const whole = cache.Acquire(At(0x10000), 0x10000).value();
  Registration* const across = cache.Acquire(At(0x1f000), 0x2000).value();
  EXPECT_NE(across, whole);
  EXPECT_EQ(cache.Acquire(At(0x1f000), 0x1000).value()->end, across->end);
  EXPECT_EQ(cache.Acquire(At(0x18000), 0x8000).value(), whole);
}

TEST_F(RegistrationCacheTest, AnyUse_LikeAModel) {
  RegistrationCache cache(context_.get(), false);
  Prng prng(4);
  std::vector<Registration*> held;
  for (int i = 0; i < 5000; ++i) {
    if (held.empty() || prng.Chance(0.55)) {
      const uintptr_t begin = 0x100000 + prng.Below(64) * 0x800;
      const size_t size = 1 + prng.Below(0x8000);
      Registration* const got = cache.Acquire(At(begin), size).value();
      EXPECT_LE(got->begin, begin);
      EXPECT_GE(got->end, begin + size);
      EXPECT_NE(got->region, nullptr);
      held.push_back(got);
    } else {
      const size_t which = prng.Below(held.size());
      ASSERT_TRUE(cache.Release(held[which]).ok());
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    }
    ASSERT_EQ(static_cast<size_t>(registered), cache.size());
    ASSERT_LE(cache.size(), held.size());
  }
  for (Registration* one : held) ASSERT_TRUE(cache.Release(one).ok());
  EXPECT_EQ(registered, 0);
}

TEST_F(RegistrationCacheTest, EmptyOrWrapping_Refused) {
  RegistrationCache cache(context_.get(), false);
  EXPECT_FALSE(cache.Acquire(At(0x1000), 0).ok());
  EXPECT_FALSE(cache.Acquire(At(~uintptr_t{0} - 10), 100).ok());
  EXPECT_FALSE(cache.Acquire(At(~uintptr_t{0} - 10), 5).ok());
}

TEST_F(RegistrationCacheTest, Refused_SaysWhyKeepsNothing) {
  RegistrationCache cache(context_.get(), false);
  refused = EFAULT;
  const absl::Status status = cache.Acquire(At(0x1000), 10).status();
  EXPECT_NE(std::string(status.message()).find("Bad address"), std::string::npos) << status;
  EXPECT_EQ(cache.size(), 0u);
}

TEST_F(RegistrationCacheTest, DeregisterRefused_StaysAndMayBeRepeated) {
  RegistrationCache cache(context_.get(), false);
  Registration* const one = cache.Acquire(At(0x1000), 10).value();
  dereg_error = EBUSY;
  EXPECT_FALSE(cache.Release(one).ok());
  EXPECT_EQ(cache.size(), 1u);
  dereg_error = 0;
  EXPECT_TRUE(cache.Release(one).ok());
  EXPECT_EQ(cache.size(), 0u);
}

TEST_F(RegistrationCacheTest, RelaxedOrdering_FlagOnlyThen) {
  RegistrationCache strict(context_.get(), false);
  strict.Acquire(At(0x1000), 10).value();
  EXPECT_EQ(last_access & IBV_ACCESS_RELAXED_ORDERING, 0u);
  RegistrationCache relaxed(context_.get(), true);
  relaxed.Acquire(At(0x1000), 10).value();
  EXPECT_NE(last_access & IBV_ACCESS_RELAXED_ORDERING, 0u);
}

TEST_F(RegistrationCacheTest, DmaBuf_OwnEntriesAndOffsets) {
  RegistrationCache cache(context_.get(), false);
  Registration* const host = cache.Acquire(At(0x10000), 0x2000).value();
  Registration* const dmabuf = cache.AcquireDmaBuf(At(0x10000), 0x2000, 0x4000, 5).value();
  EXPECT_NE(host, dmabuf);
  EXPECT_EQ(dmabuf->region->local_key(), 0x4000u);  // the fake puts the offset there
  EXPECT_EQ(cache.AcquireDmaBuf(At(0x11000), 0x1000, 0x5000, 5).value(), dmabuf);
  // Not at a page's beginning: rounded down with its offset.
  Registration* const inside = cache.AcquireDmaBuf(At(0x20100), 0x100, 0x4100, 5).value();
  EXPECT_EQ(inside->begin, 0x20000u);
  EXPECT_EQ(inside->region->local_key(), 0x4000u);
  // Nothing is before the DMA-BUF's beginning.
  Registration* const first = cache.AcquireDmaBuf(At(0x30100), 0x100, 0, 5).value();
  EXPECT_EQ(first->begin, 0x30100u);
  EXPECT_EQ(first->region->local_key(), 0u);
}

}  // namespace
}  // namespace railhop::runtime
