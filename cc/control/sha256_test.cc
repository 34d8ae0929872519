#include "cc/control/sha256.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace railhop::control {
namespace {

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string Hash(const std::string& text) {
  Sha256 hash;
  hash.Update(Bytes(text));
  return Hex(hash.Finish());
}

std::string Hmac(const std::string& key, const std::string& text) {
  HmacSha256 hmac(Bytes(key));
  hmac.Update(Bytes(text));
  return Hex(hmac.Finish());
}

// The examples that NIST publishes with FIPS 180-4.
TEST(Sha256, PublishedVectors_Agree) {
  EXPECT_EQ(Hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AnyCut_SameDigest) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i);
  const std::string whole = Hash(text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.Update(Bytes(text.substr(0, cut)));
    hash.Update(Bytes(text.substr(cut)));
    ASSERT_EQ(Hex(hash.Finish()), whole) << cut;
  }
}

// RFC 4231, test cases 1, 2, 3 and 6.
TEST(HmacSha256, PublishedVectors_Agree) {
  EXPECT_EQ(Hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(
      Hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Digest, OneBitDiffers_NotEqual) {
  const Digest a = {};
  EXPECT_TRUE(DigestsEqual(a, a));
  for (size_t bit = 0; bit < 8 * kDigestBytes; ++bit) {
    Digest b = a;
    b[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(DigestsEqual(a, b)) << bit;
  }
}

}  // namespace
}  // namespace railhop::control
