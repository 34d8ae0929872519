#include "cc/config/nccl_values.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

namespace railhop::config {
namespace {

struct IntCase {
  const char* text;
  int64_t value;
  bool set;
  bool clean;
};

TEST(NcclInt, EveryRule_AsStrtollBase0) {
  const IntCase cases[] = {
      {"", 42, false, true},
      {"7", 7, true, true},
      {"0x10", 16, true, true},
      {"010", 8, true, true},
      {"-3", -3, true, true},
      {" 5", 5, true, true},
      {"7 ", 7, true, false},
      {"12abc", 12, true, false},
      {"abc", 0, true, false},
      {"true", 0, true, false},
      {"09", 0, true, false},
      {"1e3", 1, true, false},
      {"0x", 0, true, false},
      {"+4", 4, true, true},
      {"- 4", 0, true, false},
      {"9223372036854775807", INT64_MAX, true, true},
      {"9223372036854775808", 42, true, false},
      {"-9223372036854775809", 42, true, false},
  };
  for (const IntCase& c : cases) {
    const NcclInt parsed = ParseNcclInt(c.text, 42);
    EXPECT_EQ(parsed.value, c.value) << c.text;
    EXPECT_EQ(parsed.set, c.set) << c.text;
    EXPECT_EQ(parsed.clean, c.clean) << c.text;
  }
}

TEST(SocketMagic, WholeNumberOnly) {
  EXPECT_EQ(ParseSocketMagic("0xffffffffffffffff"), 0xffffffffffffffffu);
  EXPECT_EQ(ParseSocketMagic("10"), 10u);
  EXPECT_EQ(ParseSocketMagic("10 "), std::nullopt);
  EXPECT_EQ(ParseSocketMagic("ten"), std::nullopt);
  EXPECT_EQ(ParseSocketMagic(""), std::nullopt);
}

TEST(AddressFamily, OtherText_IsTheDefault) {
  EXPECT_EQ(ParseAddressFamily("AF_INET", -1), AF_INET);
  EXPECT_EQ(ParseAddressFamily("AF_INET6", -1), AF_INET6);
  EXPECT_EQ(ParseAddressFamily("af_inet6", AF_INET), AF_INET);
  EXPECT_EQ(ParseAddressFamily("", -1), -1);
  EXPECT_EQ(ParseAddressFamily("IPv6", AF_INET), AF_INET);
}

struct FilterCase {
  const char* filter;
  const char* name;
  int port;
  bool selected;
  int rail;
  int plane;
};

TEST(NameFilter, EveryRule_AsNcclIbHca) {
  const FilterCase cases[] = {
      // No filter, and a filter of nothing.
      {"", "mlx5_0", 1, true, -1, -1},
      {"=", "mlx5_0", 1, true, -1, -1},
      {",,", "mlx5_0", 1, true, -1, -1},
      {"^", "mlx5_0", 1, false, -1, -1},
      {"^=", "mlx5_0", 1, false, -1, -1},
      // Prefix and whole names.
      {"mlx5", "mlx5_0", 1, true, -1, -1},
      {"mlx5_1", "mlx5_10", 1, true, -1, -1},
      {"=mlx5_1", "mlx5_10", 1, false, -1, -1},
      {"=mlx5_1", "mlx5_1", 1, true, -1, -1},
      {"mlx5_10", "mlx5_1", 1, false, -1, -1},
      {" mlx5_0", "mlx5_0", 1, false, -1, -1},
      {"MLX5", "mlx5_0", 1, false, -1, -1},
      // Exclusion; '^' first, then '='.
      {"^mlx5_1", "mlx5_1", 1, false, -1, -1},
      {"^mlx5_1", "mlx5_10", 1, false, -1, -1},
      {"^=mlx5_1", "mlx5_10", 1, true, -1, -1},
      {"=^mlx5_1", "mlx5_1", 1, false, -1, -1},
      {"=^mlx5_1", "^mlx5_1", 1, true, -1, -1},
      // Ports.
      {"mlx5_0:1", "mlx5_0", 1, true, -1, -1},
      {"mlx5_0:2", "mlx5_0", 1, false, -1, -1},
      {"mlx5_0:", "mlx5_0", 2, true, -1, -1},
      {"mlx5_0:-1", "mlx5_0", 2, true, -1, -1},
      {"mlx5_0:x", "mlx5_0", 1, false, -1, -1},
      {"mlx5_0:1,mlx5_0:2", "mlx5_0", 2, true, -1, -1},
      {"^mlx5_0:2", "mlx5_0", 1, true, -1, -1},
      // Rail and plane; from the first match; not from exclusions.
      {"mlx5_0:1:3", "mlx5_0", 1, true, 3, -1},
      {"mlx5_0::3:2", "mlx5_0", 1, true, 3, 2},
      {"mlx5_0:::2", "mlx5_0", 1, true, -1, 2},
      {"mlx5:1:7,mlx5_0:1:3", "mlx5_0", 1, true, 7, -1},
      {"^mlx5_1:1:3:2", "mlx5_0", 1, true, -1, -1},
      // Items without a name vanish.
      {":1,mlx5_0", "mlx5_1", 1, false, -1, -1},
      {":1", "mlx5_1", 1, true, -1, -1},
  };
  for (const FilterCase& c : cases) {
    const auto match = NameFilter::Parse(c.filter, NameFilter::kDevicesMax).Find(c.name, c.port);
    EXPECT_EQ(match.selected, c.selected) << c.filter << " on " << c.name << ":" << c.port;
    EXPECT_EQ(match.rail, c.rail) << c.filter;
    EXPECT_EQ(match.plane, c.plane) << c.filter;
  }
}

TEST(NameFilter, MoreThan32Items_RestDropped) {
  std::string text = "=";
  for (int i = 0; i < 40; ++i) text += "d" + std::to_string(i) + ",";
  const NameFilter filter = NameFilter::Parse(text, NameFilter::kDevicesMax);
  EXPECT_EQ(filter.items().size(), 32u);
  EXPECT_EQ(filter.dropped(), 8);
  EXPECT_TRUE(filter.Find("d31", 1).selected);
  EXPECT_FALSE(filter.Find("d32", 1).selected);
}

struct RangeCase {
  const char* text;
  int family;
  const char* address;  // of the GID
  bool inside;
  bool ignored;
};

std::array<uint8_t, 16> Gid(const std::string& address) {
  std::array<uint8_t, 16> gid{};
  const std::string mapped = address.find(':') == std::string::npos ? "::ffff:" + address : address;
  EXPECT_EQ(inet_pton(AF_INET6, mapped.c_str(), gid.data()), 1) << address;
  return gid;
}

TEST(AddressRange, EveryRule_AsNcclIbAddrRange) {
  const RangeCase cases[] = {
      {"", AF_INET, "10.1.2.3", true, false},
      {"10.1.0.0/16", AF_INET, "10.1.2.3", true, false},
      {"10.1.0.0/16", AF_INET, "10.2.2.3", false, false},
      {"10.1.2.3/32", AF_INET, "10.1.2.3", true, false},
      {"10.1.2.3/32", AF_INET, "10.1.2.2", false, false},
      {"10.1.2.3/31", AF_INET, "10.1.2.2", true, false},
      {"0.0.0.0/1", AF_INET, "127.0.0.1", true, false},
      {"0.0.0.0/1", AF_INET, "128.0.0.1", false, false},
      {"10.1.0.0/0", AF_INET, "192.168.0.1", true, false},
      {"10.1.0.0/x", AF_INET, "192.168.0.1", true, false},
      {"10.1.0.0/-8", AF_INET, "10.1.0.1", false, false},
      // In 32 bits they would be 128, 1000 and 0.
      {"10.1.0.0/-4294967168", AF_INET, "10.1.0.1", false, false},
      {"10.1.0.0/-4294966296", AF_INET, "10.1.0.1", false, false},
      {"10.1.0.0/-4294967296", AF_INET, "10.1.0.1", false, false},
      {"10.1.0.0", AF_INET, "192.168.0.1", true, true},
      {"10.1.0/16", AF_INET, "192.168.0.1", true, true},
      {"fd00::/8", AF_INET, "192.168.0.1", true, true},
      {"10.1.0.0/33", AF_INET, "192.168.0.1", true, true},
      {"fd00:1::/64", AF_INET6, "fd00:1::5", true, false},
      {"fd00:1::/64", AF_INET6, "fd00:1:0:1::5", false, false},
      {"fd00:1::/129", AF_INET6, "fe80::1", true, true},
      {"fd00:1:8000::/33", AF_INET6, "fd00:1:ffff::1", true, false},
      {"fd00:1:8000::/33", AF_INET6, "fd00:1:7fff::1", false, false},
  };
  for (const RangeCase& c : cases) {
    std::string why;
    const AddressRange range = ParseAddressRange(c.text, c.family, &why);
    EXPECT_EQ(range.Contains(Gid(c.address).data()), c.inside) << c.text << " and " << c.address;
    EXPECT_EQ(!why.empty(), c.ignored) << c.text << ": " << why;
  }
}

}  // namespace
}  // namespace railhop::config
