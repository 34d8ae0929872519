// The admin API's messages: what any process of the same user may write into the socket.
//
// First byte even: the rest is a request. Odd: a response, which a client reads.
#include <string>
#include <string_view>

#include "cc/admin/codec.h"
#include "cc/fuzz/input.h"

namespace railhop::fuzz {
namespace {

template <typename Decode, typename Encode>
void Check(std::string_view bytes, const Decode& decode, const Encode& encode) {
  const auto read = decode(bytes);
  if (!read.ok()) {
    RequireReadable(read.failure().message);
    return;
  }
  const auto again = decode(encode(*read));
  Require(again.ok(), "what was written can be read");
  Require(*again == *read, "what is read, written and read is the same");
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  railhop::fuzz::Input input(data, size);
  if (input.Byte() % 2 == 0) {
    railhop::fuzz::Check(input.rest(), railhop::admin::DecodeRequest,
                         railhop::admin::EncodeRequest);
  } else {
    railhop::fuzz::Check(input.rest(), railhop::admin::DecodeResponse,
                         railhop::admin::EncodeResponse);
  }
  return 0;
}
