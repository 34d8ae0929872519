#include "cc/sim/network.h"

#include <algorithm>
#include <cstring>

namespace railhop::sim {
namespace {

constexpr uint64_t kHeaderBytes = 64;             // of each packet on the wire
constexpr uint64_t kReorderPatienceNs = 200'000;  // a packet that nobody overtakes goes anyway

uint64_t WireNs(uint64_t bytes, uint64_t bits_per_second) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bytes) * 8 * 1'000'000'000 /
                               bits_per_second);
}

bool PkeysMatch(uint32_t a, uint32_t b) {
  // Same partition, and not both limited members (IBTA 10.9.3).
  return (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000) != 0;
}

bool IsRoutable(const rdma::TopologyGid& gid) {
  if (gid.type == rdma::GidType::kRoceV1) return false;
  return !rdma::IsLinkLocal(gid.gid);
}

}  // namespace

Network::Network(Shared* shared, const rdma::Topology* topology, std::vector<Port*> ports)
    : shared_(shared),
      topology_(topology),
      ports_(std::move(ports)),
      last_arrival_(ports_.size() * ports_.size(), 0) {}

// ---- routes

bool Network::Reachable(const Port& from, const Port& to, const rdma::TopologyGid& gid) const {
  if (from.now.net == to.now.net) return true;
  if (!IsRoutable(gid)) return false;
  for (const rdma::TopologyRoute& route : topology_->routes) {
    if (route.from == from.now.net && route.to == to.now.net) return true;
  }
  return false;
}

Port* Network::FindByGid(const Port& from, const rdma::QpAttributes& a) const {
  const rdma::TopologyGid source = from.GidAt(a.sgid_index);
  if (rdma::IsEmpty(source.gid)) return nullptr;  // the address that it sends from is gone
  for (Port* to : ports_) {
    for (uint32_t i = 0; i < to->now.gids.size(); ++i) {
      const rdma::TopologyGid gid = to->GidAt(i);
      if (gid.gid == a.dgid && gid.type == source.type && Reachable(from, *to, gid)) return to;
    }
  }
  return nullptr;
}

Port* Network::FindByLid(const Port& from, uint32_t lid) const {
  for (Port* to : ports_) {
    if (to->now.link_layer == rdma::LinkLayer::kInfiniBand && to->now.net == from.now.net &&
        to->now.lid == lid) {
      return to;
    }
  }
  return nullptr;
}

Port* Network::RouteOf(QueuePair& qp) {
  if (qp.route.generation == shared_->address_generation) return qp.route.to;
  qp.route.generation = shared_->address_generation;
  const rdma::QpAttributes& a = qp.attributes();
  const Port& from = *qp.port();
  qp.route.to = a.is_global ? FindByGid(from, a) : FindByLid(from, a.dlid);
  if (qp.route.to != nullptr) {
    if (const QueuePair* peer = qp.route.to->nic->FindQp(a.dest_qpn)) {
      qp.flow(rdma::FlowDirection::kRequests).peer_order = peer->order();
      qp.flow(rdma::FlowDirection::kResponses).peer_order = peer->order();
    }
  }
  return qp.route.to;
}

// ---- sending

uint64_t Network::ReadyAt(QueuePair& qp) {
  const Port* port = qp.port();
  if (port == nullptr) return 0;
  const uint64_t busy = std::max(port->tx_free_ns, port->tx_capped_ns);
  const uint64_t window = shared_->options.window_ns;
  return busy > window ? busy - window : 0;
}

void Network::Lose(LossReason reason, const Port* port, uint32_t psn, uint32_t count) {
  shared_->Note(RecordKind::kLost, static_cast<uint8_t>(reason), port != nullptr ? port->id() : 0,
                0, psn, count);
}

void Network::Send(QueuePair& qp, const rdma::Train& whole) {
  Port* from = qp.port();
  Port* to = RouteOf(qp);
  if (to == nullptr || from->nic->removed()) {
    return Lose(LossReason::kNoRoute, from, whole.psn, whole.count);
  }
  if (!from->Up()) return Lose(LossReason::kLinkDown, from, whole.psn, whole.count);
  if (whole.length > 0 && whole.opcode != rdma::Opcode::kRead &&
      whole.mtu > rdma::MtuBytes(std::min(from->now.active_mtu, to->now.active_mtu))) {
    return Lose(LossReason::kTooLong, from, whole.psn, whole.count);
  }
  const Hop hop{from, to, &qp.flow(rdma::FlowDirection::kRequests)};
  rdma::Train rest = whole;
  while (true) {
    const rdma::Verdict verdict =
        rdma::Judge(from->faults, to->faults, rest, *hop.flow, shared_->loop.now_ns());
    const bool last = verdict.packets >= rest.count;
    SendPiece(qp, last ? rest : rest.TakeFront(verdict.packets), verdict, hop);
    if (last) return;
  }
}

