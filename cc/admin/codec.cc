#include "cc/admin/codec.h"

#include <string>
#include <utility>
#include <variant>

#include "cc/proto/admin.pb.h"

namespace railhop::admin {
namespace {

namespace proto = railhop::proto::admin;

// Printable ASCII; a line break becomes a blank, all else that is not printable '?'.
std::string Printable(const std::string& text) {
  std::string printable = text;
  for (char& c : printable) {
    if (c == '\n' || c == '\t') {
      c = ' ';
    } else if (c < 0x20 || c >= 0x7f) {
      c = '?';
    }
  }
  return printable;
}

// Numbers of a later version are kUnknown.
template <typename Enum, Enum last>
Enum Known(int number) {
  return number > 0 && number <= static_cast<int>(last) ? static_cast<Enum>(number)
                                                        : Enum::kUnknown;
}

// ---- To protobuf: fields in the order of records.h and requests.h.

void Put(const Process& from, proto::Process* to) {
  to->set_pid(from.pid);
  to->set_host(Printable(from.host));
  to->set_job(Printable(from.job));
  to->set_program(Printable(from.program));
  to->set_version(Printable(from.version));
  to->set_api_version(from.api_version);
  to->set_instance(Printable(from.instance));
  to->set_start_unix_ns(from.start_unix_ns);
  to->set_now_unix_ns(from.now_unix_ns);
  to->set_failover(from.failover);
  to->set_running(from.running);
}

void Put(const Device& from, proto::Device* to) {
  to->set_name(Printable(from.name));
  to->set_pci(Printable(from.pci));
  to->set_numa_node(from.numa_node);
  to->set_removed(from.removed);
}

void Put(const Port& from, proto::Port* to) {
  to->set_name(Printable(from.name));
  to->set_device(Printable(from.device));
  to->set_number(from.number);
  to->set_state(static_cast<proto::PortState>(from.state));
  to->set_cause(static_cast<proto::Cause>(from.cause));
  to->set_since_unix_ns(from.since_unix_ns);
  to->set_link_layer(Printable(from.link_layer));
  to->set_speed_mbps(from.speed_mbps);
  to->set_mtu_bytes(from.mtu_bytes);
  to->set_gid(Printable(from.gid));
  to->set_lid(from.lid);
  to->set_rail(from.rail);
  to->set_covered(from.covered);
  to->set_connections(from.connections);
  to->set_lanes(from.lanes);
  to->set_lanes_backup(from.lanes_backup);
  to->set_flaps(from.flaps);
  to->set_hold_down_ns(from.hold_down_ns);
  to->set_held_by_command(from.held_by_command);
}

void Put(const Path& from, proto::Path* to) {
  to->set_port(Printable(from.port));
  to->set_peer_host(Printable(from.peer_host));
  to->set_peer_instance(Printable(from.peer_instance));
  to->set_peer_port(Printable(from.peer_port));
  to->set_state(static_cast<proto::PathState>(from.state));
  to->set_since_unix_ns(from.since_unix_ns);
  to->set_last_answer_unix_ns(from.last_answer_unix_ns);
  to->set_probes_sent(from.probes_sent);
  to->set_probes_lost(from.probes_lost);
  to->set_flaps(from.flaps);
}

void Put(const Connection& from, proto::Connection* to) {
  to->set_id(Printable(from.id));
  to->set_direction(static_cast<proto::Direction>(from.direction));
  to->set_peer_host(Printable(from.peer_host));
  to->set_peer_instance(Printable(from.peer_instance));
  to->set_label(Printable(from.label));
  to->set_state(static_cast<proto::ConnectionState>(from.state));
  to->set_epoch(from.epoch);
  for (const std::string& text : from.ports) to->add_ports(Printable(text));
  for (const std::string& text : from.home_ports) to->add_home_ports(Printable(text));
  to->set_lanes(from.lanes);
  to->set_lanes_backup(from.lanes_backup);
  to->set_bytes(from.bytes);
  to->set_messages(from.messages);
  to->set_outstanding(from.outstanding);
  to->set_hindered_ns(from.hindered_ns);
  to->set_episodes(from.episodes);
  to->set_reason(Printable(from.reason));
}

void Put(const Episode& from, proto::Episode* to) {
  to->set_id(from.id);
  to->set_begin_unix_ns(from.begin_unix_ns);
  to->set_end_unix_ns(from.end_unix_ns);
  to->set_port(Printable(from.port));
  to->set_peer_host(Printable(from.peer_host));
  to->set_peer_port(Printable(from.peer_port));
  to->set_cause(static_cast<proto::Cause>(from.cause));
  to->set_blame(static_cast<proto::Blame>(from.blame));
  to->set_connections(from.connections);
  to->set_bytes_resent(from.bytes_resent);
  to->set_detect_ns(from.detect_ns);
  to->set_agree_ns(from.agree_ns);
  to->set_resume_ns(from.resume_ns);
  for (const std::string& text : from.ports_after) to->add_ports_after(Printable(text));
  to->set_recovered(from.recovered);
}

void Put(const Health& from, proto::Health* to) {
  Put(from.process, to->mutable_process());
  to->set_verdict(static_cast<proto::Verdict>(from.verdict));
  for (const Device& one : from.devices) Put(one, to->add_devices());
  for (const Port& one : from.ports) Put(one, to->add_ports());
  for (const Path& one : from.paths) Put(one, to->add_paths());
  for (const Connection& one : from.connections) Put(one, to->add_connections());
  for (const Episode& one : from.episodes) Put(one, to->add_episodes());
}

void Put(const PortStats& from, proto::PortStats* to) {
  to->set_name(Printable(from.name));
  to->set_sent_bytes(from.sent_bytes);
  to->set_received_bytes(from.received_bytes);
  to->set_sent_messages(from.sent_messages);
  to->set_received_messages(from.received_messages);
  to->set_resent_bytes(from.resent_bytes);
  to->set_stalls(from.stalls);
  to->set_faults(from.faults);
}

void Put(const CauseCount& from, proto::CauseCount* to) {
  to->set_cause(static_cast<proto::Cause>(from.cause));
  to->set_count(from.count);
}

void Put(const Histogram& from, proto::Histogram* to) {
  to->set_name(Printable(from.name));
  to->set_unit(Printable(from.unit));
  to->mutable_bounds()->Add(from.bounds.begin(), from.bounds.end());
  to->mutable_counts()->Add(from.counts.begin(), from.counts.end());
  to->set_count(from.count);
  to->set_sum(from.sum);
  to->set_max(from.max);
}

void Put(const Stats& from, proto::Stats* to) {
  Put(from.process, to->mutable_process());
  for (const PortStats& one : from.ports) Put(one, to->add_ports());
  for (const CauseCount& one : from.faults) Put(one, to->add_faults());
  to->set_episodes_begun(from.episodes_begun);
  to->set_episodes_recovered(from.episodes_recovered);
  to->set_gave_up(from.gave_up);
  to->set_bytes_resent(from.bytes_resent);
  to->set_stripes_resent(from.stripes_resent);
  to->set_probes_sent(from.probes_sent);
  to->set_probes_answered(from.probes_answered);
  to->set_probes_lost(from.probes_lost);
  to->set_stale_messages(from.stale_messages);
  to->set_refused_messages(from.refused_messages);
  for (const Histogram& one : from.histograms) Put(one, to->add_histograms());
}

void Put(const Event& from, proto::Event* to) {
  to->set_serial(from.serial);
  to->set_time_unix_ns(from.time_unix_ns);
  to->set_kind(static_cast<proto::EventKind>(from.kind));
  to->set_severity(static_cast<proto::Severity>(from.severity));
  to->set_episode(from.episode);
  to->set_port(Printable(from.port));
  to->set_peer_host(Printable(from.peer_host));
  to->set_peer_port(Printable(from.peer_port));
  to->set_connection(Printable(from.connection));
  to->set_direction(static_cast<proto::Direction>(from.direction));
  to->set_epoch(from.epoch);
  to->set_cause(static_cast<proto::Cause>(from.cause));
  to->set_blame(static_cast<proto::Blame>(from.blame));
  to->set_value(from.value);
  to->set_bytes(from.bytes);
  to->set_text(Printable(from.text));
}

void Put(const EventList& from, proto::EventList* to) {
  for (const Event& one : from.events) Put(one, to->add_events());
  to->set_gone(from.gone);
  to->set_last_serial(from.last_serial);
}

void Put(const Option& from, proto::Option* to) {
  to->set_name(Printable(from.name));
  to->set_value(Printable(from.value));
  to->set_default_value(Printable(from.default_value));
  to->set_source(Printable(from.source));
  to->set_unit(Printable(from.unit));
  to->set_range(Printable(from.range));
  to->set_doc(Printable(from.doc));
  to->set_changeable(from.changeable);
  to->set_note(Printable(from.note));
}

void Put(const Outcome& from, proto::Outcome* to) {
  for (const std::string& text : from.ports) to->add_ports(Printable(text));
  to->set_connections(from.connections);
  to->set_text(Printable(from.text));
}

void Put(const Failure& from, proto::Error* to) {
  to->set_code(static_cast<proto::ErrorCode>(from.code));
  to->set_message(Printable(from.message));
}

void Put(const GetProcess&, proto::GetProcess*) {}

void Put(const GetHealth&, proto::GetHealth*) {}

void Put(const GetStats&, proto::GetStats*) {}

void Put(const GetEvents& from, proto::GetEvents* to) {
  to->set_after(from.after);
  to->set_limit(from.limit);
  to->set_wait_ns(from.wait_ns);
}

void Put(const ForceFailover& from, proto::ForceFailover* to) {
  to->set_target(Printable(from.target));
  to->set_mode(static_cast<proto::FailoverMode>(from.mode));
}

void Put(const FailBack& from, proto::FailBack* to) { to->set_target(Printable(from.target)); }

void Put(const Hold& from, proto::Hold* to) { to->set_target(Printable(from.target)); }

void Put(const Release& from, proto::Release* to) { to->set_target(Printable(from.target)); }

void Put(const GetConfig&, proto::GetConfig*) {}

void Put(const SetOption& from, proto::SetOption* to) {
  to->set_name(Printable(from.name));
  to->set_value(Printable(from.value));
}

void Put(const Config& from, proto::Config* to) {
  for (const Option& one : from.options) Put(one, to->add_options());
}

// ---- From protobuf.

void Get(const proto::Process& from, Process* to) {
  to->pid = from.pid();
  to->host = Printable(from.host());
  to->job = Printable(from.job());
  to->program = Printable(from.program());
  to->version = Printable(from.version());
  to->api_version = from.api_version();
  to->instance = Printable(from.instance());
  to->start_unix_ns = from.start_unix_ns();
  to->now_unix_ns = from.now_unix_ns();
  to->failover = from.failover();
  to->running = from.running();
}

void Get(const proto::Device& from, Device* to) {
  to->name = Printable(from.name());
  to->pci = Printable(from.pci());
  to->numa_node = from.numa_node();
  to->removed = from.removed();
}

void Get(const proto::Port& from, Port* to) {
  to->name = Printable(from.name());
  to->device = Printable(from.device());
  to->number = from.number();
  to->state = Known<PortState, PortState::kRemoved>(from.state());
  to->cause = Known<Cause, Cause::kFailBack>(from.cause());
  to->since_unix_ns = from.since_unix_ns();
  to->link_layer = Printable(from.link_layer());
  to->speed_mbps = from.speed_mbps();
  to->mtu_bytes = from.mtu_bytes();
  to->gid = Printable(from.gid());
  to->lid = from.lid();
  to->rail = from.rail();
  to->covered = from.covered();
  to->connections = from.connections();
  to->lanes = from.lanes();
  to->lanes_backup = from.lanes_backup();
  to->flaps = from.flaps();
  to->hold_down_ns = from.hold_down_ns();
  to->held_by_command = from.held_by_command();
}

void Get(const proto::Path& from, Path* to) {
  to->port = Printable(from.port());
  to->peer_host = Printable(from.peer_host());
  to->peer_instance = Printable(from.peer_instance());
  to->peer_port = Printable(from.peer_port());
  to->state = Known<PathState, PathState::kHoldDown>(from.state());
  to->since_unix_ns = from.since_unix_ns();
  to->last_answer_unix_ns = from.last_answer_unix_ns();
  to->probes_sent = from.probes_sent();
  to->probes_lost = from.probes_lost();
  to->flaps = from.flaps();
}

void Get(const proto::Connection& from, Connection* to) {
  to->id = Printable(from.id());
  to->direction = Known<Direction, Direction::kReceive>(from.direction());
  to->peer_host = Printable(from.peer_host());
  to->peer_instance = Printable(from.peer_instance());
  to->label = Printable(from.label());
  to->state = Known<ConnectionState, ConnectionState::kUnprotected>(from.state());
  to->epoch = from.epoch();
  for (const std::string& text : from.ports()) to->ports.push_back(Printable(text));
  for (const std::string& text : from.home_ports()) to->home_ports.push_back(Printable(text));
  to->lanes = from.lanes();
  to->lanes_backup = from.lanes_backup();
  to->bytes = from.bytes();
  to->messages = from.messages();
  to->outstanding = from.outstanding();
  to->hindered_ns = from.hindered_ns();
  to->episodes = from.episodes();
  to->reason = Printable(from.reason());
}

void Get(const proto::Episode& from, Episode* to) {
  to->id = from.id();
  to->begin_unix_ns = from.begin_unix_ns();
  to->end_unix_ns = from.end_unix_ns();
  to->port = Printable(from.port());
  to->peer_host = Printable(from.peer_host());
  to->peer_port = Printable(from.peer_port());
  to->cause = Known<Cause, Cause::kFailBack>(from.cause());
  to->blame = Known<Blame, Blame::kConfiguration>(from.blame());
  to->connections = from.connections();
  to->bytes_resent = from.bytes_resent();
  to->detect_ns = from.detect_ns();
  to->agree_ns = from.agree_ns();
  to->resume_ns = from.resume_ns();
  for (const std::string& text : from.ports_after()) to->ports_after.push_back(Printable(text));
  to->recovered = from.recovered();
}

void Get(const proto::Health& from, Health* to) {
  Get(from.process(), &to->process);
  to->verdict = Known<Verdict, Verdict::kNoPath>(from.verdict());
  for (const proto::Device& one : from.devices()) Get(one, &to->devices.emplace_back());
  for (const proto::Port& one : from.ports()) Get(one, &to->ports.emplace_back());
  for (const proto::Path& one : from.paths()) Get(one, &to->paths.emplace_back());
  for (const proto::Connection& one : from.connections()) Get(one, &to->connections.emplace_back());
  for (const proto::Episode& one : from.episodes()) Get(one, &to->episodes.emplace_back());
}

void Get(const proto::PortStats& from, PortStats* to) {
  to->name = Printable(from.name());
  to->sent_bytes = from.sent_bytes();
  to->received_bytes = from.received_bytes();
  to->sent_messages = from.sent_messages();
  to->received_messages = from.received_messages();
  to->resent_bytes = from.resent_bytes();
  to->stalls = from.stalls();
  to->faults = from.faults();
}

void Get(const proto::CauseCount& from, CauseCount* to) {
  to->cause = Known<Cause, Cause::kFailBack>(from.cause());
  to->count = from.count();
}

void Get(const proto::Histogram& from, Histogram* to) {
  to->name = Printable(from.name());
  to->unit = Printable(from.unit());
  to->bounds.assign(from.bounds().begin(), from.bounds().end());
  to->counts.assign(from.counts().begin(), from.counts().end());
  to->count = from.count();
  to->sum = from.sum();
  to->max = from.max();
}

void Get(const proto::Stats& from, Stats* to) {
  Get(from.process(), &to->process);
  for (const proto::PortStats& one : from.ports()) Get(one, &to->ports.emplace_back());
  for (const proto::CauseCount& one : from.faults()) Get(one, &to->faults.emplace_back());
  to->episodes_begun = from.episodes_begun();
  to->episodes_recovered = from.episodes_recovered();
  to->gave_up = from.gave_up();
  to->bytes_resent = from.bytes_resent();
  to->stripes_resent = from.stripes_resent();
  to->probes_sent = from.probes_sent();
  to->probes_answered = from.probes_answered();
  to->probes_lost = from.probes_lost();
  to->stale_messages = from.stale_messages();
  to->refused_messages = from.refused_messages();
  for (const proto::Histogram& one : from.histograms()) Get(one, &to->histograms.emplace_back());
}

void Get(const proto::Event& from, Event* to) {
  to->serial = from.serial();
  to->time_unix_ns = from.time_unix_ns();
  to->kind = Known<EventKind, EventKind::kOptionSet>(from.kind());
  to->severity = Known<Severity, Severity::kWarning>(from.severity());
  to->episode = from.episode();
  to->port = Printable(from.port());
  to->peer_host = Printable(from.peer_host());
  to->peer_port = Printable(from.peer_port());
  to->connection = Printable(from.connection());
  to->direction = Known<Direction, Direction::kReceive>(from.direction());
  to->epoch = from.epoch();
  to->cause = Known<Cause, Cause::kFailBack>(from.cause());
  to->blame = Known<Blame, Blame::kConfiguration>(from.blame());
  to->value = from.value();
  to->bytes = from.bytes();
  to->text = Printable(from.text());
}

void Get(const proto::EventList& from, EventList* to) {
  for (const proto::Event& one : from.events()) Get(one, &to->events.emplace_back());
  to->gone = from.gone();
  to->last_serial = from.last_serial();
}

void Get(const proto::Option& from, Option* to) {
  to->name = Printable(from.name());
  to->value = Printable(from.value());
  to->default_value = Printable(from.default_value());
  to->source = Printable(from.source());
  to->unit = Printable(from.unit());
  to->range = Printable(from.range());
  to->doc = Printable(from.doc());
  to->changeable = from.changeable();
  to->note = Printable(from.note());
}

void Get(const proto::Outcome& from, Outcome* to) {
  for (const std::string& text : from.ports()) to->ports.push_back(Printable(text));
  to->connections = from.connections();
  to->text = Printable(from.text());
}

void Get(const proto::Error& from, Failure* to) {
  to->code = Known<ErrorCode, ErrorCode::kInternal>(from.code());
  to->message = Printable(from.message());
}

void Get(const proto::GetProcess&, GetProcess*) {}

void Get(const proto::GetHealth&, GetHealth*) {}

void Get(const proto::GetStats&, GetStats*) {}

void Get(const proto::GetEvents& from, GetEvents* to) {
  to->after = from.after();
  to->limit = from.limit();
  to->wait_ns = from.wait_ns();
}

void Get(const proto::ForceFailover& from, ForceFailover* to) {
  to->target = Printable(from.target());
  to->mode = Known<FailoverMode, FailoverMode::kNow>(from.mode());
}

void Get(const proto::FailBack& from, FailBack* to) { to->target = Printable(from.target()); }

void Get(const proto::Hold& from, Hold* to) { to->target = Printable(from.target()); }

void Get(const proto::Release& from, Release* to) { to->target = Printable(from.target()); }

void Get(const proto::GetConfig&, GetConfig*) {}

void Get(const proto::SetOption& from, SetOption* to) {
  to->name = Printable(from.name());
  to->value = Printable(from.value());
}

void Get(const proto::Config& from, Config* to) {
  for (const proto::Option& one : from.options()) Get(one, &to->options.emplace_back());
}

// The member of the oneof that a struct goes into.
proto::GetProcess* Member(const GetProcess&, proto::Request* to) {
  return to->mutable_get_process();
}
proto::GetHealth* Member(const GetHealth&, proto::Request* to) { return to->mutable_get_health(); }
proto::GetStats* Member(const GetStats&, proto::Request* to) { return to->mutable_get_stats(); }
proto::GetEvents* Member(const GetEvents&, proto::Request* to) { return to->mutable_get_events(); }
proto::ForceFailover* Member(const ForceFailover&, proto::Request* to) {
  return to->mutable_force_failover();
}
proto::FailBack* Member(const FailBack&, proto::Request* to) { return to->mutable_fail_back(); }
proto::Hold* Member(const Hold&, proto::Request* to) { return to->mutable_hold(); }
proto::Release* Member(const Release&, proto::Request* to) { return to->mutable_release(); }
proto::GetConfig* Member(const GetConfig&, proto::Request* to) { return to->mutable_get_config(); }
proto::SetOption* Member(const SetOption&, proto::Request* to) { return to->mutable_set_option(); }
proto::Error* Member(const Failure&, proto::Response* to) { return to->mutable_error(); }
proto::Process* Member(const Process&, proto::Response* to) { return to->mutable_process(); }
proto::Health* Member(const Health&, proto::Response* to) { return to->mutable_health(); }
proto::Stats* Member(const Stats&, proto::Response* to) { return to->mutable_stats(); }
proto::EventList* Member(const EventList&, proto::Response* to) { return to->mutable_events(); }
proto::Outcome* Member(const Outcome&, proto::Response* to) { return to->mutable_outcome(); }
proto::Config* Member(const Config&, proto::Response* to) { return to->mutable_config(); }
proto::Option* Member(const Option&, proto::Response* to) { return to->mutable_option(); }

template <typename Struct, typename Variant, typename Message>
Variant Read(const Message& message) {
  Struct read;
  Get(message, &read);
  return Variant(std::move(read));
}

Failure Invalid(std::string why) {
  return {.code = ErrorCode::kInvalid, .message = std::move(why)};
}
Failure Internal(std::string why) {
  return {.code = ErrorCode::kInternal, .message = std::move(why)};
}

// Nothing at all is a message without a body; protobuf's parser wants a pointer even then.
template <typename Message>
bool Parse(std::string_view bytes, size_t max, Message* message) {
  return bytes.size() <= max &&
         (bytes.empty() || message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
}

}  // namespace

std::string EncodeRequest(const Request& request) {
  proto::Request message;
  std::visit([&](const auto& body) { Put(body, Member(body, &message)); }, request);
  return message.SerializeAsString();
}

Reply<Request> DecodeRequest(std::string_view bytes) {
  proto::Request message;
  if (!Parse(bytes, kRequestBytesMax, &message)) {
    return Invalid("the request cannot be read: it is no message of the admin API");
  }
  using Body = proto::Request;
  switch (message.body_case()) {
    case Body::kGetProcess:
      return Read<GetProcess, Request>(message.get_process());
    case Body::kGetHealth:
      return Read<GetHealth, Request>(message.get_health());
    case Body::kGetStats:
      return Read<GetStats, Request>(message.get_stats());
    case Body::kGetEvents:
      return Read<GetEvents, Request>(message.get_events());
    case Body::kForceFailover:
      return Read<ForceFailover, Request>(message.force_failover());
    case Body::kFailBack:
      return Read<FailBack, Request>(message.fail_back());
    case Body::kHold:
      return Read<Hold, Request>(message.hold());
    case Body::kRelease:
      return Read<Release, Request>(message.release());
    case Body::kGetConfig:
      return Read<GetConfig, Request>(message.get_config());
    case Body::kSetOption:
      return Read<SetOption, Request>(message.set_option());
    case Body::BODY_NOT_SET:
      break;
  }
  return Invalid("the request is none that this version of Railhop knows");
}

std::string EncodeResponse(const Response& response) {
  proto::Response message;
  std::visit([&](const auto& body) { Put(body, Member(body, &message)); }, response);
  std::string bytes = message.SerializeAsString();
  if (bytes.size() <= kMessageBytesMax) return bytes;
  return EncodeResponse(Internal("the answer is too long to be sent"));
}

Reply<Response> DecodeResponse(std::string_view bytes) {
  proto::Response message;
  if (!Parse(bytes, kMessageBytesMax, &message)) {
    return Internal("the answer cannot be read: what answers is not Railhop");
  }
  using Body = proto::Response;
  switch (message.body_case()) {
    case Body::kError:
      return Read<Failure, Response>(message.error());
    case Body::kProcess:
      return Read<Process, Response>(message.process());
    case Body::kHealth:
      return Read<Health, Response>(message.health());
    case Body::kStats:
      return Read<Stats, Response>(message.stats());
    case Body::kEvents:
      return Read<EventList, Response>(message.events());
    case Body::kOutcome:
      return Read<Outcome, Response>(message.outcome());
    case Body::kConfig:
      return Read<Config, Response>(message.config());
    case Body::kOption:
      return Read<Option, Response>(message.option());
    case Body::BODY_NOT_SET:
      break;
  }
  return Internal(
      "the answer is none that this version of Railhop knows: use one as new as the job's");
}

}  // namespace railhop::admin
