#include "cc/sim/seed_plan.h"

#include <algorithm>

#include "cc/rdma_model/fault_grammar.h"

namespace railhop::sim {
namespace {

using rdma::Opcode;

// A READ whose answer loses many packets is asked for again from each of them, so its cost grows
// with the square of its packets.
constexpr uint32_t kPacketsMax = 2048;
constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;

// A number whose size, not its value, is even over the range.
uint64_t Magnitude(Prng& prng, uint64_t low, uint64_t high) {
  uint64_t top = low;
  while (top < high && prng.Chance(0.88)) top *= 2;
  return low + prng.Below(std::min(top, high) - low + 1);
}

std::string Us(uint64_t ns) { return std::to_string(std::max<uint64_t>(ns / kUs, 1)) + "us"; }

rdma::Topology DrawTopology(Prng& prng) {
  rdma::Topology t;
  const auto hosts = static_cast<int>(2 + prng.Below(3));
  const auto rails = static_cast<int>(1 + prng.Below(prng.Chance(0.2) ? 8 : 2));
  const bool infiniband = prng.Chance(0.2);
  static constexpr uint32_t kSpeeds[] = {10, 25, 100, 400};
  const uint32_t speed = kSpeeds[prng.Below(4)];
  const bool one_net = prng.Chance(0.7);
  for (int rail = 0; rail < (one_net ? 1 : rails); ++rail)
    t.nets.push_back("rail" + std::to_string(rail));
  for (int host = 0; host < hosts; ++host) {
    t.hosts.push_back("host" + std::to_string(host));
    for (int rail = 0; rail < rails; ++rail) {
      rdma::TopologyDevice device;
      device.name = "nic" + std::to_string(rail);
      device.host = host;
      rdma::TopologyPort port;
      port.net = one_net ? 0 : rail;
      port.speed_gbps = speed;
      port.pkeys = {0xffff};
      if (infiniband) {
        port.link_layer = rdma::LinkLayer::kInfiniBand;
        port.lid = static_cast<uint32_t>(1 + host * 16 + rail);
        port.gids.push_back({rdma::GidOf(port.subnet_prefix, rdma::DefaultPortGuid(host, rail, 1)),
                             rdma::GidType::kIb});
      } else {
        const auto address =
            rdma::ParseAddress("10.0." + std::to_string(rail) + "." + std::to_string(host + 1));
        port.gids = rdma::EthernetGids(
            rdma::GidOf(0xfe80000000000000, rdma::DefaultPortGuid(host, rail, 1)), {*address});
      }
      if (prng.Chance(0.05)) device.quirks.push_back("short_cq");
      device.ports.push_back(port);
      t.devices.push_back(device);
    }
  }
  return t;
}

uint32_t DrawLength(Prng& prng) {
  const double kind = prng.Unit();
  if (kind < 0.05) return 0;
  if (kind < 0.35) return 1 + static_cast<uint32_t>(prng.Below(256));
  if (kind < 0.70) return 1 + static_cast<uint32_t>(prng.Below(8192));
  if (kind < 0.97) return 1 + static_cast<uint32_t>(prng.Below(64 << 10));
  if (kind < 0.998) return 1 + static_cast<uint32_t>(prng.Below(512 << 10));
  return 1 + static_cast<uint32_t>(prng.Below(8 << 20));
}

TransferPlan DrawTransfer(Prng& prng, const ConversationPlan& conversation, uint32_t mask) {
  TransferPlan t;
  const bool reliable = conversation.endpoint.type == rdma::QpType::kRc;
  do {
    t.opcode = static_cast<Opcode>(prng.Below(reliable ? 7 : 4));
    // Unreliable messages are told apart by their immediates.
    if (!reliable && t.opcode == Opcode::kSend) t.opcode = Opcode::kSendImm;
  } while ((mask >> static_cast<int>(t.opcode) & 1) == 0);
  t.length = std::min(DrawLength(prng), kPacketsMax * rdma::MtuBytes(conversation.connect.mtu));
  if (!reliable) t.length = std::min(t.length, 64u << 10);
  if (t.opcode == Opcode::kCompareSwap || t.opcode == Opcode::kFetchAdd) t.length = 8;
  t.signaled = prng.Chance(0.7);
  t.fence = reliable && prng.Chance(0.1);
  t.pieces = static_cast<uint8_t>(1 + prng.Below(prng.Chance(0.3) ? 4 : 1));
  t.misalign = static_cast<uint8_t>(prng.Chance(0.5) ? 0 : prng.Below(64));
  t.in_line = t.opcode <= Opcode::kSendImm && t.length <= 64 && prng.Chance(0.3);
  return t;
}

SidePlan DrawSide(Prng& prng, const ConversationPlan& conversation) {
  SidePlan side;
  side.type = conversation.endpoint.type;
  side.seed = prng.Next();
  side.send_depth = conversation.endpoint.send_depth;
  side.burst = static_cast<uint32_t>(1 + prng.Below(16));
  side.pause_ns = Magnitude(prng, 500, 200 * kUs);
  side.receives_ahead = static_cast<uint32_t>(1 + prng.Below(32));
  side.late_receives = prng.Chance(0.3) ? 0.5 : 0;
  side.poll_delay_ns = Magnitude(prng, 200, 50 * kUs);
  side.drains = prng.Chance(0.1) ? 0.2 : 0;
  side.destroys = prng.Chance(0.15) ? 0.5 : 0;
  // Some conversations use one kind of request alone.
  uint32_t mask = prng.Chance(0.3) ? 1u << prng.Below(7) : 0x7f;
  if (side.type == rdma::QpType::kUc) mask = 0x7f;
  const uint64_t count = prng.Chance(0.15) ? 0 : 1 + prng.Below(prng.Chance(0.2) ? 60 : 20);
  for (uint64_t i = 0; i < count; ++i) {
    side.transfers.push_back(DrawTransfer(prng, conversation, mask));
    if (i % 8 == 7 || i + 1 == count) side.transfers.back().signaled = true;
    const TransferPlan last = side.transfers.back();
    if (last.opcode != Opcode::kRead || i + 1 == count || !prng.Chance(0.3)) continue;
    TransferPlan relay;
    relay.opcode = Opcode::kWrite;
    relay.length = last.length;
    relay.fence = relay.relay = true;
    side.transfers.push_back(relay);
    ++i;
  }
  return side;
}

// A request that the peer must refuse.
void SpoilOne(Prng& prng, SidePlan* side) {
  for (TransferPlan& t : side->transfers) {
    const bool named = t.opcode <= Opcode::kWriteImm || t.opcode == Opcode::kRead;
    const bool pair =
        t.relay || t.opcode == Opcode::kRead;  // what passes it on would be wrong, too
    if (!named || pair || t.length == 0 || !prng.Chance(0.2)) continue;
    t.bad_key = true;
    return;
  }
}

ConversationPlan DrawConversation(Prng& prng, const rdma::Topology& topology) {
  ConversationPlan plan;
  const auto name = [&](const rdma::TopologyDevice& device) {
    return topology.hosts[static_cast<size_t>(device.host)] + "/" + device.name;
  };
  const rdma::TopologyDevice& one = topology.devices[prng.Below(topology.devices.size())];
  std::vector<const rdma::TopologyDevice*> others;
  for (const rdma::TopologyDevice& device : topology.devices) {
    if (device.host != one.host && device.ports[0].net == one.ports[0].net) {
      others.push_back(&device);
    }
  }
  plan.first_nic = name(one);
  plan.second_nic = name(*others[prng.Below(others.size())]);
  plan.seed = prng.Next();
  plan.endpoint.type = prng.Chance(0.15) ? rdma::QpType::kUc : rdma::QpType::kRc;
  plan.endpoint.send_depth = static_cast<uint32_t>(8 + prng.Below(56));
  plan.endpoint.cq_entries = prng.Chance(0.02) ? 4 : 256;  // 4: it overruns
  plan.connect.mtu = static_cast<uint32_t>(1 + prng.Below(5));
  plan.connect.timeout =
      static_cast<uint32_t>(prng.Chance(0.9) ? 2 + prng.Below(10) : 12 + prng.Below(8));
  plan.connect.retry_cnt = static_cast<uint32_t>(prng.Below(8));
  plan.connect.rnr_retry = static_cast<uint32_t>(prng.Chance(0.9) ? 7 : prng.Below(7));
  plan.connect.min_rnr_timer = static_cast<uint32_t>(1 + prng.Below(16));
  plan.connect.max_rd_atomic = static_cast<uint32_t>(1 + prng.Below(8));
  plan.reconnects = static_cast<uint32_t>(prng.Below(4));
  plan.first = DrawSide(prng, plan);
  plan.second = DrawSide(prng, plan);
  return plan;
}

// ---- faults

std::string DrawTrigger(Prng& prng, bool of_traffic) {
  switch (prng.Below(of_traffic ? 4 : 1)) {
    case 1:
      return " after " + std::to_string(1 + prng.Below(30)) + " messages";
    case 2:
      return " after " + std::to_string(1 + prng.Below(100)) + " packets";
    case 3:
      return " after " + std::to_string(1 + prng.Below(200)) + "KiB";
    default:
      return "";
  }
}

std::string DrawFor(Prng& prng, double chance) {
  return prng.Chance(chance) ? " for " + Us(Magnitude(prng, 10 * kUs, 500 * kMs)) : "";
}

std::string DrawEventMode(Prng& prng, bool may_be_early) {
  switch (prng.Below(8)) {
    case 0:
      return " event lost";
    case 1:
      return " event late " + Us(Magnitude(prng, 10 * kUs, 2000 * kMs));
    case 2:
      if (!may_be_early) return "";
      return " event early " + Us(Magnitude(prng, 1 * kUs, 10 * kMs));
    case 3:
      return " event doubled";
    default:
      return "";
  }
}

std::string DrawClass(Prng& prng) {
  static constexpr const char* kWays[] = {"", " tx", " rx"};
  static constexpr const char* kClasses[] = {"", " data", " acks"};
  return std::string(kWays[prng.Below(3)]) + kClasses[prng.Below(3)];
}

std::string DrawShare(Prng& prng) {
  return " " + std::to_string(1 + prng.Below(prng.Chance(0.2) ? 60 : 10)) + "%";
}

std::string DrawPacketFault(Prng& prng) {
  switch (prng.Below(9)) {
    case 0:
      return "blackhole" + DrawClass(prng) + DrawTrigger(prng, true) + DrawFor(prng, 0.7);
    case 1:
      return "loss" + DrawClass(prng) + DrawShare(prng) + DrawFor(prng, 0.3);
    case 2:
      return "loss" + DrawClass(prng) + " packet " + std::to_string(1 + prng.Below(60));
    case 3:
      return "delay " + Us(Magnitude(prng, 1 * kUs, 20 * kMs)) +
             (prng.Chance(0.5) ? " jitter " + Us(Magnitude(prng, 1 * kUs, 5 * kMs)) : "") +
             DrawClass(prng) + (prng.Chance(0.5) ? DrawShare(prng) : "") + DrawFor(prng, 0.3);
    case 4:
      return "duplicate" + DrawClass(prng) + DrawShare(prng);
    case 5:
      return "reorder by " + std::to_string(1 + prng.Below(5)) + DrawClass(prng) + DrawShare(prng);
    case 6:
      return "hold" + DrawClass(prng) + " packet " + std::to_string(1 + prng.Below(40)) +
             DrawFor(prng, 0.5);
    case 7:
      return "hold" + DrawClass(prng) + DrawShare(prng) + DrawTrigger(prng, true) + " for " +
             Us(Magnitude(prng, 10 * kUs, 100 * kMs));
    default:
      return "cap " + std::to_string(1 + prng.Below(5000)) + "Mb/s" + DrawFor(prng, 0.5);
  }
}

std::string DrawPortFault(Prng& prng, bool infiniband) {
  switch (prng.Below(infiniband ? 6 : 9)) {
    case 0:
    case 1:
      return "down" + DrawTrigger(prng, true) + DrawFor(prng, 0.8) + DrawEventMode(prng, true);
    case 2:
      return "flap every " + Us(Magnitude(prng, 20 * kUs, 50 * kMs)) + " count " +
             std::to_string(1 + prng.Below(20)) + DrawEventMode(prng, false);
    case 3:
      return "mtu " + std::to_string(256 << prng.Below(5)) + DrawFor(prng, 0.7);
    case 4:
      return "pkey 0 0x8001" + DrawFor(prng, 0.8);
    case 5:
      return infiniband ? "lid " + std::to_string(200 + prng.Below(100)) + DrawFor(prng, 0.6)
                        : "gid move 3 9" + DrawFor(prng, 0.6) + DrawEventMode(prng, true);
    case 6:
      return "gid remove 3" + DrawFor(prng, 0.8);
    case 7:
      return "gid linklocal" + DrawFor(prng, 0.9) + DrawEventMode(prng, true);
    default:
      return "gid set 3 10.9.9.9 v2" + DrawFor(prng, 0.8);
  }
}

std::string DrawHardFault(Prng& prng) {
  switch (prng.Below(7)) {
    case 0:
      return "complete status " + std::to_string(1 + prng.Below(21)) +
             (prng.Chance(0.5) ? " tx" : " rx") + DrawTrigger(prng, true);
    case 1:
      return std::string("wedge") + (prng.Chance(0.5) ? " tx" : " rx") + DrawTrigger(prng, true);
    case 2:
      return std::string("kill") + (prng.Chance(0.5) ? " tx" : " rx") + DrawTrigger(prng, true);
    case 3:
      return "remove" + DrawTrigger(prng, true) + DrawFor(prng, 0.5);
    case 4:
      return "fail modify_qp ENOMEM" + std::string(prng.Chance(0.5) ? " count 1" : " 30%");
    case 5:
      return "hang modify_qp " + Us(Magnitude(prng, 1 * kMs, 200 * kMs)) + " count 1";
    default: {
      static constexpr const char* kQuirks[] = {"dead_after_reset", "random_error_fields",
                                                "eio_after_removal", "retry7_forever"};
      return std::string("quirk ") + kQuirks[prng.Below(4)];
    }
  }
}

void DrawFaults(Prng& prng, SeedPlan* plan) {
  const uint64_t count = 1 + prng.Below(prng.Chance(0.3) ? 8 : 3);
  for (uint64_t i = 0; i < count; ++i) {
    // Where it can be seen.
    const ConversationPlan& near = plan->conversations[prng.Below(plan->conversations.size())];
    const std::string& nic = prng.Chance(0.5) ? near.first_nic : near.second_nic;
    const bool infiniband =
        plan->topology.devices[0].ports[0].link_layer == rdma::LinkLayer::kInfiniBand;
    const double kind = prng.Unit();
    std::string words = kind < 0.6    ? DrawPacketFault(prng)
                        : kind < 0.85 ? DrawPortFault(prng, infiniband)
                                      : DrawHardFault(prng);
    PlannedFault fault;
    fault.at_ns = prng.Chance(0.4) ? 0 : Magnitude(prng, 1 * kUs, 5 * kMs);
    fault.text = nic + " " + words;
    plan->faults.push_back(fault);
    if (prng.Chance(0.1)) {
      plan->faults.push_back({fault.at_ns + Magnitude(prng, 10 * kUs, 20 * kMs), nic + " release"});
    }
  }
  std::stable_sort(plan->faults.begin(), plan->faults.end(),
                   [](const PlannedFault& a, const PlannedFault& b) { return a.at_ns < b.at_ns; });
}

// Faults that a reliable connection with all its retries must bear: a few lost packets, at most so
// many that a retry is left for each.
void DrawMildFaults(Prng& prng, SeedPlan* plan) {
  plan->mild = true;
  for (ConversationPlan& c : plan->conversations) {
    c.connect.retry_cnt = c.connect.rnr_retry = 7;
    const uint64_t count = 1 + prng.Below(3);
    for (uint64_t i = 0; i < count; ++i) {
      const std::string& nic = prng.Chance(0.5) ? c.first_nic : c.second_nic;
      plan->faults.push_back({0, nic + " loss" + DrawClass(prng) + " packet " +
                                     std::to_string(1 + prng.Below(60)) + " count 1"});
    }
  }
}

// What each side may see follows from what is injected.
void TellSides(SeedPlan* plan) {
  std::vector<rdma::WcStatus> injected;
  bool forever = false;
  for (const PlannedFault& fault : plan->faults) {
    rdma::FaultCommand command;
    std::string error;
    if (!rdma::ParseFault(fault.text, &command, &error)) continue;
    if (command.spec.kind == rdma::FaultKind::kComplete) {
      injected.push_back(static_cast<rdma::WcStatus>(command.spec.value));
    }
    forever = forever || (command.spec.kind == rdma::FaultKind::kQuirk &&
                          command.spec.value == rdma::kQuirkRetry7Forever);
  }
  // What never gives up has to be let through in the end.
  plan->retries_forever = forever;
  if (forever && plan->heal_ns == 0) plan->heal_ns = 50 * kMs;
  for (ConversationPlan& c : plan->conversations) {
    bool may_fail = c.endpoint.cq_entries < 64 || (!plan->faults.empty() && !plan->mild) ||
                    c.connect.rnr_retry != 7;
    for (const SidePlan* side : {&c.first, &c.second}) {
      for (const TransferPlan& t : side->transfers) may_fail = may_fail || t.bad_key;
    }
    for (SidePlan* side : {&c.first, &c.second}) {
      side->faults = may_fail;
      side->rnr_may_end = c.connect.rnr_retry != 7;
      side->injected = injected;
    }
    // Without faults nothing may fail, so the timer must be longer than any queue.
    if (!may_fail) c.connect.timeout = std::max(c.connect.timeout, 17u);
  }
}

}  // namespace

SeedPlan DrawPlan(uint64_t seed) {
  Prng prng(seed);
  SeedPlan plan;
  plan.seed = seed;
  plan.topology = DrawTopology(prng);
  plan.options.seed = prng.Next();
  plan.options.latency_ns = Magnitude(prng, 200, 20 * kUs);
  plan.options.train_packets = static_cast<uint32_t>(uint64_t{1} << prng.Below(7));
  plan.options.window_ns = Magnitude(prng, 500, 20 * kUs);
  const uint64_t conversations = 1 + prng.Below(prng.Chance(0.2) ? 4 : 2);
  for (uint64_t i = 0; i < conversations; ++i) {
    plan.conversations.push_back(DrawConversation(prng, plan.topology));
    if (prng.Chance(0.05)) SpoilOne(prng, &plan.conversations.back().first);
  }
  const double kind = prng.Unit();
  if (kind < 0.1) DrawMildFaults(prng, &plan);
  if (kind > 0.2) DrawFaults(prng, &plan);
  if (prng.Chance(0.6)) plan.heal_ns = Magnitude(prng, 1 * kMs, 200 * kMs);
  TellSides(&plan);
  return plan;
}

std::string Describe(const SeedPlan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ": " +
                     std::to_string(plan.topology.hosts.size()) + " hosts, " +
                     std::to_string(plan.topology.devices.size()) + " NICs, latency " +
                     std::to_string(plan.options.latency_ns) + " ns, trains of " +
                     std::to_string(plan.options.train_packets) + "\n";
  for (const ConversationPlan& c : plan.conversations) {
    text += "  " + c.first_nic + " <-> " + c.second_nic +
            (c.endpoint.type == rdma::QpType::kRc ? " RC" : " UC") + " mtu " +
            std::to_string(rdma::MtuBytes(c.connect.mtu)) + " timeout " +
            std::to_string(c.connect.timeout) + " retries " + std::to_string(c.connect.retry_cnt) +
            " rnr " + std::to_string(c.connect.rnr_retry) + ", " +
            std::to_string(c.first.transfers.size()) + " + " +
            std::to_string(c.second.transfers.size()) + " transfers, " +
            std::to_string(c.reconnects) + " reconnects\n";
  }
  for (const PlannedFault& fault : plan.faults) {
    text += "  at " + std::to_string(fault.at_ns / kUs) + " us: " + fault.text + "\n";
  }
  if (plan.heal_ns != 0) text += "  at " + std::to_string(plan.heal_ns / kUs) + " us: heal\n";
  return text;
}

}  // namespace railhop::sim
