// One connection's share of a leg, from either end: what is posted, what is done, and whether the
// bytes are right.
//
// A group of a leg is what one irecv takes: `leg.group` messages. Groups are numbered from 0 in
// each connection; group g uses slot g % in_flight of the buffers. Both ends compute the same
// numbers and patterns, so nothing but the messages themselves goes between them.
//
// With leg.check_all every message has a pattern of its own, the receiver compares every byte the
// moment test() says done, and the sender spoils its buffer the moment test() says done: bytes that
// a plugin delivers late, early, twice or elsewhere are wrong bytes. Otherwise every slot keeps one
// pattern, and what the slots hold at the end is compared.
#ifndef RAILHOP_CC_NETPERF_STREAM_H_
#define RAILHOP_CC_NETPERF_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/netperf/board.h"
#include "cc/netperf/links.h"
#include "cc/netperf/net_plugin.h"
#include "cc/netperf/plan.h"

namespace railhop::netperf {

// A time without a message on a connection that had some before and after it; CLOCK_MONOTONIC.
struct Gap {
  int connection = 0;
  uint64_t after = 0;  // messages of the connection before it
  int64_t from_ns = 0;
  int64_t to_ns = 0;
};

// What a step came to.
enum class Step {
  kIdle,   // nothing new: other connections may have their turn
  kMoved,  // something was posted or is done
  kFailed  // a call gave no success: problem() has it
};

class SendStream {
 public:
  // `groups` of the leg fall to this connection. Keeps references.
  SendStream(NetPlugin& plugin, Link& link, const Leg& leg, uint64_t groups);

  Step Advance();
  bool Done() const { return done_ == groups_; }
  // The number of groups whose sends are all done.
  uint64_t done() const { return done_; }
  int connection() const { return link_.number; }
  // No group beyond this one is posted (kPingPong).
  void set_limit(uint64_t groups) { limit_ = groups; }
  // The leg stops: no new group but those that the receiver still waits for.
  void MeetEnd(Board::Meeting* meeting);
  // Wrong bytes in the guard zones.
  uint64_t Finish();
  const std::string& problem() const { return problem_; }

 private:
  uint64_t Slot(uint64_t group) const { return group % static_cast<uint64_t>(leg_.in_flight); }
  void Fill(uint64_t group);
  Step Post();
  Step Test();

  NetPlugin& plugin_;
  Link& link_;
  const Leg leg_;
  uint64_t groups_;
  const uint64_t slots_;  // that the leg uses
  uint64_t limit_;
  bool stopping_ = false;
  uint64_t next_ = 0;  // group to post
  int next_part_ = 0;  // of it
  uint64_t done_ = 0;
  std::vector<void*> requests_;  // by slot and part; null: done
  std::string problem_;
};

class RecvStream {
 public:
  // As SendStream. Counts go to *counts.
  RecvStream(NetPlugin& plugin, Link& link, const Leg& leg, uint64_t groups, Counts* counts);

  // *received: messages that came.
  Step Advance(int* received);
  bool Done() const { return done_ == groups_; }
  uint64_t done() const { return done_; }
  void set_limit(uint64_t groups) { limit_ = groups; }
  // The leg stops: the groups are those that either end has begun.
  void MeetEnd(Board::Meeting* meeting);
  // Of leg.gap_min_ns and more.
  const std::vector<Gap>& gaps() const { return gaps_; }
  int connection() const { return link_.number; }
  // Compares what the slots hold and the guard zones.
  void Finish();
  const std::string& problem() const { return problem_; }

 private:
  uint64_t Slot(uint64_t group) const { return group % static_cast<uint64_t>(leg_.in_flight); }
  Step Post();
  void Accept(const int* sizes);
  void Compare(uint64_t group, int part);
  void NoteGap(int64_t now_ns);

  NetPlugin& plugin_;
  Link& link_;
  const Leg leg_;
  uint64_t groups_;
  const uint64_t slots_;
  Counts* const counts_;
  uint64_t limit_;
  bool stopping_ = false;
  bool met_ = false;
  std::vector<Gap> gaps_;
  uint64_t next_ = 0;
  uint64_t done_ = 0;
  int64_t last_ns_ = 0;
  std::vector<void*> requests_;  // by slot
  std::string problem_;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_STREAM_H_
