#include "python/railhop/_transport/inbox.h"

#include <cstring>
#include <utility>

namespace railhop::transport {

std::string Inbox::Take(const uint8_t* slot, size_t bytes, Matched* complete) {
  Header header;
  if (bytes < kHeaderBytes) return "a message of " + std::to_string(bytes) + " bytes came";
  memcpy(&header, slot, sizeof(header));
  const uint64_t part = bytes - kHeaderBytes;
  if (header.magic != Header::kMagic || header.offset > header.total ||
      part > header.total - header.offset) {
    return "a message came that no sender of this kind makes";
  }
  const auto [at, is_new] = messages_.try_emplace(header.serial);
  Message& message = at->second;
  if (is_new) {
    message.kind = header.kind;
    message.tag = header.tag;
    message.total = header.total;
    Announce();
  }
  if (part > 0 && !message.dropped) {
    if (message.operation == nullptr && message.kept.empty()) message.kept.resize(message.total);
    uint8_t* target = message.operation != nullptr ? message.operation->data : message.kept.data();
    memcpy(target + header.offset, slot + kHeaderBytes, part);
  }
  message.come += part;
  TakeComplete(complete);
  return "";
}

void Inbox::Announce() {
  for (auto at = messages_.find(next_); at != messages_.end(); at = messages_.find(next_)) {
    ++next_;
    at->second.announced = true;
    if (at->second.kind == kGoodbyeKind) {
      said_goodbye_ = at->second.dropped = true;
    } else {
      Match(&at->second);
    }
  }
}

void Inbox::Match(Message* message) {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Operation& receive = **at;
    if (receive.tag != message->tag || (receive.peer != peer_ && receive.peer != -1)) continue;
    std::shared_ptr<Operation> operation = std::move(*at);
    waiting_.erase(at);
    Attach(message, std::move(operation));
    return;
  }
}

void Inbox::Attach(Message* message, std::shared_ptr<Operation> operation) {
  operation->source = peer_;
  if (operation->kind != message->kind || operation->size != message->total) {
    operation->failure = FailureKind::kMismatch;
    operation->problem = std::to_string(message->kind) + " " + std::to_string(message->total);
    message->dropped = true;
  } else if (!message->kept.empty()) {
    memcpy(operation->data, message->kept.data(), message->total);
  }
  message->kept = {};
  message->operation = std::move(operation);
}

void Inbox::TakeComplete(Matched* complete) {
  for (auto at = messages_.begin(); at != messages_.end();) {
    const auto current = at++;
    Message& message = current->second;
    const bool whole = message.announced && message.come >= message.total;
    const bool taken = message.operation != nullptr || message.dropped;
    // What does not fit is said at once.
    if (message.operation != nullptr && (whole || message.dropped)) {
      complete->push_back(std::move(message.operation));
    }
    if (whole && taken) messages_.erase(current);
  }
}

void Inbox::MatchWaiting(Matched* complete) {
  for (auto& [serial, message] : messages_) {
    if (!message.announced) break;
    if (message.operation == nullptr && !message.dropped) Match(&message);
  }
  TakeComplete(complete);
}

void Inbox::Forget(const Operation* operation) {
  for (auto& [serial, message] : messages_) {
    if (message.operation.get() != operation) continue;
    message.operation = nullptr;
    message.dropped = true;
  }
}

}  // namespace railhop::transport