void Network::SendPiece(QueuePair& qp, rdma::Train piece, const rdma::Verdict& verdict,
                        const Hop& hop) {
  piece.unwritten = verdict.unwritten;
  uint64_t arrival = shared_->loop.now_ns();
  if (verdict.rule != rdma::kNoRule) {
    shared_->Note(RecordKind::kFate, static_cast<uint8_t>(verdict.fate), hop.from->id(), qp.id(),
                  piece.psn, piece.count, verdict.rule);
  }
  if (ActOnFate(verdict, &qp, hop.to->nic->FindQp(piece.dst_qpn))) {
    const bool carries = piece.opcode <= rdma::Opcode::kSendImm && piece.length != 0;
    const uint32_t index = NewFlight(carries ? piece.length : 0);
    Flight& flight = flights_[index];
    if (carries && !qp.Gather(piece, flight.bytes.get())) {
      FreeFlight(index);
    } else {
      flight.is_response = false;
      flight.train = piece;
      flight.pkey = qp.pkey();
      arrival = Launch(index, verdict, hop, piece.count, &qp);
    }
  } else if (verdict.fate == rdma::Fate::kDrop) {
    Lose(LossReason::kFault, hop.from, piece.psn, piece.count);
  }
  AfterVerdict(verdict, hop, arrival);
}

// Does what a verdict does to a queue pair or host. False: the packets go no further.
bool Network::ActOnFate(const rdma::Verdict& verdict, QueuePair* requester, QueuePair* responder) {
  const bool asks = verdict.victim == rdma::Victim::kRequester;
  QueuePair* victim = asks ? requester : responder;
  switch (verdict.fate) {
    case rdma::Fate::kDeliver:
    case rdma::Fate::kHold:
      return true;
    case rdma::Fate::kDrop:
      return false;
    case rdma::Fate::kFail:
      if (victim == nullptr) return false;
      if (asks) {
        victim->FailSend(verdict.status, verdict.vendor_err);
      } else {
        victim->FailReceive(verdict.status, verdict.vendor_err);
      }
      return false;
    case rdma::Fate::kWedge:
      if (victim != nullptr) victim->Wedge();
      return false;
    case rdma::Fate::kKill:
      if (victim != nullptr && sink_ != nullptr) sink_->KillHost(victim->nic()->host());
      return false;
  }
  return false;
}

// Steps that a count of packets has made due come behind those packets, not ahead of them.
void Network::AfterVerdict(const rdma::Verdict& verdict, const Hop& hop, uint64_t arrival_ns) {
  if (verdict.actions == 0 || sink_ == nullptr) return;
  if ((verdict.actions & rdma::kActionsTx) != 0) sink_->ActionsDue(hop.from, arrival_ns + 1);
  if ((verdict.actions & rdma::kActionsRx) != 0) sink_->ActionsDue(hop.to, arrival_ns + 1);
}

void Network::SendResponse(const rdma::Response& whole, QueuePair& responder) {
  Port* from = responder.port();
  Port* to = RouteOf(responder);  // the responder answers to the address that it was given
  if (to == nullptr) return Lose(LossReason::kNoRoute, from, whole.psn, whole.count);
  if (!from->Up()) return Lose(LossReason::kLinkDown, from, whole.psn, whole.count);
  QueuePair* requester = to->nic->FindQp(whole.dst_qpn);
  if (requester == nullptr) return Lose(LossReason::kNobody, to, whole.psn, whole.count);
  const Hop hop{from, to, &requester->flow(rdma::FlowDirection::kResponses)};
  rdma::Response rest = whole;
  while (true) {  // the answer to a READ goes a train at a time, too
    const bool fits = rest.count <= shared_->options.train_packets;
    rdma::Response train = fits ? rest : rest.TakeFront(shared_->options.train_packets);
    SendResponseTrain(train, hop, responder.pkey());
    if (fits) return;
  }
}

