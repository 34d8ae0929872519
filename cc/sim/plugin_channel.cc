#include "cc/sim/plugin_channel.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cc/control/codec.h"

namespace railhop::sim {
namespace {

using control::ChannelEvent;
using engine::InstanceId;

}  // namespace

// Between two processes. `first` < `second`; one of them may be told later than the other.
struct ControlNet::Pair {
  size_t first = 0, second = 0;
  bool up = false;           // as the wire is
  bool knows[2] = {};        // as the ends believe
  bool leaving[2] = {};      // who has said goodbye in this session
  uint64_t session = 0;      // counts
  uint64_t last_at[2] = {};  // arrival of the last message, by the end that gets it
  uint64_t slow_ns = 0;
  uint64_t slow_until_ns = 0;
  uint64_t outage_until_ns = 0;
  uint64_t deaf_until_ns = 0;
  uint64_t down_since_ns = 0;  // 0: never was up, or is
  bool silent_told[2] = {};
  bool dead_told[2] = {};
  bool calling = false;
  bool ever_up = false;
};

ControlNet::ControlNet(PluginWorld* world, const ControlNetOptions& options, uint64_t seed)
    : world_(world), options_(options), prng_(seed) {
  channels_.resize(world->hosts().size());
}
ControlNet::~ControlNet() = default;

SimChannel* ControlNet::Open(PluginHost* host, std::function<void()> wake) {
  const size_t index = host->host()->index;
  channels_[index] = std::make_unique<SimChannel>(this, index, std::move(wake));
  return channels_[index].get();
}

void ControlNet::After(uint64_t ns, std::function<void()> what) {
  steps_.push_back(std::move(what));
  world_->loop().At(world_->now_ns() + ns, this, steps_.size() - 1);
}

void ControlNet::OnEvent(uint64_t arg) {
  const std::function<void()> step = std::move(steps_[arg]);
  steps_[arg] = nullptr;
  step();
}

size_t ControlNet::IndexOf(InstanceId id) const {
  for (const auto& host : world_->hosts()) {
    if (host->instance_id() == id) return host->host()->index;
  }
  return world_->hosts().size();
}

ControlNet::Pair* ControlNet::PairOf(size_t a, size_t b) {
  std::unique_ptr<Pair>& pair = pairs_[std::minmax(a, b)];
  if (pair == nullptr) {
    pair = std::make_unique<Pair>();
    pair->first = std::min(a, b);
    pair->second = std::max(a, b);
  }
  return pair.get();
}

void ControlNet::Tell(size_t host, size_t peer, ChannelEvent::Kind kind, std::string text) {
  SimChannel* channel = channels_[host].get();
  if (channel == nullptr || !world_->hosts()[host]->alive()) return;
  ChannelEvent event;
  event.kind = kind;
  event.peer = world_->hosts()[peer]->instance_id();
  event.text = std::move(text);
  channel->inbox_.push_back(std::move(event));
  channel->wake_();
}

// Whether both have a connection with the other: no session lives without one.
bool ControlNet::IsWanted(const Pair& pair) const {
  const auto wants = [this](size_t host, size_t peer) {
    const SimChannel* channel = channels_[host].get();
    return channel != nullptr && world_->hosts()[host]->alive() &&
           channel->wanted_.count(world_->hosts()[peer]->instance_id()) != 0;
  };
  return wants(pair.first, pair.second) && wants(pair.second, pair.first);
}

// Calls if a session is wanted and may be.
void ControlNet::Consider(Pair* pair) {
  if (pair->up || pair->calling || !IsWanted(*pair)) return;
  pair->calling = true;
  const uint64_t now = world_->now_ns();
  uint64_t wait = options_.delay_ns * 3 + prng_.Below(options_.delay_ns * 4 + 1);
  if (prng_.Chance(0.2)) wait += prng_.Below(500'000'000);  // back-off
  if (pair->outage_until_ns > now) wait += pair->outage_until_ns - now;
  After(wait, [this, pair] {
    pair->calling = false;
    if (pair->outage_until_ns > world_->now_ns() || pair->deaf_until_ns > world_->now_ns()) {
      pair->calling = true;
      After(1'000'000 + prng_.Below(300'000'000), [this, pair] {
        pair->calling = false;
        Consider(pair);
      });
      return;
    }
    Establish(pair);
  });
}

void ControlNet::Establish(Pair* pair) {
  if (pair->up || !IsWanted(*pair)) return;
  pair->up = pair->ever_up = true;
  pair->down_since_ns = 0;
  const uint64_t session = ++pair->session;
  for (const bool second : {false, true}) {
    pair->silent_told[second] = pair->dead_told[second] = pair->leaving[second] = false;
    const uint64_t wait = prng_.Below(options_.delay_ns * 2 + 1);
    // Nothing of this session comes before its end knows of it.
    pair->last_at[second] = world_->now_ns() + wait;
    After(wait, [this, pair, second, session] {
      if (pair->session != session || pair->knows[second]) return;
      pair->knows[second] = true;
      Tell(second ? pair->second : pair->first, second ? pair->first : pair->second,
           ChannelEvent::Kind::kUp, "");
    });
  }
}

void ControlNet::Break(Pair* pair, const char* why) {
  if (!pair->up) return;
  pair->up = false;
  pair->down_since_ns = world_->now_ns();
  const uint64_t session = ++pair->session;  // what is under way is lost
  for (const bool second : {false, true}) {
    After(prng_.Below(options_.delay_ns * 2 + 1), [this, pair, second, why] {
      if (!pair->knows[second]) return;
      pair->knows[second] = false;
      Tell(second ? pair->second : pair->first, second ? pair->first : pair->second,
           ChannelEvent::Kind::kDown, why);
    });
  }
  After(options_.delay_ns * 2 + 2, [this, pair, session] {
    if (pair->session == session) Consider(pair);
  });
  WatchSilence(pair);
  if (!world_->hosts()[pair->first]->alive() || !world_->hosts()[pair->second]->alive()) {
    WatchDeath(pair);
  }
}

void ControlNet::WatchSilence(Pair* pair) {
  const uint64_t since = pair->down_since_ns;
  After(options_.silent_ns + prng_.Below(options_.silent_ns / 4 + 1), [this, pair, since] {
    if (pair->down_since_ns != since || pair->up) return;
    for (const bool second : {false, true}) {
      if (std::exchange(pair->silent_told[second], true)) continue;
      Tell(second ? pair->second : pair->first, second ? pair->first : pair->second,
           ChannelEvent::Kind::kSilent, "nothing was heard");
    }
  });
}

// One end's kernel refuses whoever calls.
void ControlNet::WatchDeath(Pair* pair) {
  const bool second_lives = world_->hosts()[pair->second]->alive();
  After(options_.dead_after_ns + prng_.Below(300'000'000), [this, pair, second_lives] {
    if (std::exchange(pair->dead_told[second_lives], true)) return;
    Tell(second_lives ? pair->second : pair->first, second_lives ? pair->first : pair->second,
         ChannelEvent::Kind::kDead, "connection refused");
  });
}

void ControlNet::Start(const ChannelFault& fault) {
  Pair* pair = PairOf(fault.host, fault.other);
  const uint64_t until = world_->now_ns() + fault.for_ns;
  switch (fault.kind) {
    case ChannelFault::Kind::kSlow:
      pair->slow_ns = options_.delay_ns * 5 + prng_.Below(50'000'000);
      pair->slow_until_ns = until;
      return;
    case ChannelFault::Kind::kBreak:
      return Break(pair, "connection reset");
    case ChannelFault::Kind::kOutage:
      pair->outage_until_ns = std::max(pair->outage_until_ns, until);
      return Break(pair, "no route");
    case ChannelFault::Kind::kDeaf: {
      pair->deaf_until_ns = std::max(pair->deaf_until_ns, until);
      const uint64_t session = pair->session;
      // Found out by its heartbeats, whether or not it is over by then: bytes are missing.
      After(options_.silent_ns / 2 + prng_.Below(options_.silent_ns / 2), [this, pair, session] {
        if (pair->session == session) Break(pair, "heartbeats are missing");
      });
      return;
    }
  }
}

void ControlNet::Heal() {
  for (auto& [key, pair] : pairs_) {
    pair->slow_until_ns = pair->outage_until_ns = 0;
    if (pair->deaf_until_ns != 0) Break(pair.get(), "heartbeats are missing");
    pair->deaf_until_ns = 0;
    Consider(pair.get());
  }
}

void ControlNet::Kill(PluginHost* host, bool silently) {
  const size_t index = host->host()->index;
  for (size_t other = 0; other < channels_.size(); ++other) {
    if (other == index || channels_[other] == nullptr) continue;
    const InstanceId id = host->instance_id();
    if (channels_[other]->wanted_.count(id) == 0) continue;
    Pair* pair = PairOf(index, other);
    if (!silently) {
      if (pair->up) {
        Break(pair, "closed by the peer");
      } else {
        WatchDeath(pair);
      }
      continue;
    }
    // Nothing comes any more, and nobody says so.
    ++pair->session;
    pair->deaf_until_ns = kNeverNs;
    const uint64_t session = pair->session;
    After(options_.silent_ns / 2 + prng_.Below(options_.silent_ns / 2), [this, pair, session] {
      if (pair->session != session) return;
      pair->up = false;
      pair->down_since_ns = world_->now_ns();
      for (const bool second : {false, true}) {
        if (!pair->knows[second]) continue;
        pair->knows[second] = false;
        Tell(second ? pair->second : pair->first, second ? pair->first : pair->second,
             ChannelEvent::Kind::kDown, "heartbeats are missing");
      }
      WatchSilence(pair);
    });
  }
}

// An end numbers what it starts: the numbers only grow.
void ControlNet::JudgeEpoch(size_t from, const engine::Message& message) {
  engine::EndId to;
  uint32_t epoch = 0;
  if (const auto* record = std::get_if<engine::Record>(&message)) {
    to = record->to;
    epoch = record->epoch;
  } else if (const auto* offer = std::get_if<engine::Offer>(&message)) {
    to = offer->to;
    epoch = offer->epoch;
  } else {
    return;
  }
  uint32_t& last = epochs_[{to, message.index()}];
  if (epoch < last) {
    world_->violations().Add(absl::StrCat(world_->hosts()[from]->host()->name, " sends a ",
                                          control::MessageName(message), " of epoch ", epoch,
                                          " after one of epoch ", last));
  }
  last = std::max(last, epoch);
}

bool ControlNet::EverUp(size_t a, size_t b) { return PairOf(a, b)->ever_up; }

bool ControlNet::Carry(size_t from, size_t to, const engine::Message& message) {
  const absl::StatusOr<std::string> bytes = control::EncodeMessage(message);
  if (!bytes.ok()) {
    world_->violations().Add(
        absl::StrCat("a message of ", world_->hosts()[from]->host()->name,
                     " cannot be encoded: ", std::string(bytes.status().message())));
    return false;
  }
  absl::StatusOr<std::vector<engine::Message>> read =
      control::DecodeBatch({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
  if (!read.ok() || read->size() != 1) {
    world_->violations().Add(absl::StrCat(
        "a ", control::MessageName(message), " of ", world_->hosts()[from]->host()->name,
        " cannot be decoded: ", std::string(read.status().message())));
    return false;
  }
  ++messages_;
  JudgeEpoch(from, message);
  Pair* pair = PairOf(from, to);
  const bool to_second = to == pair->second;
  const uint64_t now = world_->now_ns();
  uint64_t delay = options_.delay_ns + prng_.Below(options_.delay_ns + 1);
  if (pair->slow_until_ns > now) delay += pair->slow_ns;
  if (pair->deaf_until_ns > now) return true;  // goes nowhere
  const uint64_t arrival = std::max(now + delay, pair->last_at[to_second] + 1);
  pair->last_at[to_second] = arrival;
  const uint64_t session = pair->session;
  auto carried = std::make_shared<engine::Message>(std::move(read->front()));
  After(arrival - now, [this, pair, session, from, to, to_second, carried] {
    if (pair->session != session || !world_->hosts()[to]->alive()) return;
    if (!pair->knows[to_second]) return;
    SimChannel* channel = channels_[to].get();
    ChannelEvent event;
    event.kind = ChannelEvent::Kind::kMessage;
    event.peer = world_->hosts()[from]->instance_id();
    event.message = std::move(*carried);
    channel->inbox_.push_back(std::move(event));
    channel->wake_();
  });
  return true;
}

// ---- a host's end

void SimChannel::Add(InstanceId peer, engine::ConnectionId connection, const control::Secret&,
                     const std::vector<control::SocketAddress>&) {
  const size_t other = net_->IndexOf(peer);
  wanted_[peer].insert(connection);
  if (other >= net_->channels_.size() || other == host_) return;
  net_->Consider(net_->PairOf(host_, other));
}

void SimChannel::Remove(InstanceId peer, engine::ConnectionId connection) {
  const auto found = wanted_.find(peer);
  if (found == wanted_.end()) return;
  const auto one = found->second.find(connection);
  if (one != found->second.end()) found->second.erase(one);
  if (!found->second.empty()) return;
  const size_t other = net_->IndexOf(peer);
  if (other >= net_->channels_.size() || other == host_) {
    wanted_.erase(found);
    return;
  }
  std::erase_if(inbox_, [peer](const ChannelEvent& event) { return event.peer == peer; });
  ControlNet::Pair* pair = net_->PairOf(host_, other);
  const bool mine = host_ == pair->second;
  if (pair->up && !pair->knows[mine] && !pair->leaving[mine]) {
    net_->Break(pair, "closed by the peer");  // it was being made
  } else if (pair->up && pair->knows[mine]) {
    (void)net_->Carry(host_, other, engine::Goodbye{.reason = "the last connection is closed"});
    // The session ends behind it.
    const uint64_t session = pair->session;
    pair->knows[mine] = false;
    pair->leaving[mine] = true;
    net_->After(pair->last_at[!mine] + 1 - net_->world_->now_ns(), [this, pair, session] {
      if (pair->session == session) net_->Break(pair, "closed by the peer");
    });
  }
  wanted_.erase(found);
}

bool SimChannel::IsUp(InstanceId peer) const {
  const size_t other = net_->IndexOf(peer);
  if (other >= net_->channels_.size()) return false;
  const ControlNet::Pair* pair = net_->PairOf(host_, other);
  return pair->knows[host_ == pair->second];
}

bool SimChannel::Send(InstanceId peer, const engine::Message& message) {
  if (!IsUp(peer)) return false;
  const size_t other = net_->IndexOf(peer);
  const ControlNet::Pair* pair = net_->PairOf(host_, other);
  if (!pair->up) return true;  // this end does not know it yet: lost
  return net_->Carry(host_, other, message);
}

std::vector<ChannelEvent> SimChannel::Poll(int64_t) {
  std::vector<ChannelEvent> events(std::make_move_iterator(inbox_.begin()),
                                   std::make_move_iterator(inbox_.end()));
  inbox_.clear();
  return events;
}

}  // namespace railhop::sim
