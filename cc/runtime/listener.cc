#include "cc/runtime/listener.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/status_macros.h"

namespace railhop::runtime {

using control::FrameChannel;
using control::MessageType;

Listener::Listener(const Identity& identity, const NetDevice& device)
    : identity_(identity), device_(device) {
  control::FillRandom(&listener_id_, sizeof(listener_id_));
  control::FillRandom(&foreign_number_, sizeof(foreign_number_));
  foreign_number_ |= 1;  // never 0
  control::FillRandom(secret_.data(), secret_.size());
}

Listener::~Listener() = default;

absl::StatusOr<std::unique_ptr<Listener>> Listener::Create(const Identity& identity,
                                                           const NetDevice& device,
                                                           const control::SocketAddress& address) {
  std::unique_ptr<Listener> listener(new Listener(identity, device));
  RAILHOP_ASSIGN_OR_RETURN(listener->socket_,
                           control::TcpSocket::Listen(address, identity.sockets));
  return listener;
}

control::Handle Listener::MakeHandle() const {
  control::Handle handle = {};
  handle.address = socket_.LocalAddress();
  handle.protocol_version = identity_.protocol_version;
  handle.foreign_number = foreign_number_;
  handle.mark = control::kHandleMark;
  handle.listener_id = listener_id_;
  handle.secret = secret_;
  handle.devices = static_cast<uint8_t>(device_.parts.size());
  handle.qps_per_device = static_cast<uint8_t>(identity_.datapath.ib_qps_per_connection);
  return handle;
}

void Listener::AcceptCallers(int64_t now_ns) {
  while (true) {
    control::TcpSocket socket = socket_.Accept(identity_.sockets);
    if (!socket.open()) return;
    auto caller = std::make_unique<Caller>();
    caller->channel = FrameChannel(std::move(socket));
    caller->deadline_ns = now_ns + kHelloNs;
    callers_.push_back(std::move(caller));
    const auto is_stranger = [](const std::unique_ptr<Caller>& c) {
      return c->state == Caller::State::kStranger;
    };
    if (static_cast<size_t>(std::count_if(callers_.begin(), callers_.end(), is_stranger)) >
        kStrangersMax) {
      callers_.erase(std::find_if(callers_.begin(), callers_.end(), is_stranger));
      ++counters_.crowded_out;
    }
  }
}

absl::StatusOr<std::unique_ptr<Listener::Caller>> Listener::Step(int64_t now_ns) {
  AcceptCallers(now_ns);
  for (size_t i = 0; i < callers_.size();) {
    absl::StatusOr<Verdict> verdict = StepCaller(callers_[i].get(), now_ns);
    if (verdict.ok() && *verdict == Verdict::kWait) {
      ++i;
      continue;
    }
    std::unique_ptr<Caller> caller = std::move(callers_[i]);
    callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(i));
    if (!verdict.ok()) return verdict.status();
    if (*verdict == Verdict::kComplete) return caller;
  }
  return std::unique_ptr<Caller>();
}

absl::StatusOr<Listener::Verdict> Listener::StepCaller(Caller* caller, int64_t now_ns) {
  switch (caller->state) {
    case Caller::State::kStranger:
      return StepStranger(caller, now_ns);
    case Caller::State::kRaising:
      return StepRaising(caller, now_ns);
    case Caller::State::kAnswered:
      return StepAnswered(caller, now_ns);
  }
  return Verdict::kDrop;
}

absl::StatusOr<Listener::Verdict> Listener::StepStranger(Caller* caller, int64_t now_ns) {
  switch (caller->channel.Receive()) {
    case FrameChannel::Event::kNothing:
      if (now_ns < caller->deadline_ns) return Verdict::kWait;
      ++counters_.silent;
      return Verdict::kDrop;
    case FrameChannel::Event::kClosed:
      ++counters_.gone;
      return Verdict::kDrop;
    case FrameChannel::Event::kJunk:
      if (caller->channel.parser().BeginsWith(foreign_number_)) {
        return absl::UnavailableError(absl::StrCat(
            "accept: the peer at ", control::FormatAddress(caller->channel.socket().PeerAddress()),
            " does not run Railhop but NCCL's own IB transport; set the same NCCL_NET_PLUGIN on "
            "every host"));
      }
      ++counters_.junk;
      return Verdict::kDrop;
    case FrameChannel::Event::kFrame:
      return TakeHello(caller, now_ns);
  }
  return Verdict::kDrop;
}

absl::Status Listener::Refuse(Caller* caller, absl::Status why) {
  const control::Authenticator auth = {
      .secret = secret_, .from_listener = true, .peer_nonce = caller->peer.nonce};
  caller->channel.Queue(control::EncodeFrame(
      MessageType::kReject, listener_id_,
      control::EncodeReject(identity_.plugin_version, std::string(why.message())), auth,
      identity_.protocol_version));
  caller->channel.Flush();
  return why;
}

