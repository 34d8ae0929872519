#include "cc/sim/plugin_plan.h"

#include <algorithm>

#include "cc/rdma_model/fault_grammar.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// A number whose size, not its value, is even over the range.
uint64_t Magnitude(Prng& prng, uint64_t low, uint64_t high) {
  uint64_t top = low;
  while (top < high && prng.Chance(0.88)) top *= 2;
  return low + prng.Below(std::min(top, high) - low + 1);
}

std::string Us(uint64_t ns) { return std::to_string(std::max<uint64_t>(ns / kUs, 1)) + "us"; }

// ---- hosts and NICs

std::string PciPath(int rail, int rails) {
  // Two NICs below one switch, four to a NUMA node.
  const auto hex = [](int n) {
    static constexpr char kDigits[] = "0123456789abcdef";
    return std::string(1, kDigits[n / 16]) + kDigits[n % 16];
  };
  (void)rails;
  return "0000:" + hex(0x10 + rail / 2 * 0x10) + ":00.0/0000:" + hex(0x11 + rail * 8) + ":00.0";
}

rdma::Topology DrawTopology(Prng& prng) {
  rdma::Topology t;
  const auto hosts = static_cast<int>(2 + prng.Below(prng.Chance(0.3) ? 3 : 1));
  static constexpr int kRails[] = {1, 2, 2, 2, 3, 4, 4, 8};
  const int rails = kRails[prng.Below(hosts > 2 ? 7 : 8)];
  const bool infiniband = prng.Chance(0.2);
  static constexpr uint32_t kSpeeds[] = {10, 25, 100, 400};
  const uint32_t speed = kSpeeds[prng.Below(4)];
  const bool one_net = infiniband || prng.Chance(0.7);
  for (int rail = 0; rail < (one_net ? 1 : rails); ++rail) {
    t.nets.push_back("rail" + std::to_string(rail));
  }
  // Rails that a router joins, or that are worlds of their own.
  if (!one_net && prng.Chance(0.5)) {
    for (int a = 0; a < rails; ++a) {
      for (int b = 0; b < rails; ++b) {
        if (a != b) t.routes.push_back({a, b});
      }
    }
  }
  for (int host = 0; host < hosts; ++host) {
    t.hosts.push_back("host" + std::to_string(host));
    for (int rail = 0; rail < rails; ++rail) {
      rdma::TopologyDevice device;
      device.name = "nic" + std::to_string(rail);
      device.host = host;
      device.node_guid = device.sys_image_guid = rdma::DefaultNodeGuid(host, rail);
      device.pci_path = PciPath(rail, rails);
      device.numa_node = rail / 4;
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
      device.ports.push_back(port);
      t.devices.push_back(device);
    }
  }
  return t;
}

int RailsOf(const rdma::Topology& topology) {
  return static_cast<int>(topology.devices.size() / topology.hosts.size());
}

// ---- traffic

uint32_t DrawSize(Prng& prng) {
  const double kind = prng.Unit();
  if (kind < 0.06) return 0;
  if (kind < 0.30) return 1 + static_cast<uint32_t>(prng.Below(256));
  if (kind < 0.65) return 1 + static_cast<uint32_t>(prng.Below(8192));
  if (kind < 0.95) return 1 + static_cast<uint32_t>(prng.Below(64 << 10));
  if (kind < 0.998) return 1 + static_cast<uint32_t>(prng.Below(512 << 10));
  return 1 + static_cast<uint32_t>(prng.Below(8 << 20));
}

GroupPlan DrawGroup(Prng& prng, bool grouped, bool one_tag) {
  GroupPlan group;
  const uint64_t n = grouped ? 1 + prng.Below(8) : 1;
  for (uint64_t i = 0; i < n; ++i) {
    MessagePlan m;
    m.size = DrawSize(prng);
    m.room = m.size + static_cast<uint32_t>(prng.Chance(0.3) ? prng.Below(2 * m.size + 100) : 0);
    m.tag = one_tag ? 7 : static_cast<int>(prng.Below(3));
    m.misalign = static_cast<uint8_t>(prng.Chance(0.5) ? 0 : prng.Below(64));
    group.messages.push_back(m);
    group.send_order.push_back(static_cast<uint8_t>(i));
  }
  // Any order, but of one tag in order.
  for (size_t i = n; i-- > 1;) std::swap(group.send_order[i], group.send_order[prng.Below(i + 1)]);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      uint8_t& a = group.send_order[i];
      uint8_t& b = group.send_order[j];
      if (group.messages[a].tag == group.messages[b].tag && a > b) std::swap(a, b);
    }
  }
  return group;
}