void Network::SendResponseTrain(rdma::Response train, const Hop& hop, uint32_t pkey) {
  while (true) {
    const rdma::Verdict verdict = rdma::JudgeResponse(hop.from->faults, hop.to->faults, train,
                                                      *hop.flow, shared_->loop.now_ns());
    const bool last = verdict.packets >= train.count;
    SendResponsePiece(last ? train : train.TakeFront(verdict.packets), verdict, hop, pkey);
    if (last) return;
  }
}

void Network::SendResponsePiece(const rdma::Response& piece, const rdma::Verdict& verdict,
                                const Hop& hop, uint32_t pkey) {
  uint64_t arrival = shared_->loop.now_ns();
  const auto detail = static_cast<uint8_t>(piece.kind);
  shared_->Note(RecordKind::kAnswer, detail, hop.from->id(), 0, piece.psn, piece.count);
  if (verdict.rule != rdma::kNoRule) {
    shared_->Note(RecordKind::kFate, static_cast<uint8_t>(verdict.fate), hop.from->id(), 0,
                  piece.psn, piece.count, verdict.rule);
  }
  if (ActOnFate(verdict, hop.to->nic->FindQp(piece.dst_qpn),
                hop.from->nic->FindQp(piece.src_qpn))) {
    const bool data = piece.kind == rdma::ResponseKind::kReadData && piece.length != 0;
    const uint32_t index = NewFlight(data ? piece.length : 0);
    Flight& flight = flights_[index];
    if (data) {
      std::memcpy(flight.bytes.get(), reinterpret_cast<const void*>(piece.remote_addr),
                  piece.length);
    }
    flight.is_response = true;
    flight.response = piece;
    flight.pkey = pkey;
    arrival = Launch(index, verdict, hop, piece.count, nullptr);
  } else if (verdict.fate == rdma::Fate::kDrop) {
    Lose(LossReason::kFault, hop.from, piece.psn, piece.count);
  }
  AfterVerdict(verdict, hop, arrival);
}

