#include <endian.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

TEST(DeviceList, OfFabric_NamesItsDevices) {
  TheFabric();
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ASSERT_EQ(count, 4);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "soft0");
  EXPECT_STREQ(list[3]->name, "soft3");
  EXPECT_STREQ(list[3]->ibdev_path, "/sys/class/infiniband/soft3");
  EXPECT_EQ(list[0]->node_type, IBV_NODE_CA);
  EXPECT_EQ(list[0]->transport_type, IBV_TRANSPORT_IB);
  EXPECT_EQ(be64toh(ibv_get_device_guid(list[0])), TheFabric().device(0).node_guid);
  EXPECT_EQ(list[4], nullptr);
  ibv_free_device_list(list);
}

TEST(DeviceList, AskedTwice_GivesTheSameDevices) {
  TheFabric();
  ibv_device** const one = ibv_get_device_list(nullptr);
  ibv_device** const two = ibv_get_device_list(nullptr);
  EXPECT_EQ(one[0], two[0]);
  ibv_free_device_list(one);
  ibv_free_device_list(two);
}

TEST(OpenDevice, ThatMayNotBeUsed_FailsWithItsErrno) {
  EXPECT_EQ(Open("soft2"), nullptr);
  EXPECT_EQ(errno, EACCES);
}

TEST(QueryDevice, GivesTheTopologysLimits) {
  const ContextPtr context = Open("soft1");
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
  EXPECT_EQ(attr.max_qp, static_cast<int>(kSmallMaxQp));
  EXPECT_EQ(attr.max_qp_wr, static_cast<int>(kSmallMaxQpWr));
  EXPECT_EQ(attr.max_sge, static_cast<int>(kSmallMaxSge));
  EXPECT_EQ(attr.max_cqe, static_cast<int>(kSmallMaxCqe));
  EXPECT_EQ(attr.phys_port_cnt, 1);
  ibv_device_attr_ex extended;
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &extended), 0);
  EXPECT_EQ(std::memcmp(&extended.orig_attr, &attr, sizeof(attr)), 0);
  EXPECT_EQ(extended.phys_port_cnt_ex, 1u);
  EXPECT_EQ(extended.odp_caps.general_caps, 0u);
}

TEST(QueryPort, OfInfiniBand_GivesLidAndWidth) {
  const ContextPtr context = Open("soft3");
  ibv_port_attr attr;
  ASSERT_EQ(ibv_query_port(context.get(), 2, &attr), 0);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.lid, 11);
  EXPECT_EQ(attr.sm_lid, 1);
  EXPECT_EQ(attr.pkey_tbl_len, 2);
  EXPECT_EQ(attr.active_mtu, IBV_MTU_4096);
}

TEST(QueryPort, ThatIsNotThere_FailsWithEinval) {
  const ContextPtr context = Open("soft0");
  ibv_port_attr attr;
  EXPECT_EQ(ibv_query_port(context.get(), 0, &attr), EINVAL);
  EXPECT_EQ(ibv_query_port(context.get(), 2, &attr), EINVAL);
}

// Callers of the exported function own 48 bytes; those of the operation say how many.
TEST(QueryPort, ForCallersOfAnyAge_WritesNoMoreThanTheyOwn) {
#undef ibv_query_port
  const ContextPtr context = Open("soft3");
  unsigned char bytes[64];
  std::memset(bytes, 0xee, sizeof(bytes));
  ASSERT_EQ(ibv_query_port(context.get(), 1, reinterpret_cast<_compat_ibv_port_attr*>(bytes)), 0);
  EXPECT_NE(bytes[4], 0xee);
  for (size_t i = 48; i < sizeof(bytes); ++i) ASSERT_EQ(bytes[i], 0xee) << i;

  verbs_context* const verbs = verbs_get_ctx(context.get());
  std::memset(bytes, 0xee, sizeof(bytes));
  ASSERT_EQ(verbs->query_port(context.get(), 1, reinterpret_cast<ibv_port_attr*>(bytes), 52), 0);
  for (size_t i = 52; i < sizeof(bytes); ++i) ASSERT_EQ(bytes[i], 0xee) << i;

  uint32_t speed = 0;  // ibv_port_attr::active_speed_ex of newer headers
  ASSERT_EQ(verbs->query_port(context.get(), 1, reinterpret_cast<ibv_port_attr*>(bytes), 56), 0);
  std::memcpy(&speed, bytes + 52, sizeof(speed));
  EXPECT_EQ(speed, rdma::WidthSpeedOf(200).speed);
  EXPECT_EQ(bytes[56], 0xee);
}

