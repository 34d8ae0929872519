#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

class MemoryTest : public testing::Test {
 protected:
  ibv_mr* Register(void* address, size_t length, unsigned int access) {
    errno = 0;
    return ibv_reg_mr_iova2(pd_.get(), address, length, reinterpret_cast<uint64_t>(address),
                            access);
  }

  ContextPtr context_ = Open("soft0");
  PdPtr pd_ = PdPtr(ibv_alloc_pd(context_.get()));
  char buffer_[4096];
};

TEST_F(MemoryTest, RegMr_GivesKeys) {
  const MrPtr one(Register(buffer_, sizeof(buffer_), IBV_ACCESS_LOCAL_WRITE));
  ASSERT_NE(one, nullptr);
  EXPECT_NE(one->lkey, 0u);
  EXPECT_EQ(one->addr, buffer_);
  EXPECT_EQ(one->length, sizeof(buffer_));
  const MrPtr two(Register(buffer_, sizeof(buffer_), 0));
  EXPECT_NE(one->lkey, two->lkey);
}

TEST_F(MemoryTest, RegMr_RemoteWriteWithoutLocal_FailsWithEinval) {
  EXPECT_EQ(Register(buffer_, 16, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Register(buffer_, 16, IBV_ACCESS_REMOTE_ATOMIC), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(MrPtr(Register(buffer_, 16, IBV_ACCESS_REMOTE_READ)), nullptr);
}

TEST_F(MemoryTest, RegMr_OptionalFlags_AreIgnored) {
  EXPECT_NE(MrPtr(Register(buffer_, 16, IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE)),
            nullptr);
  EXPECT_NE(MrPtr(Register(buffer_, 16, IBV_ACCESS_OPTIONAL_RANGE)), nullptr);
}

TEST_F(MemoryTest, RegMr_UnknownFlags_FailWithEinval) {
  EXPECT_EQ(Register(buffer_, 16, 1u << 15), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Register(buffer_, 16, 1u << 31), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Register(buffer_, 16, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MemoryTest, RegMr_BadRanges_Fail) {
  EXPECT_EQ(Register(buffer_, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Register(buffer_, ~size_t{0}, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  void* const hole = mmap(nullptr, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(static_cast<char*>(hole) + 4096, 4096);
  EXPECT_EQ(Register(hole, 3 * 4096, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(Register(hole, 3 * 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  munmap(hole, 3 * 4096);
}

TEST_F(MemoryTest, RegMr_OfReadOnlyMemory_IsForReadingOnly) {
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(Register(page, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_NE(MrPtr(Register(page, 4096, IBV_ACCESS_REMOTE_READ)), nullptr);
  munmap(page, 4096);
}

TEST_F(MemoryTest, DeallocPd_InUse_FailsWithEbusy) {
  ibv_mr* const mr = Register(buffer_, 16, 0);
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryTest, RegDmabufMr_OfMappableFile_MovesItsBytes) {
  Loopback loop;
  const int fd = memfd_create("device", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 3 * 4096), 0);
  constexpr uint64_t kIova = 0x7000;
  ibv_mr* const mr = ibv_reg_dmabuf_mr(loop.pd.get(), 4096 + 8, 4096, kIova, fd,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_NE(mr, nullptr);
  loop.buffer[0] = 42;
  ibv_sge sge = loop.Sge(0, 1);
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = kIova + 4;
  wr.wr.rdma.rkey = mr->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(loop.qp.get(), &wr, &bad), 0);
  EXPECT_EQ(Await(loop.cq.get(), 1)[0].status, IBV_WC_SUCCESS);
  unsigned char byte = 0;
  ASSERT_EQ(pread(fd, &byte, 1, 4096 + 8 + 4), 1);
  EXPECT_EQ(byte, 42);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  close(fd);
}

TEST_F(MemoryTest, RegDmabufMr_OfAnythingElse_FailsWithEopnotsupp) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const int fd : {-1, ends[0]}) {
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd_.get(), 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST_F(MemoryTest, RegDmabufMr_OutsideOfTheFile_FailsWithEinval) {
  const int fd = memfd_create("device", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_.get(), 1, 4096, 0, fd, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  close(fd);
}

TEST_F(MemoryTest, ReregMr_ChangesKeysAndRange) {
  MrPtr mr(Register(buffer_, 16, 0));
  const uint32_t before = mr->lkey;
  ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer_ + 16, 32, 0),
            0);
  EXPECT_NE(mr->lkey, before);
  EXPECT_EQ(mr->addr, buffer_ + 16);
  EXPECT_EQ(mr->length, 32u);
  EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
}

TEST(MemoryLimits, OfADevice_Hold) {
  const ContextPtr context = Open("soft1");
  const PdPtr pd(ibv_alloc_pd(context.get()));
  EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr);  // kSmallMaxPd is 1
  EXPECT_EQ(errno, ENOMEM);
  char buffer[16];
  const MrPtr one(ibv_reg_mr(pd.get(), buffer, sizeof(buffer), 0));
  const MrPtr two(ibv_reg_mr(pd.get(), buffer, sizeof(buffer), 0));
  EXPECT_EQ(ibv_reg_mr(pd.get(), buffer, sizeof(buffer), 0), nullptr);  // kSmallMaxMr is 2
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace railhop::fabric::abi
