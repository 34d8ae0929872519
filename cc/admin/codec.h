// Requests and responses between structs and bytes (cc/proto/admin.proto).
//
// The bytes come from another process: whatever they are, they give a message whose enumerators are
// known and whose texts are printable, or a failure. Nobody's terminal is written to by a name that
// a stranger has chosen: what cannot be printed is replaced on the way out and on the way in.
#ifndef RAILHOP_CC_ADMIN_CODEC_H_
#define RAILHOP_CC_ADMIN_CODEC_H_

#include <string>
#include <string_view>

#include "cc/admin/reply.h"
#include "cc/admin/requests.h"

namespace railhop::admin {

std::string EncodeRequest(const Request& request);
// Errors: kInvalid (no request, or one that this version does not know).
Reply<Request> DecodeRequest(std::string_view bytes);

// At most kMessageBytesMax: a longer one becomes a failure, kInternal.
std::string EncodeResponse(const Response& response);
// Errors: kInternal (no response, or one that this version does not know).
Reply<Response> DecodeResponse(std::string_view bytes);

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_CODEC_H_