extern "C" int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed);

TEST(QueryPortSpeed, IsInUnitsOf100Megabits) {
  const ContextPtr context = Open("soft3");
  uint64_t speed = 0;
  ASSERT_EQ(ibv_query_port_speed(context.get(), 1, &speed), 0);
  EXPECT_EQ(speed, 2000u);
  ASSERT_EQ(ibv_query_port_speed(context.get(), 2, &speed), 0);
  EXPECT_EQ(speed, 8000u);
  EXPECT_EQ(ibv_query_port_speed(context.get(), 3, &speed), EINVAL);
}

TEST(QueryGid, OfEntries_GivesAddressAndType) {
  const ContextPtr context = Open("soft0");
  ibv_gid gid;
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 3, &gid), 0);
  EXPECT_EQ(gid.raw[10], 0xff);
  EXPECT_EQ(gid.raw[12], 10);
  ibv_gid_entry entry;
  ASSERT_EQ(ibv_query_gid_ex(context.get(), 1, 3, &entry, 0), 0);
  EXPECT_EQ(std::memcmp(&entry.gid, &gid, sizeof(gid)), 0);
  EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(entry.gid_index, 3u);
  EXPECT_EQ(entry.port_num, 1u);
}

TEST(QueryGid, OutsideOfTheTable_FailsWithEinval) {
  const ContextPtr context = Open("soft0");
  ibv_gid gid;
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context.get(), 1, 1000, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_gid(context.get(), 1, -1, &gid), -1);
  ibv_gid_entry entry;
  EXPECT_EQ(ibv_query_gid_ex(context.get(), 2, 0, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &entry, 1), EOPNOTSUPP);
}

TEST(QueryGid, OfAnEmptyEntry_IsZeroOrEnodata) {
  Fault("soft0 gid remove 2");
  const ContextPtr context = Open("soft0");
  ibv_gid gid;
  std::memset(&gid, 0xee, sizeof(gid));
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 2, &gid), 0);
  EXPECT_EQ(gid.global.interface_id, 0u);
  EXPECT_EQ(gid.global.subnet_prefix, 0u);
  ibv_gid_entry entry;
  EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 2, &entry, 0), ENODATA);
}

TEST(QueryGidTable, OfTwoPorts_SkipsEmptyEntries) {
  const ContextPtr context = Open("soft3");
  ibv_gid_entry entries[64];
  ASSERT_EQ(ibv_query_gid_table(context.get(), entries, 64, 0), 2);
  EXPECT_EQ(entries[0].port_num, 1u);
  EXPECT_EQ(entries[1].port_num, 2u);
  EXPECT_EQ(ibv_query_gid_table(context.get(), entries, 1, 0), -EINVAL);
}

TEST(QueryPkey, OfTheTable_IsInNetworkOrder) {
  const ContextPtr context = Open("soft3");
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context.get(), 1, 1, &pkey), 0);
  EXPECT_EQ(be16toh(pkey), 0x8001);
  EXPECT_EQ(ibv_get_pkey_index(context.get(), 1, htobe16(0x8001)), 1);
  EXPECT_EQ(ibv_get_pkey_index(context.get(), 1, htobe16(0x1234)), -1);
  errno = 0;
  EXPECT_EQ(ibv_query_pkey(context.get(), 1, 2, &pkey), -1);
  EXPECT_EQ(errno, EINVAL);
}

extern "C" const char* ibv_get_sysfs_path(void);
extern "C" int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size);

TEST(Sysfs, FileOfALine_IsReadWithoutItsEnd) {
  EXPECT_STREQ(ibv_get_sysfs_path(), "/sys");
  char text[256];
  const int length = ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof(text));
  ASSERT_EQ(length, 5);
  EXPECT_STREQ(text, "Linux");
  EXPECT_EQ(ibv_read_sysfs_file("/nowhere", "x", text, sizeof(text)), -1);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace railhop::fabric::abi