PacePlan DrawPace(Prng& prng, uint64_t idle_max_ns) {
  PacePlan pace;
  pace.pause_ns = Magnitude(prng, 200, 20 * kUs);
  static constexpr uint64_t kMax[] = {200 * kUs, 2 * kMs, 20 * kMs};
  pace.pause_max_ns = kMax[prng.Below(3)];
  pace.outstanding = static_cast<uint32_t>(1 + prng.Below(prng.Chance(0.5) ? 32 : 4));
  if (prng.Chance(0.3)) {
    pace.idle = prng.Chance(0.5) ? 0.05 : 0.5;
    pace.idle_ns = Magnitude(prng, 10 * kUs, pace.idle > 0.1 ? idle_max_ns / 20 : idle_max_ns);
  }
  return pace;
}

std::vector<int> DrawParts(Prng& prng, int rails, int first, bool fused) {
  std::vector<int> parts = {first};
  if (!fused || rails == 1) return parts;
  const auto more = static_cast<int>(1 + prng.Below(static_cast<uint64_t>(std::min(rails, 4) - 1)));
  for (int i = 1; i <= more; ++i) parts.push_back((first + i) % rails);
  return parts;
}

TrafficPlan DrawTraffic(Prng& prng, const PluginPlan& plan) {
  TrafficPlan t;
  const rdma::Topology& topology = plan.topology;
  const int rails = RailsOf(topology);
  const auto from = static_cast<size_t>(prng.Below(topology.hosts.size()));
  auto to = static_cast<size_t>(prng.Below(topology.hosts.size() - 1));
  if (to >= from) ++to;
  t.sender = topology.hosts[from];
  t.receiver = topology.hosts[to];
  const auto rail = static_cast<int>(prng.Below(static_cast<uint64_t>(rails)));
  const bool fused = prng.Chance(0.25);
  const bool joined = topology.nets.size() == 1;
  t.send_parts = DrawParts(prng, rails, rail, fused);
  t.recv_parts = t.send_parts;
  // Ends may differ where every NIC reaches every other.
  if (joined && prng.Chance(0.2)) {
    t.recv_parts = DrawParts(
        prng, rails, static_cast<int>(prng.Below(static_cast<uint64_t>(rails))), prng.Chance(0.3));
  }
  const bool grouped = prng.Chance(0.3);
  const bool one_tag = prng.Chance(0.5);
  const uint64_t groups = 1 + prng.Below(grouped ? 12 : prng.Chance(0.1) ? 150 : 40);
  for (uint64_t i = 0; i < groups; ++i) t.groups.push_back(DrawGroup(prng, grouped, one_tag));
  const uint64_t idle_max = plan.trouble == Trouble::kTolerable ? 60 * kSecond : kSecond;
  t.send_pace = DrawPace(prng, idle_max);
  t.recv_pace = DrawPace(prng, idle_max);
  // The sends of a group do not wait for each other: some only end with all of them.
  if (grouped) t.send_pace.outstanding = std::max(t.send_pace.outstanding, 8u);
  t.seed = prng.Next();
  t.start_ns = prng.Chance(0.8) ? 0 : prng.Below(5 * kMs);
  t.close_ns = Magnitude(prng, 10 * kUs, 100 * kMs);
  t.deregister_first = prng.Chance(0.5);
  t.close_alone = plan.trouble == Trouble::kFaults && prng.Chance(0.05);
  return t;
}

// ---- faults

// Where they are seen: a NIC of a connection, or (rarely) any.
std::string DrawNic(Prng& prng, const PluginPlan& plan) {
  if (prng.Chance(0.15)) {
    const auto& device = plan.topology.devices[prng.Below(plan.topology.devices.size())];
    return plan.topology.hosts[static_cast<size_t>(device.host)] + "/" + device.name;
  }
  const TrafficPlan& near = plan.traffic[prng.Below(plan.traffic.size())];
  const bool send = prng.Chance(0.5);
  const std::vector<int>& parts = send ? near.send_parts : near.recv_parts;
  return (send ? near.sender : near.receiver) + "/nic" +
         std::to_string(parts[prng.Below(parts.size())]);
}

