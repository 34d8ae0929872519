#include "cc/runtime/connect_attempt.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/status_macros.h"

namespace railhop::runtime {
namespace {

using control::FrameChannel;
using control::MessageType;
using Progress = control::TcpSocket::Progress;

// What NCCL's own transport says first on its sockets: the handle's number, then the kind of
// socket. Source: NCCL 2.30.7 src/misc/socket.cc, ncclSocketTypeNetIb.
constexpr uint32_t kNcclSocketTypeNetIb = 4;
constexpr int64_t kForeignNoticeNs = 3 * kNsPerSecond;

bool IsWorthAnotherCall(int error_number) {
  return error_number == ETIMEDOUT || error_number == ECONNREFUSED ||
         error_number == EHOSTUNREACH || error_number == ECONNRESET || error_number == 0;
}

uint8_t Resolve(int option, int communicator) {
  if (option != -1) return static_cast<uint8_t>(option);
  return communicator != -1 ? static_cast<uint8_t>(communicator) : 0;
}

}  // namespace

ConnectAttempt::ConnectAttempt(const Identity& identity, const NetDevice& device,
                               const control::Handle& handle, int traffic_class)
    : identity_(identity),
      device_(device),
      handle_(handle),
      handle_kind_(control::ClassifyHandle(handle)),
      service_level_(Resolve(identity.datapath.ib_sl, traffic_class) & 0xf),
      traffic_class_(Resolve(identity.datapath.ib_tc, traffic_class)) {}

std::string ConnectAttempt::Where() const {
  return absl::StrCat("connect to ", control::FormatAddress(handle_.address));
}

control::Authenticator ConnectAttempt::OutAuth() const {
  return {.secret = handle_.secret, .from_listener = false, .peer_nonce = peer_.nonce};
}

absl::Status ConnectAttempt::ForeignHandle() const {
  if (handle_kind_ == control::HandleKind::kNcclIb) {
    return absl::UnavailableError(absl::StrCat(
        Where(),
        ": the peer does not run Railhop but, as it seems, NCCL's own IB transport; set the "
        "same NCCL_NET_PLUGIN on every host"));
  }
  return absl::UnavailableError(
      "connect: the peer's handle is not Railhop's: it runs another network plugin; set the same "
      "NCCL_NET_PLUGIN on every host");
}

absl::StatusOr<bool> ConnectAttempt::Step(int64_t now_ns) {
  if (handle_kind_ == control::HandleKind::kUnknown) return ForeignHandle();
  if (handle_kind_ == control::HandleKind::kNcclIb) return StepForeign(now_ns);
  if (state_ == State::kIdle) RAILHOP_RETURN_IF_ERROR(Call(now_ns));
  if (state_ == State::kCalling) RAILHOP_RETURN_IF_ERROR(CallProgress(now_ns));
  if (state_ == State::kGreeting) RAILHOP_RETURN_IF_ERROR(Greet());
  if (state_ == State::kWaiting) RAILHOP_RETURN_IF_ERROR(Await(now_ns));
  if (state_ == State::kRaising) RAILHOP_RETURN_IF_ERROR(Raise(now_ns));
  return state_ == State::kReady;
}

// A listener of NCCL's own transport would wait for ever: it is called, told in its own words who
// it may think we are, and left, which ends its accept with an error.
absl::StatusOr<bool> ConnectAttempt::StepForeign(int64_t now_ns) {
  if (state_ == State::kIdle) {
    absl::StatusOr<control::TcpSocket> socket =
        control::TcpSocket::Connect(handle_.address, identity_.sockets);
    if (!socket.ok()) return ForeignHandle();
    channel_ = FrameChannel(*std::move(socket));
    deadline_ns_ = now_ns + kForeignNoticeNs;
    state_ = State::kForeign;
  }
  switch (channel_.socket().FinishConnect()) {
    case Progress::kBlocked:
      if (now_ns < deadline_ns_) return false;
      return ForeignHandle();
    case Progress::kClosed:
      return ForeignHandle();
    case Progress::kMore:
      break;
  }
  std::vector<uint8_t> words(sizeof(handle_.foreign_number) + sizeof(kNcclSocketTypeNetIb));
  memcpy(words.data(), &handle_.foreign_number, sizeof(handle_.foreign_number));
  memcpy(words.data() + sizeof(handle_.foreign_number), &kNcclSocketTypeNetIb,
         sizeof(kNcclSocketTypeNetIb));
  channel_.Queue(std::move(words));
  channel_.Flush();
  channel_.socket().Close();
  return ForeignHandle();
}

absl::Status ConnectAttempt::Call(int64_t now_ns) {
  if (now_ns < call_at_ns_) return absl::OkStatus();
  RAILHOP_ASSIGN_OR_RETURN(control::TcpSocket socket,
                           control::TcpSocket::Connect(handle_.address, identity_.sockets));
  channel_ = FrameChannel(std::move(socket));
  deadline_ns_ = now_ns + kTcpConnectNs;
  state_ = State::kCalling;
  return absl::OkStatus();
}

absl::Status ConnectAttempt::CallProgress(int64_t now_ns) {
  switch (channel_.socket().FinishConnect()) {
    case Progress::kMore:
      state_ = State::kGreeting;
      return absl::OkStatus();
    case Progress::kBlocked:
      return now_ns < deadline_ns_ ? absl::OkStatus() : Again(now_ns, ETIMEDOUT);
    case Progress::kClosed:
      return Again(now_ns, channel_.socket().error());
  }
  return absl::OkStatus();
}

absl::Status ConnectAttempt::Again(int64_t now_ns, int error_number) {
  channel_ = FrameChannel();
  if (!IsWorthAnotherCall(error_number) || failures_ >= identity_.sockets.socket_retry_cnt) {
    return absl::UnavailableError(
        absl::StrCat(Where(), " failed after ", failures_ + 1, " attempts: ",
                     error_number == 0 ? "the peer closed the connection"
                                       : std::generic_category().message(error_number)));
  }
  ++failures_;
  call_at_ns_ = now_ns + failures_ * identity_.sockets.socket_retry_sleep_msec * kNsPerMs;
  state_ = State::kIdle;
  return absl::OkStatus();
}

absl::Status ConnectAttempt::Greet() {
  if (builder_ == nullptr) {
    const auto devices = static_cast<uint32_t>(device_.parts.size());
    builder_ =
        std::make_unique<LaneBuilder>(device_, identity_.datapath, LaneBuilder::Side::kSender);
    const uint32_t lanes =
        LaneCount(devices, static_cast<uint32_t>(identity_.datapath.ib_qps_per_connection),
                  handle_.devices, handle_.qps_per_device);
    RAILHOP_RETURN_IF_ERROR(builder_->Create(lanes, handle_.devices));
    RAILHOP_ASSIGN_OR_RETURN(local_, builder_->Describe());
    DescribeProcess(identity_, &local_);
    local_.service_level = service_level_;
    local_.traffic_class = traffic_class_;
  }
  // A new nonce for each call: a listener takes each HELLO once.
  control::FillRandom(local_.nonce.data(), local_.nonce.size());
  channel_.Queue(control::EncodeFrame(MessageType::kHello, handle_.listener_id,
                                      control::EncodeEnd(local_), OutAuth(),
                                      identity_.protocol_version));
  state_ = State::kWaiting;
  return absl::OkStatus();
}

absl::Status ConnectAttempt::Await(int64_t now_ns) {
  // A broken connection is found when receiving, after what the peer may have said.
  channel_.Flush();
  switch (channel_.Receive()) {
    case FrameChannel::Event::kNothing:
      return absl::OkStatus();
    case FrameChannel::Event::kClosed:
      return Again(now_ns, channel_.socket().error());
    case FrameChannel::Event::kJunk:
      return absl::UnavailableError(absl::StrCat(Where(), ": what listens there is not Railhop"));
    case FrameChannel::Event::kFrame:
      return TakeReply();
  }
  return absl::OkStatus();
}

absl::Status ConnectAttempt::TakeReply() {
  const control::Frame& frame = channel_.frame();
  const control::Authenticator auth = {
      .secret = handle_.secret, .from_listener = true, .peer_nonce = local_.nonce};
  if (!frame.IsAuthentic(auth)) {
    return absl::UnavailableError(
        absl::StrCat(Where(), ": the answer does not come from the listener of this handle"));
  }
  const absl::StatusOr<control::Preamble> preamble = control::DecodePreamble(frame.payload);
  if (!preamble.ok()) return absl::UnavailableError(preamble.status().message());
  if (frame.header.protocol_version != identity_.protocol_version) {
    return absl::UnavailableError(
        absl::StrCat(Where(), ": ",
                     VersionMismatch(identity_.plugin_version, identity_.protocol_version,
                                     preamble->plugin_version, frame.header.protocol_version)));
  }
  if (frame.header.type == static_cast<uint16_t>(MessageType::kReject)) {
    return absl::UnavailableError(
        absl::StrCat(Where(), ": the peer refused: ", control::DecodeRejectReason(frame.payload)));
  }
  absl::StatusOr<control::EndDescription> peer = control::DecodeEnd(frame.payload);
  if (frame.header.type != static_cast<uint16_t>(MessageType::kReply) || !peer.ok()) {
    return absl::UnavailableError(absl::StrCat(Where(), ": not a valid answer"));
  }
  peer_ = *std::move(peer);
  channel_.Next();
  RAILHOP_RETURN_IF_ERROR(builder_->TakeOptions(peer_));
  state_ = State::kRaising;
  return absl::OkStatus();
}

absl::Status ConnectAttempt::Raise(int64_t now_ns) {
  const absl::StatusOr<bool> up = builder_->Connect(peer_, service_level_, traffic_class_, now_ns);
  if (!up.ok()) {
    channel_.Queue(control::EncodeFrame(
        MessageType::kReject, handle_.listener_id,
        control::EncodeReject(identity_.plugin_version, std::string(up.status().message())),
        OutAuth(), identity_.protocol_version));
    channel_.Flush();
    return up.status();
  }
  if (!*up) return absl::OkStatus();
  channel_.Queue(control::EncodeFrame(MessageType::kReady, handle_.listener_id, {}, OutAuth(),
                                      identity_.protocol_version));
  // 56 bytes into an empty socket buffer: if they do not go, nothing does.
  if (!channel_.Flush() || !channel_.AllSent()) {
    return absl::UnavailableError(
        absl::StrCat(Where(), ": ", peer_.host, " closed the connection"));
  }
  state_ = State::kReady;
  return absl::OkStatus();
}

datapath::SendConnection* ConnectAttempt::Finish(void* storage) {
  return builder_->FinishSend(storage, peer_);
}

std::string ConnectAttempt::Description() const {
  return DescribeConnection("sends to", local_, peer_);
}

}  // namespace railhop::runtime