absl::StatusOr<Listener::Verdict> Listener::TakeHello(Caller* caller, int64_t now_ns) {
  const control::Frame& frame = caller->channel.frame();
  const control::Authenticator auth = {.secret = secret_, .from_listener = false, .peer_nonce = {}};
  const absl::StatusOr<control::Preamble> preamble = control::DecodePreamble(frame.payload);
  if (frame.header.type != static_cast<uint16_t>(MessageType::kHello) ||
      frame.header.listener_id != listener_id_ || !preamble.ok() || !frame.IsAuthentic(auth)) {
    ++counters_.junk;
    return Verdict::kDrop;
  }
  if (!nonces_.insert(preamble->nonce).second) {
    ++counters_.replayed;
    return Verdict::kDrop;
  }
  caller->peer.nonce = preamble->nonce;
  const std::string from = absl::StrCat(
      "accept from ", control::FormatAddress(caller->channel.socket().PeerAddress()), ": ");
  if (frame.header.protocol_version != identity_.protocol_version) {
    return Refuse(
        caller,
        absl::UnavailableError(absl::StrCat(
            from, VersionMismatch(identity_.plugin_version, identity_.protocol_version,
                                  preamble->plugin_version, frame.header.protocol_version))));
  }
  absl::StatusOr<control::EndDescription> peer = control::DecodeEnd(frame.payload);
  if (!peer.ok()) {
    return Refuse(caller, absl::UnavailableError(absl::StrCat(from, peer.status().message())));
  }
  caller->peer = *std::move(peer);
  caller->channel.Next();
  const absl::Status answered = Answer(caller, now_ns);
  if (!answered.ok()) return Refuse(caller, WithContext(answered, from));
  return StepRaising(caller, now_ns);
}

absl::Status Listener::Answer(Caller* caller, int64_t now_ns) {
  const auto remote_devices = static_cast<uint32_t>(caller->peer.devices.size());
  const auto lanes = static_cast<uint32_t>(caller->peer.lanes.size());
  caller->builder =
      std::make_unique<LaneBuilder>(device_, identity_.datapath, LaneBuilder::Side::kReceiver);
  RAILHOP_RETURN_IF_ERROR(caller->builder->Create(lanes, remote_devices));
  RAILHOP_RETURN_IF_ERROR(caller->builder->TakeOptions(caller->peer));
  RAILHOP_ASSIGN_OR_RETURN(caller->local, caller->builder->Describe());
  control::FillRandom(caller->local.nonce.data(), caller->local.nonce.size());
  DescribeProcess(identity_, &caller->local);
  caller->state = Caller::State::kRaising;
  caller->deadline_ns = now_ns + kReadyNs;
  return absl::OkStatus();
}

absl::StatusOr<Listener::Verdict> Listener::StepRaising(Caller* caller, int64_t now_ns) {
  const absl::StatusOr<bool> up = caller->builder->Connect(caller->peer, caller->peer.service_level,
                                                           caller->peer.traffic_class, now_ns);
  if (!up.ok()) return Refuse(caller, up.status());
  if (!*up) return Verdict::kWait;
  const control::Authenticator auth = {
      .secret = secret_, .from_listener = true, .peer_nonce = caller->peer.nonce};
  caller->channel.Queue(control::EncodeFrame(MessageType::kReply, listener_id_,
                                             control::EncodeEnd(caller->local), auth,
                                             identity_.protocol_version));
  caller->state = Caller::State::kAnswered;
  return StepAnswered(caller, now_ns);
}

absl::StatusOr<Listener::Verdict> Listener::StepAnswered(Caller* caller, int64_t now_ns) {
  const auto lost = [caller](const char* what) {
    return absl::UnavailableError(absl::StrCat("accept: ", caller->peer.host, " ", what));
  };
  caller->channel.Flush();
  switch (caller->channel.Receive()) {
    case FrameChannel::Event::kNothing:
      if (now_ns < caller->deadline_ns) return Verdict::kWait;
      return lost("was not ready in time");
    case FrameChannel::Event::kClosed:
      return lost("went away before it was ready");
    case FrameChannel::Event::kJunk:
      return lost("said what no Railhop says");
    case FrameChannel::Event::kFrame:
      break;
  }
  const control::Frame& frame = caller->channel.frame();
  const control::Authenticator auth = {
      .secret = secret_, .from_listener = false, .peer_nonce = caller->local.nonce};
  if (!frame.IsAuthentic(auth)) return lost("did not prove who it is");
  if (frame.header.type == static_cast<uint16_t>(MessageType::kReject)) {
    return lost(absl::StrCat("refused: ", control::DecodeRejectReason(frame.payload)).c_str());
  }
  if (frame.header.type != static_cast<uint16_t>(MessageType::kReady)) {
    return lost("said something out of turn");
  }
  return Verdict::kComplete;
}

absl::StatusOr<datapath::RecvConnection*> Listener::Finish(Caller* caller, void* storage) {
  return caller->builder->FinishReceive(storage, caller->peer);
}

std::string Listener::Description(const Caller& caller) {
  return DescribeConnection("receives from", caller.local, caller.peer);
}

const control::EndDescription& Listener::Peer(const Caller& caller) { return caller.peer; }

const control::EndDescription& Listener::Local(const Caller& caller) { return caller.local; }

uint64_t Listener::ConnectionId(const Caller& caller) {
  return control::ConnectionIdOf(caller.peer.nonce);
}

}  // namespace railhop::runtime