std::string DrawTrigger(Prng& prng) {
  switch (prng.Below(4)) {
    case 1:
      return " after " + std::to_string(1 + prng.Below(60)) + " messages";
    case 2:
      return " after " + std::to_string(1 + prng.Below(200)) + " packets";
    case 3:
      return " after " + std::to_string(1 + prng.Below(400)) + "KiB";
    default:
      return "";
  }
}

std::string DrawFor(Prng& prng, double chance, uint64_t max_ns = 4 * kSecond) {
  return prng.Chance(chance) ? " for " + Us(Magnitude(prng, 100 * kUs, max_ns)) : "";
}

std::string DrawEventMode(Prng& prng) {
  switch (prng.Below(8)) {
    case 0:
      return " event lost";
    case 1:
      return " event late " + Us(Magnitude(prng, 10 * kUs, 2 * kSecond));
    case 2:
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

std::string DrawShare(Prng& prng, uint64_t most) {
  return " " + std::to_string(1 + prng.Below(most)) + "%";
}

// What no end may call a fault.
std::string DrawTolerable(Prng& prng) {
  switch (prng.Below(6)) {
    case 5:  // pause frames, in the end
      return "hold after " + std::to_string(1 + prng.Below(60)) + " messages for " +
             Us(Magnitude(prng, 10 * kUs, 300 * kMs));
    case 0:
      return "delay " + Us(Magnitude(prng, 1 * kUs, 500 * kUs)) + " jitter " +
             Us(Magnitude(prng, 1 * kUs, 200 * kUs)) + DrawClass(prng);
    case 1:
      return "duplicate" + DrawClass(prng) + DrawShare(prng, 10);
    case 2:
      return "reorder by " + std::to_string(1 + prng.Below(3)) + DrawClass(prng) +
             DrawShare(prng, 5);
    case 3:
      return "loss" + DrawClass(prng) + " packet " + std::to_string(1 + prng.Below(60)) +
             " count 1";
    default:
      return "cap " + std::to_string(2000 + prng.Below(5000)) + "Mb/s";
  }
}

std::string DrawPacketFault(Prng& prng) {
  switch (prng.Below(8)) {
    case 0:
    case 1:
    case 2:
      return "blackhole" + DrawClass(prng) + DrawTrigger(prng) + DrawFor(prng, 0.6);
    case 3:
      return "loss" + DrawClass(prng) + DrawShare(prng, prng.Chance(0.3) ? 90 : 10) +
             DrawFor(prng, 0.5);
    case 4:
      return "delay " + Us(Magnitude(prng, 1 * kUs, 200 * kMs)) + DrawClass(prng) +
             DrawShare(prng, 50) + DrawFor(prng, 0.5);
    case 5:
      return "hold" + DrawClass(prng) + DrawShare(prng, 30) + DrawTrigger(prng) + " for " +
             Us(Magnitude(prng, 10 * kUs, 3 * kSecond));
    case 6:
      return "hold" + DrawClass(prng) + " packet " + std::to_string(1 + prng.Below(60));
    default:
      return prng.Chance(0.5) ? "duplicate" + DrawClass(prng) + DrawShare(prng, 30)
                              : "reorder by " + std::to_string(1 + prng.Below(5)) +
                                    DrawClass(prng) + DrawShare(prng, 20);
  }
}

std::string DrawPortFault(Prng& prng, bool infiniband) {
  switch (prng.Below(infiniband ? 6 : 8)) {
    case 0:
    case 1:
    case 2:
      return "down" + DrawTrigger(prng) + DrawFor(prng, 0.7) + DrawEventMode(prng);
    case 3:
      return "flap every " + Us(Magnitude(prng, 200 * kUs, 900 * kMs)) + " count " +
             std::to_string(1 + prng.Below(8));
    case 4:
      return "mtu " + std::to_string(256 << prng.Below(5)) + DrawFor(prng, 0.8);
    case 5:
      return infiniband ? "lid " + std::to_string(200 + prng.Below(100)) + DrawFor(prng, 0.5)
                        : "gid move 3 9" + DrawFor(prng, 0.5) + DrawEventMode(prng);
    case 6:
      return "gid remove 3" + DrawFor(prng, 0.9);
    default:
      return "gid linklocal" + DrawFor(prng, 0.9) + DrawEventMode(prng);
  }
}

// Statuses that follow the link or the queue pair, not the buffer.
std::string DrawHardFault(Prng& prng, PluginPlan* plan) {
  static constexpr int kOfLink[] = {2, 5, 12, 12, 12, 19, 20, 21};
  switch (prng.Below(9)) {
    case 0:
    case 1:
      return "complete status " + std::to_string(kOfLink[prng.Below(8)]) +
             (prng.Chance(0.5) ? " tx" : " rx") + DrawTrigger(prng);
    case 2:
      return std::string("wedge") + (prng.Chance(0.5) ? " tx" : " rx") + DrawTrigger(prng);
    case 3:
      return "remove" + DrawTrigger(prng);
    case 4: {
      static constexpr const char* kCalls[] = {"modify_qp", "create_qp",  "create_cq",
                                               "reg_mr",    "destroy_qp", "query_port"};
      std::string text =
          std::string("fail ") + kCalls[prng.Below(6)] + (prng.Chance(0.5) ? " ENOMEM" : " EIO") +
          (prng.Chance(0.5) ? " count " + std::to_string(1 + prng.Below(3)) : " 30%") +
          DrawFor(prng, 0.9);
      // EIO from a destroy says that there is no device any more; there is.
      const size_t says_gone = text.find("destroy_qp EIO");
      if (says_gone != std::string::npos) text.replace(says_gone, 14, "destroy_qp EBUSY");
      return text;
    }
    case 5: {
      plan->hangs = true;
      static constexpr const char* kCalls[] = {"modify_qp", "destroy_qp", "reg_mr", "query_port"};
      return std::string("hang ") + kCalls[prng.Below(4)] + " " +
             Us(Magnitude(prng, 1 * kMs, 20 * kSecond)) + " count " +
             std::to_string(1 + prng.Below(3));
    }
    case 6:
      plan->hangs = true;
      return "quirk hang_verbs" + DrawFor(prng, 0.7);
    case 7: {
      static constexpr const char* kEvents[] = {"port_err",   "device_fatal",      "gid_change",
                                                "lid_change", "client_reregister", "port_active"};
      return std::string("event ") + kEvents[prng.Below(6)];
    }
    default: {
      static constexpr const char* kQuirks[] = {"random_error_fields", "eio_after_removal",
                                                "retry7_forever"};
      return std::string("quirk ") + kQuirks[prng.Below(3)];
    }
  }
}

uint64_t DrawTime(Prng& prng) {
  return prng.Chance(0.3) ? prng.Below(50 * kUs) : Magnitude(prng, 1 * kUs, 300 * kMs);
}

void DrawChannelFaults(Prng& prng, PluginPlan* plan) {
  const uint64_t count = prng.Below(prng.Chance(0.3) ? 6 : 2);
  for (uint64_t i = 0; i < count; ++i) {
    ChannelFault fault;
    fault.kind = static_cast<ChannelFault::Kind>(prng.Below(4));
    fault.at_ns = DrawTime(prng);
    fault.for_ns = Magnitude(prng, 100 * kUs, 3 * kSecond);
    fault.host = prng.Below(plan->topology.hosts.size());
    fault.other = prng.Below(plan->topology.hosts.size() - 1);
    if (fault.other >= fault.host) ++fault.other;
    plan->channel.push_back(fault);
  }
}

void DrawFaults(Prng& prng, PluginPlan* plan) {
  const bool infiniband =
      plan->topology.devices[0].ports[0].link_layer == rdma::LinkLayer::kInfiniBand;
  const uint64_t count = 1 + prng.Below(prng.Chance(0.3) ? 6 : 2);
  const uint64_t together = DrawTime(prng);
  for (uint64_t i = 0; i < count; ++i) {
    const double kind = prng.Unit();
    const std::string words = kind < 0.40   ? DrawPacketFault(prng)
                              : kind < 0.75 ? DrawPortFault(prng, infiniband)
                                            : DrawHardFault(prng, plan);
    // Several at once, one after the other, or while the first is being dealt with.
    const double when = prng.Unit();
    const uint64_t at = when < 0.3   ? together
                        : when < 0.6 ? together + Magnitude(prng, 1 * kUs, 20 * kMs)
                                     : DrawTime(prng);
    plan->faults.push_back({at, DrawNic(prng, *plan) + " " + words});
  }
  if (prng.Chance(0.08)) {
    plan->unwritten = true;
    const std::string nic = DrawNic(prng, *plan);
    const uint64_t at = DrawTime(prng);
    plan->faults.push_back({at, nic + " unwritten rx" + DrawTrigger(prng)});
    // It dies, and what comes after is another life; or it lives on, and only the queue pairs that
    // it has hit go on lying.
    const uint64_t dies = at + Magnitude(prng, 1 * kUs, 5 * kMs);
    const bool lives = plan->seed % 4 == 0;
    if (!lives) plan->faults.push_back({dies, nic + " down"});
    plan->faults.push_back({dies, nic + " clear unwritten"});
  }
  if (prng.Chance(0.06)) {
    const uint64_t host = prng.Below(plan->topology.hosts.size());
    plan->killed[host] = true;
    plan->faults.push_back({DrawTime(prng), plan->topology.hosts[host] + "/nic0 kill" +
                                                (prng.Chance(0.5) ? " tx" : " rx") +
                                                DrawTrigger(prng)});
  }
  std::stable_sort(plan->faults.begin(), plan->faults.end(),
                   [](const PlannedFault& a, const PlannedFault& b) { return a.at_ns < b.at_ns; });
  for (const PlannedFault& fault : plan->faults) {
    const auto has = [&fault](const char* word) {
      return fault.text.find(word) != std::string::npos;
    };
    plan->refuses_memory = plan->refuses_memory || has("fail reg_mr");
    plan->false_alarm = plan->false_alarm || has("event device_fatal") || has("fail query_port");
    plan->refuses_destroy = plan->refuses_destroy || has("fail destroy_qp");
    // A NIC that is gone and says nothing more, not even what had arrived: rule 2 counts only what
    // was polled, and rule 4 has an error for that.
    const std::string nic = fault.text.substr(0, fault.text.find(' '));
    plan->unwritten =
        plan->unwritten ||
        (has(" quirk eio_after_removal") &&
         std::any_of(plan->faults.begin(), plan->faults.end(), [&nic](const PlannedFault& other) {
           return other.text.starts_with(nic + " remove");
         }));
  }
  plan->heal_ns = plan->faults.back().at_ns + Magnitude(prng, 10 * kMs, 8 * kSecond);
}

// Whether a fault takes a NIC, or its address, away for good.
bool IsForGood(const PlannedFault& fault) {
  const auto has = [&fault](const char* word) {
    return fault.text.find(word) != std::string::npos;
  };
  return has(" remove") && !has(" gid remove") && !has(" for ");
}

// Whether a path is left for each connection once all is well again.
bool Survives(const PluginPlan& plan) {
  const rdma::Topology& topology = plan.topology;
  const auto lost = [&plan](const std::string& host, size_t rail) {
    const std::string nic = host + "/nic" + std::to_string(rail) + " ";
    return std::any_of(plan.faults.begin(), plan.faults.end(), [&nic](const PlannedFault& fault) {
      return fault.text.starts_with(nic) && IsForGood(fault);
    });
  };
  const auto rails = static_cast<size_t>(RailsOf(topology));
  const bool all_joined = topology.nets.size() == 1 || !topology.routes.empty();
  for (const TrafficPlan& t : plan.traffic) {
    bool any = false;
    for (size_t a = 0; a < rails; ++a) {
      for (size_t b = 0; b < rails; ++b) {
        any = any || (!lost(t.sender, a) && !lost(t.receiver, b) && (all_joined || a == b));
      }
    }
    if (!any) return false;
  }
  return true;
}

void DrawDatapath(Prng& prng, PluginPlan* plan) {
  datapath::DatapathConfig& d = plan->datapath;
  d.ib_qps_per_connection = static_cast<int>(prng.Chance(0.7) ? 1 : 1 + prng.Below(4));
  d.ib_split_data_on_qps = prng.Chance(0.3);
  d.ib_adaptive_routing = prng.Chance(0.8) ? -2 : static_cast<int>(prng.Below(2));
  d.ib_ar_threshold = static_cast<int64_t>(prng.Chance(0.5) ? 8192 : prng.Below(65536));
  d.ib_use_inline = prng.Chance(0.2);
  // Small ones make faults show themselves as completions; the default, as silence.
  d.ib_timeout = static_cast<int>(prng.Chance(0.4) ? 20 : 10 + prng.Below(9));
  d.ib_retry_cnt = static_cast<int>(prng.Chance(0.6) ? 7 : 1 + prng.Below(7));
  if (plan->trouble != Trouble::kFaults) {
    d.ib_timeout = std::max(d.ib_timeout, 18);
    d.ib_retry_cnt = 7;
  }
}

void DrawFailover(Prng& prng, PluginPlan* plan) {
  runtime::FailoverConfig& f = plan->failover;
  const auto draw = [&prng](uint64_t low, uint64_t high) {
    return static_cast<int64_t>(Magnitude(prng, low, high));
  };
  f.enabled = plan->datapath.failover = true;
  f.confirm = prng.Chance(0.15);
  f.health.stall = prng.Chance(0.3) ? static_cast<int64_t>(kSecond) : draw(20 * kMs, 400 * kMs);
  f.health.probe_interval = draw(20 * kMs, 500 * kMs);
  f.health.probe_interval_max = std::max(f.health.probe_interval, draw(100 * kMs, 5 * kSecond));
  f.health.hold_down = draw(20 * kMs, 500 * kMs);
  f.health.hold_down_max = 8 * f.health.hold_down;
  f.port_poll_interval_ns = draw(20 * kMs, 500 * kMs);
  f.cover_backups = prng.Chance(0.8) ? -1 : static_cast<int>(1 + prng.Below(2));
}

// Packets out of order cost a round trip each: what takes milliseconds at the link's rate takes
// seconds then, and a message that takes longer than the threshold is a fault.
void KeepShort(PluginPlan* plan) {
  constexpr uint32_t kMax = 512 << 10;
  const bool shuffles =
      std::any_of(plan->faults.begin(), plan->faults.end(), [](const PlannedFault& fault) {
        return fault.text.find("jitter") != std::string::npos ||
               fault.text.find("reorder") != std::string::npos;
      });
  if (!shuffles) return;
  for (TrafficPlan& t : plan->traffic) {
    for (GroupPlan& group : t.groups) {
      for (MessagePlan& m : group.messages) m.size = std::min(m.size, kMax);
    }
  }
}

// A threshold below what a full queue takes at the link's rate, or a lost packet until it is sent
// again, would call slow what is slow: these are tests of silence.
void KeepCalm(PluginPlan* plan) {
  if (plan->trouble == Trouble::kFaults) return;
  plan->failover.health.stall =
      std::max(plan->failover.health.stall, static_cast<int64_t>(kSecond));
  plan->datapath.ib_timeout = 14;
}

void DrawCommands(Prng& prng, PluginPlan* plan) {
  if (!prng.Chance(0.12)) return;
  const uint64_t count = 1 + prng.Below(4);
  for (uint64_t i = 0; i < count; ++i) {
    PlannedCommand command;
    command.kind = static_cast<PlannedCommand::Kind>(prng.Below(4));
    command.at_ns = DrawTime(prng);
    command.host = prng.Below(plan->topology.hosts.size());
    command.physical = static_cast<int>(prng.Below(static_cast<uint64_t>(RailsOf(plan->topology))));
    plan->commands.push_back(command);
    // What is drained is released again some time.
    if (command.kind <= PlannedCommand::Kind::kForce) {
      command.kind = PlannedCommand::Kind::kRelease;
      command.at_ns += Magnitude(prng, 1 * kMs, 2 * kSecond);
      plan->commands.push_back(command);
    }
  }
}

}  // namespace

PluginPlan DrawPluginPlan(uint64_t seed) {
  Prng prng(seed ^ 0x706c7567);
  PluginPlan plan;
  plan.seed = seed;
  const double trouble = prng.Unit();
  plan.trouble = trouble < 0.08   ? Trouble::kNone
                 : trouble < 0.20 ? Trouble::kTolerable
                                  : Trouble::kFaults;
  plan.topology = DrawTopology(prng);
  plan.killed.resize(plan.topology.hosts.size());
  plan.options.seed = prng.Next();
  plan.options.latency_ns = Magnitude(prng, 200, 20 * kUs);
  plan.options.train_packets = 16u << prng.Below(4);
  plan.options.window_ns = Magnitude(prng, 500, 20 * kUs);
  plan.channel_delay_ns = Magnitude(prng, 5 * kUs, 20 * kMs);
  DrawDatapath(prng, &plan);
  DrawFailover(prng, &plan);
  KeepCalm(&plan);
  const uint64_t connections = 1 + prng.Below(prng.Chance(0.2) ? 12 : 3);
  for (uint64_t i = 0; i < connections; ++i) plan.traffic.push_back(DrawTraffic(prng, plan));
  if (plan.trouble == Trouble::kTolerable) {
    const uint64_t count = 1 + prng.Below(3);
    for (uint64_t i = 0; i < count; ++i) {
      plan.faults.push_back({0, DrawNic(prng, plan) + " " + DrawTolerable(prng)});
    }
    KeepShort(&plan);
  }
  if (plan.trouble == Trouble::kFaults) {
    DrawFaults(prng, &plan);
    DrawChannelFaults(prng, &plan);
    DrawCommands(prng, &plan);
    plan.may_fail = !Survives(plan);
    // What is given up is so soon, that it can be waited for.
    const bool dies = std::find(plan.killed.begin(), plan.killed.end(), true) != plan.killed.end();
    // What a dying NIC holds is not given up before it lets go: a little longer than one call
    // hangs, and well short of two, one behind the other.
    const uint64_t give_up = plan.hangs ? 70 * kSecond : 60 * kSecond;
    if (plan.may_fail || dies) plan.failover.give_up_ns = static_cast<int64_t>(give_up);
  }
  return plan;
}

std::string Describe(const PluginPlan& plan) {
  const auto parts = [](const std::vector<int>& indices) {
    std::string text;
    for (const int index : indices) text += (text.empty() ? "nic" : "+") + std::to_string(index);
    return text;
  };
  std::string text = "plugin seed " + std::to_string(plan.seed) + ": " +
                     std::to_string(plan.topology.hosts.size()) + " hosts, " +
                     std::to_string(RailsOf(plan.topology)) + " NICs each, " +
                     std::to_string(plan.topology.nets.size()) + " nets" +
                     (plan.topology.routes.empty() ? "" : " (routed)") + ", stall " +
                     std::to_string(plan.failover.health.stall / 1000000) + " ms, confirm " +
                     (plan.failover.confirm ? "on" : "off") + ", qps " +
                     std::to_string(plan.datapath.ib_qps_per_connection) + " timeout " +
                     std::to_string(plan.datapath.ib_timeout) + " retries " +
                     std::to_string(plan.datapath.ib_retry_cnt) + "\n";
  for (const TrafficPlan& t : plan.traffic) {
    uint64_t bytes = 0, messages = 0;
    for (const GroupPlan& group : t.groups) {
      messages += group.messages.size();
      for (const MessagePlan& m : group.messages) bytes += m.size;
    }
    text += "  " + t.sender + " " + parts(t.send_parts) + " -> " + t.receiver + " " +
            parts(t.recv_parts) + ": " + std::to_string(t.groups.size()) + " groups, " +
            std::to_string(messages) + " messages, " + std::to_string(bytes) + " bytes" +
            (t.close_alone ? ", closes alone" : "") + "\n";
  }
  for (const PlannedFault& fault : plan.faults) {
    text += "  at " + std::to_string(fault.at_ns / kUs) + " us: " + fault.text + "\n";
  }
  static constexpr const char* kKinds[] = {"slow", "break", "outage", "deaf"};
  for (const ChannelFault& fault : plan.channel) {
    text += "  at " + std::to_string(fault.at_ns / kUs) + " us: channel host" +
            std::to_string(fault.host) + " - host" + std::to_string(fault.other) + " " +
            kKinds[static_cast<size_t>(fault.kind)] + " for " + Us(fault.for_ns) + "\n";
  }
  static constexpr const char* kCommands[] = {"drain", "force failover of", "release", "fail back"};
  for (const PlannedCommand& command : plan.commands) {
    text += "  at " + std::to_string(command.at_ns / kUs) + " us: host" +
            std::to_string(command.host) + " " + kCommands[static_cast<size_t>(command.kind)] +
            " nic" + std::to_string(command.physical) + "\n";
  }
  if (plan.heal_ns != 0) text += "  at " + std::to_string(plan.heal_ns / kUs) + " us: heal\n";
  return text;
}

}  // namespace railhop::sim