uint64_t Network::Launch(uint32_t index, const rdma::Verdict& verdict, const Hop& hop,
                         uint32_t packets, QueuePair* sender) {
  const uint64_t now = shared_->loop.now_ns();
  const uint64_t on_wire = flights_[index].size + kHeaderBytes * packets;
  Port& from = *hop.from;
  Port& to = *hop.to;
  uint64_t departure = std::max(from.tx_free_ns, now) +
                       WireNs(on_wire, uint64_t{from.now.speed_gbps} * 1'000'000'000);
  from.tx_free_ns = departure;
  if (verdict.tx_cap_bps != 0) {
    from.tx_capped_ns = std::max(from.tx_capped_ns, now) + WireNs(on_wire, verdict.tx_cap_bps);
    departure = std::max(departure, from.tx_capped_ns);
  }
  // The sender's clock starts when the packet leaves, not when it queued up.
  if (sender != nullptr) sender->DelayTimer(departure);
  uint64_t arrival = departure + shared_->options.latency_ns;
  if (verdict.rx_cap_bps != 0) {
    to.rx_capped_ns = std::max(to.rx_capped_ns, arrival) + WireNs(on_wire, verdict.rx_cap_bps);
    arrival = to.rx_capped_ns;
  }
  uint64_t& last = last_arrival_[from.index * ports_.size() + to.index];
  last = arrival = std::max(arrival, last + 1);
  arrival += verdict.delay_ns;
  const rdma::FlowState* flow = hop.flow;

  for (uint32_t copy = 1; copy < verdict.copies; ++copy) {
    const uint32_t other = NewFlight(flights_[index].size);
    Flight& from_flight = flights_[index];
    Flight& twin = flights_[other];
    twin.is_response = from_flight.is_response;
    twin.train = from_flight.train;
    twin.response = from_flight.response;
    twin.pkey = from_flight.pkey;
    twin.from = hop.from;
    twin.to = hop.to;
    if (twin.size != 0) std::memcpy(twin.bytes.get(), from_flight.bytes.get(), twin.size);
    last = std::max(last + 1, arrival + copy);
    Schedule(other, last);
  }
  Flight& flight = flights_[index];
  flight.from = hop.from;
  flight.to = hop.to;
  flight.flow = flow;
  if (verdict.fate == rdma::Fate::kHold) {
    flight.held_by = verdict.side == rdma::FaultDirection::kRx ? &to.faults : &from.faults;
    flight.ticket = verdict.hold_ticket;
    held_.push_back(index);
    if (sink_ != nullptr) {
      sink_->Watch(verdict.side == rdma::FaultDirection::kRx ? hop.to : hop.from);
    }
    return arrival;
  }
  if (verdict.reorder_by != 0) {
    flight.reorder_left = verdict.reorder_by;
    reordered_.push_back(index);
    Schedule(index, arrival + kReorderPatienceNs);
    return arrival;
  }
  Schedule(index, arrival);
  PassReordered(flow, packets, arrival);
  return arrival;
}

void Network::PassReordered(const rdma::FlowState* flow, uint32_t packets, uint64_t arrival_ns) {
  const auto goes = [&](uint32_t index) {
    Flight& flight = flights_[index];
    if (flight.flow != flow) return false;
    flight.reorder_left -= std::min<uint64_t>(flight.reorder_left, packets);
    if (flight.reorder_left != 0) return false;
    ++flight.use;  // its patience means nothing any more
    Schedule(index, arrival_ns + 1);
    return true;
  };
  if (reordered_.empty()) return;
  reordered_.erase(std::remove_if(reordered_.begin(), reordered_.end(), goes), reordered_.end());
}

void Network::ReleaseHeld() {
  const uint64_t now = shared_->loop.now_ns();
  const auto goes = [&](uint32_t index) {
    Flight& flight = flights_[index];
    if (!rdma::HoldReleased(*flight.held_by, flight.ticket, now)) return false;
    flight.held_by = nullptr;
    Schedule(index, now + 1);
    return true;
  };
  held_.erase(std::remove_if(held_.begin(), held_.end(), goes), held_.end());
}

// ---- arriving

void Network::Schedule(uint32_t index, uint64_t when_ns) {
  shared_->loop.At(when_ns, this, uint64_t{flights_[index].use} << 32 | index);
}

void Network::OnEvent(uint64_t arg) {
  const auto index = static_cast<uint32_t>(arg);
  if (flights_[index].use != static_cast<uint32_t>(arg >> 32)) return;
  if (flights_[index].reorder_left != 0) {  // nobody overtook it
    reordered_.erase(std::find(reordered_.begin(), reordered_.end(), index));
  }
  Arrive(index);
}

void Network::Arrive(uint32_t index) {
  // What arrives may send more, and flights_ may grow: take out what is needed first.
  const rdma::Train train = flights_[index].train;
  const rdma::Response response = flights_[index].response;
  const bool is_response = flights_[index].is_response;
  const uint32_t pkey = flights_[index].pkey;
  Port* to = flights_[index].to;
  std::unique_ptr<uint8_t[]> bytes = std::move(flights_[index].bytes);
  const size_t capacity = flights_[index].capacity;
  const uint32_t psn = is_response ? response.psn : train.psn;
  const uint32_t count = is_response ? response.count : train.count;
  QueuePair* target = to->nic->FindQp(is_response ? response.dst_qpn : train.dst_qpn);
  if (!to->Up() || to->nic->removed()) {
    Lose(LossReason::kLinkDown, to, psn, count);
  } else if (target == nullptr || target->port() != to || !PkeysMatch(target->pkey(), pkey) ||
             target->wedged() || target->dead_after_reset()) {
    Lose(LossReason::kNobody, to, psn, count);
  } else if (is_response) {
    shared_->Note(RecordKind::kTake, static_cast<uint8_t>(response.kind), to->id(), target->id(),
                  psn, count);
    target->TakeResponse(response, bytes.get());
  } else {
    const rdma::Response answer = target->Take(train, bytes.get());
    shared_->Note(RecordKind::kExecute, static_cast<uint8_t>(answer.kind), to->id(), target->id(),
                  psn, count, train.message_id);
    if (answer.kind != rdma::ResponseKind::kNone) SendResponse(answer, *target);
  }
  flights_[index].bytes = std::move(bytes);
  flights_[index].capacity = capacity;
  FreeFlight(index);
}

uint32_t Network::NewFlight(size_t bytes) {
  uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<uint32_t>(flights_.size());
    flights_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Flight& flight = flights_[index];
  flight.reorder_left = 0;
  flight.held_by = nullptr;
  flight.flow = nullptr;
  flight.size = bytes;
  if (flight.capacity < bytes) {
    flight.bytes.reset(new uint8_t[bytes]);
    flight.capacity = bytes;
  }
  ++under_way_;
  return index;
}

void Network::FreeFlight(uint32_t index) {
  Flight& flight = flights_[index];
  ++flight.use;
  free_.push_back(index);
  --under_way_;
}

}  // namespace railhop::sim
