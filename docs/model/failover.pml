/* One connection and the way it leaves lanes and gets new ones, as docs/failover.md describes and
 * cc/engine/failover.cc, cc/datapath and cc/runtime/driver_*.cc do it. README.md says what is left
 * out, how it is run and what the names of mutants mean.
 *
 * End 0 sends, end 1 receives. A connection has two places, 0 and 1; a lane is a place and the epoch
 * it was made in, and a set of lanes is two bytes: the epoch at each place, 0 for none.
 * All arrays with two values for each end are indexed 2*end + place.
 */

/* ---- Bounds. FAULTS and the like are the most there may be of each; any smaller number happens. */
#ifndef TRANSFERS
#define TRANSFERS 2
#endif
#ifndef WINDOW
#define WINDOW 1 /* receives that may be open at once: slots of the sender's FIFO */
#endif
#ifndef STRIPES
#define STRIPES 1 /* of each transfer */
#endif
#ifndef FAULTS
#define FAULTS 1 /* of a lane, noticed by either end or both */
#endif
#ifndef DYING
#define DYING 0 /* packets that are acknowledged and never written */
#endif
#ifndef SILENT
#define SILENT 0 /* fences that lose what had arrived and was not polled: no marker came */
#endif
#ifndef BREAKS
#define BREAKS 0 /* of the control channel's session */
#endif
#ifndef HANDOVERS
#define HANDOVERS 0
#endif
#ifndef OFFERS
#define OFFERS 0 /* offers made in the middle of an episode; outside there is no bound */
#endif
#ifndef DROPS
#define DROPS 0 /* offers that the sender gives up before an answer has come */
#endif
#ifndef CONFIRM
#define CONFIRM 0 /* 1: a send is done only once the receiver has confirmed it */
#endif

/* ---- Mutants: MUTANT is one of these numbers (their names are in configurations.txt). */
#ifndef MUTANT
#define MUTANT 0
#endif
#define NO_DATA_FENCE (MUTANT == 1)
#define NO_ENTRY_FENCE (MUTANT == 2)
#define RESET_FIRST (MUTANT == 3)
#define TRUST_ACKS (MUTANT == 4)
#define ANY_EPOCH (MUTANT == 5 || MUTANT == 29)
#define ANY_LANES (MUTANT == 6 || MUTANT == 29)
#define NO_RECORD (MUTANT == 7)
#define LOSS_IGNORED (MUTANT == 8)
#define NO_DRAIN (MUTANT == 9)
#define HEALTHY_TOO (MUTANT == 10)
#define FENCE_REPLACES (MUTANT == 11)
#define REPEAT_NO_RECORD (MUTANT == 12)
#define QUIET_DROPPED (MUTANT == 13 || MUTANT == 30)
#define QUIET_NOT_KEPT (MUTANT == 30)
#define THROUGH_IS_MUTE (MUTANT == 14)
#define SENDER_IS_MUTE (MUTANT == 15)
#define ANY_ENTRY (MUTANT == 16)
#define PLACE_AT_ONCE (MUTANT == 17)
#define USE_BEFORE_ANSWER (MUTANT == 18)
#define NOT_AGAIN (MUTANT == 19)
#define NEXT_TOO_EARLY (MUTANT == 20)
#define ASK_ONCE (MUTANT == 21)
#define UP_ONCE (MUTANT == 22)
#define RIDES_ONLY (MUTANT == 23)
#define QUIET_ONCE (MUTANT == 24)
#define NO_UNION (MUTANT == 25)
#define ANY_LANE_AGAIN (MUTANT == 26)
#define PLACE_OF_EPISODE (MUTANT == 27)
#define OLDER_STAYS (MUTANT == 28)

#define TRACK_POLLS (RESET_FIRST || SILENT > 0)

#define PIECES (TRANSFERS * STRIPES)
#define BIT(x) (1 << (x))
#define OF(k) (((1 << STRIPES) - 1) << ((k) * STRIPES))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* ---- The control channel: kind, epoch, a lane at each place, what else. */
mtype = { FENCE, ASK, RECORD, QUIET, OFFER, ANSWER, UP };
#define ROOM 7
chan to_r = [ROOM] of { mtype, byte, byte, byte, byte };
chan to_s = [ROOM] of { mtype, byte, byte, byte, byte };
#define FREE(c) (len(c) <= ROOM - 4)

/* ---- The machine of each end. */
#define RUN 0
#define ASKING 1
#define FENCING 2
#define COMPARING 3
byte phase[2], episode[2], epoch[2];
byte lanes[4];    /* of the episode */
byte fenced[4];   /* newest epoch fenced at this place */
byte retiring[4]; /* epoch of the lane that is left in order */
bool quiet[4];    /* of these: drained here */
bool has_record;  /* sender: the peer's came before the last fence */
bool has_record_r;
byte ledger;      /* sender: as that record has it */

/* ---- Lanes of each end. */
#define NONE 0
#define MADE 1 /* receiver: before UP */
#define OPEN 2
#define RETIRED 3
#define SUSPECT 4
#define GONE 5 /* fenced; the place is free once the records have been compared */
byte lane[4], state[4];
byte making[2]; /* receiver: epoch under way */
byte offer;     /* sender: epoch of the offer that is out */
byte offer_at;
byte offered;   /* receiver: the newest offer's */
byte said_up[2];
byte faulty[2]; /* epoch of the lane at this place that has failed */
byte seen[2];   /* by which ends it may be noticed: 1 the sender, 2 the receiver */

/* ---- Data. */
byte flying[2];  /* pieces on their way on the lane at this place */
byte acks[2];    /* acknowledgements on their way back */
byte late[2];    /* mutants: pieces of a lane that counts as fenced */
byte at[PIECES]; /* sender: 0 = to be posted, 1 + place, 3 = settled */
byte acked, taken, sent; /* pieces, number of transfers, transfers as bits */
byte ever;               /* pieces that were posted once */
byte confirmed;          /* sender: all transfers below are complete at the receiver */
byte arrived, unpolled[2]; /* receiver's ledger, as pieces */
byte posted, received;     /* number of receives, transfers as bits */
byte memory[WINDOW * STRIPES];

/* ---- Clear-to-send entries: transfer (CONFIRMATION: none), epoch, lanes whose keys are in it,
 * first transfer that is not complete, whether it was announced before. */
#define CONFIRMATION 7
chan entries0 = [4] of { byte, byte, byte, byte, byte, bit };
chan entries1 = [4] of { byte, byte, byte, byte, byte, bit };
chan old_entries = [3] of { byte, byte, byte, byte, byte, bit };
byte fifo[WINDOW], fifo_epoch[WINDOW], fifo_key[2 * WINDOW];
byte entry_epoch = 1;  /* receiver: that entries carry */
byte again;            /* receiver: transfers to be announced again */
byte said_at[TRANSFERS], said_epoch[TRANSFERS];
byte told;             /* receiver: confirmed below, as the sender was told */
byte confirming;       /* 1 + place of a confirmation under way */

byte faults, dying, silent, breaks, handovers, offers, drops;
bool over;
byte pending; /* 1 + end: that end resumes; 3: the offer is dropped. Before anything else. */
/* Of no end: what has happened. */
bool lost_by_nic, any_fault;

/* Scratch of a step. */
hidden byte e_, a_, b_, m_, n_, x_, k_, i_, f0_, f1_, j0_, j1_, z_;
hidden byte p_, q_, r_, s_, t_;
hidden byte w_;
hidden mtype kind_;

/* What is sent on a lane that the other end has fenced, or has not made, is lost. */
#define REACHES(end, i)                                                                        \
  (lane[2 * (end) + i] == lane[2 * (1 - (end)) + i] && state[2 * (1 - (end)) + i] != GONE)
#define ON (!over && pending == 0)
#define BUSY(end) (phase[end] != RUN)
#define OPEN_ENTRIES(i) ((i) == 0 -> len(entries0) : len(entries1))
#define COMPLETE(k) ((arrived & OF(k)) == OF(k))
#define IS_OPEN(k) ((k) < posted && !COMPLETE(k))
#define ALL_SENT (sent == (1 << TRANSFERS) - 1)
#define ALL_RECEIVED (received == (1 << TRANSFERS) - 1)
#define ALL_DONE (ALL_SENT && ALL_RECEIVED)
#define AT_REST                                                                               \
  (phase[0] == RUN && phase[1] == RUN && empty(to_r) && empty(to_s) && offer == 0 &&          \
   making[0] == 0 && making[1] == 0 && !retiring[0] && !retiring[1] && !retiring[2] &&        \
   !retiring[3] && lane[0] == lane[2] && lane[1] == lane[3] && state[0] == state[2] &&        \
   state[1] == state[3])

inline say(end, kind, ep, l0, l1, more) {
  if
  :: (end) == 0 -> to_r!kind, ep, l0, l1, more
  :: else -> to_s!kind, ep, l0, l1, more
  fi
}

inline say_record(end) {
  if
  :: (end) == 0 -> to_r!RECORD, episode[0], lanes[0], lanes[1], 0
  :: else -> to_s!RECORD, episode[1], lanes[2], lanes[3], arrived
  fi
}

/* Of the lanes a_, b_ that an event names: f0_, f1_ are news to this end; j0_, j1_ is the episode
 * that comes of it, with the lanes of one that is not finished. */
inline place_facts(end, i, named, news, whole) {
  news = ((named) != 0 && fenced[2 * (end) + i] < (named) &&
          !(BUSY(end) && lanes[2 * (end) + i] == (named)) -> (named) : 0);
  whole = named;
  if
  :: BUSY(end) && lanes[2 * (end) + i] != 0 && lanes[2 * (end) + i] != whole && !NO_UNION ->
     /* Two lanes of one place: the older one is gone. */
     assert(whole == 0 || fenced[2 * (end) + i] >= (whole < lanes[2 * (end) + i] -> whole : lanes[2 * (end) + i]));
     whole = MAX(whole, lanes[2 * (end) + i])
  :: else
  fi
}
inline facts(end) {
  place_facts(end, 0, a_, f0_, j0_);
  place_facts(end, 1, b_, f1_, j1_)
}

inline join(end) {
  lanes[2 * (end)] = j0_;
  lanes[2 * (end) + 1] = j1_;
  if
  :: j0_ != 0 && retiring[2 * (end)] == j0_ -> retiring[2 * (end)] = 0; quiet[2 * (end)] = 0
  :: else
  fi;
  if
  :: j1_ != 0 && retiring[2 * (end) + 1] == j1_ -> retiring[2 * (end) + 1] = 0; quiet[2 * (end) + 1] = 0
  :: else
  fi;
  if
  :: (end) == 0 -> has_record = 0
  :: else -> has_record_r = 0
  fi
}

/* Nothing more is posted to this lane, and its fence has begun; one that is not here is fenced. */
inline stop_one(end, i, ep) {
  if
  :: (ep) == 0
  :: (ep) != 0 && lane[2 * (end) + i] == (ep) && state[2 * (end) + i] < SUSPECT ->
     state[2 * (end) + i] = SUSPECT
  :: (ep) != 0 && lane[2 * (end) + i] == (ep) && state[2 * (end) + i] >= SUSPECT
  :: (ep) != 0 && lane[2 * (end) + i] != (ep) ->
     fenced[2 * (end) + i] = MAX(fenced[2 * (end) + i], ep);
     if
     :: (end) == 1 && making[i] == (ep) -> making[i] = 0
     :: else
     fi;
     if
     :: (end) == 0 && offer == (ep) -> offer = 0
     :: else
     fi
  fi
}
#define FENCED_ALL(end)                                                       \
  ((lanes[2 * (end)] == 0 || fenced[2 * (end)] >= lanes[2 * (end)]) &&         \
   (lanes[2 * (end) + 1] == 0 || fenced[2 * (end) + 1] >= lanes[2 * (end) + 1]))
#define FENCED_JOINED(end)                                    \
  ((j0_ == 0 || fenced[2 * (end)] >= j0_) && (j1_ == 0 || fenced[2 * (end) + 1] >= j1_))

inline stop(end) {
  stop_one(end, 0, f0_);
  stop_one(end, 1, f1_)
}
/* After each fence: whether it was the last. */
inline after_fence(end) {
  if
  :: phase[end] == FENCING && FENCED_ALL(end) && ((end) == 0 -> has_record : has_record_r) ->
     say_record(end);
     pending = 1 + (end)
  :: phase[end] == FENCING && FENCED_ALL(end) && !((end) == 0 -> has_record : has_record_r) ->
     say_record(end);
     phase[end] = COMPARING;
     if
     :: NO_RECORD && (end) == 0 -> ledger = acked; pending = 1
     :: else
     fi
  :: else
  fi
}

inline suspect(end) { /* a_, b_ */
  facts(end);
  if
  :: f0_ == 0 && f1_ == 0
  :: else ->
     a_ = f0_; b_ = f1_;
     facts(end);
     if
     :: (end) == 0 ->
        epoch[0]++; episode[0] = epoch[0];
        join(0); stop(0);
        to_r!FENCE, episode[0], lanes[0], lanes[1], 0;
        phase[0] = FENCING;
        after_fence(0)
     :: else ->
        join(1); stop(1);
        to_s!ASK, episode[1], lanes[2], lanes[3], 0;
        phase[1] = ASKING
     fi
  fi
}

/* ---- Resuming: the records of both ends name the same epoch and lanes. */
#define MISSING(x) (at[x] == 1 + i_ && !(ledger & BIT(x)))
inline compare_piece(x) {
  if
  :: x < PIECES && (at[x] == 1 + i_ || (HEALTHY_TOO && (at[x] == 1 || at[x] == 2))) ->
     if
     :: TRUST_ACKS -> at[x] = (acked & BIT(x) -> 3 : 0)
     :: !TRUST_ACKS && (ledger & BIT(x)) -> acked = acked | BIT(x); at[x] = 3
     :: !TRUST_ACKS && !(ledger & BIT(x)) && (sent & BIT(x / STRIPES)) ->
        if
        :: LOSS_IGNORED -> at[x] = 3
        :: else ->
           over = 1;
           /* Only a NIC that died can do this, and never with confirmations. */
           assert(lost_by_nic && CONFIRM == 0)
        fi
     :: else -> acked = acked & ~BIT(x); at[x] = 0
     fi
  :: else
  fi
}
inline resume_place(end, i) {
  if
  :: lanes[2 * (end) + i] != 0 ->
     if
     :: (end) == 0 && lane[i] == lanes[i] ->
        i_ = i;
        compare_piece(0); compare_piece(1); compare_piece(2); compare_piece(3);
        lane[i] = 0; state[i] = NONE; said_up[i] = 0
     /* A newer lane stands for the older ones of its place. */
     :: (end) == 1 && lane[2 + i] != 0 && state[2 + i] == GONE &&
            (lane[2 + i] == lanes[2 + i] || (lane[2 + i] < lanes[2 + i] && !OLDER_STAYS)) ->
        lane[2 + i] = 0; state[2 + i] = NONE;
        if
        :: confirming == 1 + i -> confirming = 0; told = 0
        :: else
        fi
     :: else
     fi
  :: else
  fi
}
inline again_all(end) {
  m_ = 0;
  do
  :: m_ < TRANSFERS -> again = (IS_OPEN(m_) -> again | BIT(m_) : again); m_++
  :: else -> break
  od
}
inline resume(end) {
  resume_place(end, 0);
  resume_place(end, 1);
  phase[end] = RUN;
  if
  :: (end) == 0 ->
     n_ = 0;
     do
     :: n_ < TRANSFERS && n_ >= confirmed && (ledger & OF(n_)) == OF(n_) && n_ == confirmed -> confirmed++; n_++
     :: n_ < TRANSFERS && !(n_ >= confirmed && (ledger & OF(n_)) == OF(n_) && n_ == confirmed) -> n_++
     :: n_ >= TRANSFERS -> break
     od
  :: else ->
     entry_epoch = MAX(entry_epoch, episode[1]);
     if
     :: NOT_AGAIN
     :: else -> again_all(end)
     fi
  fi;
  /* A hand-over that the episode has kept. */
  if
  :: (quiet[2 * (end)] || quiet[2 * (end) + 1]) && !QUIET_NOT_KEPT ->
     a_ = (quiet[2 * (end)] -> retiring[2 * (end)] : 0);
     b_ = (quiet[2 * (end) + 1] -> retiring[2 * (end) + 1] : 0);
     if
     :: (end) == 0 -> to_r!QUIET, epoch[0], a_, b_, 0
     :: else -> facts(1); join(1); stop(1); to_s!ASK, episode[1], lanes[2], lanes[3], 0; phase[1] = ASKING
     fi
  :: else
  fi
}

#define SAME(end) (e_ == episode[end] && a_ == lanes[2 * (end)] && b_ == lanes[2 * (end) + 1])
#define MATCHES(end)                                           \
  ((ANY_EPOCH || e_ == episode[end]) && (a_ != 0 || b_ != 0) && \
   (ANY_LANES || (a_ == lanes[2 * (end)] && b_ == lanes[2 * (end) + 1])))

inline take_record(end) {
  if
  :: MATCHES(end) && phase[end] == COMPARING ->
     if
     :: (end) == 0 -> ledger = m_
     :: else
     fi;
     pending = 1 + (end)
  :: MATCHES(end) && phase[end] == FENCING ->
     if
     :: (end) == 0 -> ledger = m_; has_record = 1
     :: else -> has_record_r = 1
     fi
  :: MATCHES(end) && phase[end] == RUN && (end) == 0 && !SENDER_IS_MUTE -> say_record(0)
  :: else
  fi
}

inline take_ask() {
  facts(0);
  if
  :: phase[0] == RUN && f0_ == 0 && f1_ == 0 && e_ < episode[0]
  :: phase[0] != RUN && j0_ == lanes[0] && j1_ == lanes[1] ->
     to_r!FENCE, episode[0], lanes[0], lanes[1], 0
  :: else ->
     epoch[0]++; episode[0] = epoch[0];
     if
     :: FENCED_JOINED(0) ->
        join(0);
        to_r!FENCE, episode[0], lanes[0], lanes[1], 0;
        say_record(0);
        phase[0] = COMPARING
     :: else ->
        join(0); stop(0);
        to_r!FENCE, episode[0], lanes[0], lanes[1], 0;
        phase[0] = FENCING;
        after_fence(0)
     fi
  fi
}

inline take_fence() {
  facts(1);
  if
  :: SAME(1) && (phase[1] == COMPARING || (phase[1] == RUN && !THROUGH_IS_MUTE)) -> say_record(1)
  :: !(SAME(1) && (phase[1] == COMPARING || phase[1] == RUN)) && e_ <= episode[1]
  :: SAME(1) && phase[1] == RUN && THROUGH_IS_MUTE
  :: e_ > episode[1] ->
     episode[1] = e_; epoch[1] = MAX(epoch[1], e_);
     if
     :: FENCE_REPLACES -> j0_ = a_; j1_ = b_
     :: else
     fi;
     if
     :: j0_ != a_ || j1_ != b_ ->
        join(1); stop(1);
        to_s!ASK, episode[1], lanes[2], lanes[3], 0;
        phase[1] = ASKING
     :: else ->
        if
        :: FENCED_JOINED(1) -> join(1); say_record(1); phase[1] = COMPARING
        :: else -> join(1); stop(1); phase[1] = FENCING; after_fence(1)
        fi
     fi
  fi
}

inline repeat(end) {
  if
  :: (end) == 1 && phase[1] == ASKING && !ASK_ONCE -> to_s!ASK, episode[1], lanes[2], lanes[3], 0
  :: (end) == 0 && phase[0] == FENCING -> to_r!FENCE, episode[0], lanes[0], lanes[1], 0
  :: phase[end] == COMPARING ->
     if
     :: (end) == 0 -> to_r!FENCE, episode[0], lanes[0], lanes[1], 0
     :: else
     fi;
     if
     :: REPEAT_NO_RECORD
     :: else -> say_record(end)
     fi
  :: (end) == 0 && phase[0] == RUN && (quiet[0] || quiet[1]) && !QUIET_ONCE ->
     to_r!QUIET, epoch[0], (quiet[0] -> retiring[0] : 0), (quiet[1] -> retiring[1] : 0), 0
  :: else
  fi
}

/* ---- Entries. */
inline put_entry(i, k, rep) {
  said_at[k] = 1 + (i);
  said_epoch[k] = lane[2 + i];
  p_ = (state[2] >= MADE && state[2] <= SUSPECT -> lane[2] : 0);
  q_ = (state[3] >= MADE && state[3] <= SUSPECT -> lane[3] : 0);
  r_ = 0;
  if
  :: CONFIRM ->
     do
     :: r_ < posted && COMPLETE(r_) && r_ < k -> r_++
     :: else -> break
     od;
     told = MAX(told, r_)
  :: else
  fi;
  if
  :: !REACHES(1, i)
  :: REACHES(1, i) && (i) == 0 -> entries0!k, entry_epoch, p_, q_, r_, rep
  :: REACHES(1, i) && (i) == 1 -> entries1!k, entry_epoch, p_, q_, r_, rep
  fi
}
#define SLOT(k) ((k) % WINDOW)
/* An announcement that was said again is still on its way to this slot. */
#define AGAIN_UNDER_WAY(k)                                                        \
  (entries0??[eval(k), _, _, _, _, 1] || entries1??[eval(k), _, _, _, _, 1])
#define SLOT_BUSY(k) ((k) >= WINDOW && AGAIN_UNDER_WAY((k) - WINDOW) && !NEXT_TOO_EARLY)
#define STAYS(k, i) (said_at[k] == 1 + (i) && said_epoch[k] == lane[2 + i] && state[2 + i] == OPEN)
#define MAY_SAY(k, i)                                                                             \
  (state[2 + i] == OPEN && OPEN_ENTRIES(i) < 4 &&                                                 \
   (ANY_LANE_AGAIN || STAYS(k, i) || (said_at[k] == 0) ||                                         \
    !(state[1 + said_at[k]] == OPEN && lane[1 + said_at[k]] == said_epoch[k])))

inline land_entry() { /* p_ transfer, q_ epoch, r_, s_ keys, t_ complete below */
  if
  :: p_ == CONFIRMATION -> confirming = 0
  :: else ->
     fifo[SLOT(p_)] = p_ + 1;
     fifo_epoch[SLOT(p_)] = q_;
     fifo_key[2 * SLOT(p_)] = r_;
     fifo_key[2 * SLOT(p_) + 1] = s_
  fi;
  confirmed = MAX(confirmed, t_)
}
#define LAND_ENTRY(q) \
  d_step { nempty(q) && ON -> q?p_, q_, r_, s_, t_, w_; land_entry() }
/* The NIC that was to write it acknowledges it and dies. */
#define LOSE_ENTRY(q, i)                                                              \
  d_step {                                                                            \
    dying > 0 && nempty(q) && ON && q?[0, _, _, _, _, _] ->                        \
    dying--; any_fault = 1; faulty[i] = lane[2 + i]; seen[i] = 3;                     \
    q?p_, q_, r_, s_, t_, w_                                                          \
  }

#define ANNOUNCE(i)                                                                               \
  d_step {                                                                                        \
    posted < TRANSFERS && ON && state[2 + i] == OPEN && OPEN_ENTRIES(i) < 4 &&                  \
        (posted < WINDOW || (received & BIT(posted - WINDOW))) && !SLOT_BUSY(posted) ->            \
    posted++;                                                                                     \
    k_ = posted - 1;                                                                              \
    put_entry(i, k_, 0)                                                                           \
  }
#define SAY_AGAIN(k, i)                                                             \
  d_step {                                                                          \
    k < TRANSFERS && ON && (again & BIT(k)) && IS_OPEN(k) && MAY_SAY(k, i) ->     \
    again = again & ~BIT(k);                                                        \
    put_entry(i, k, 1)                                                              \
  }                                                                                 \
  :: d_step { k < TRANSFERS && ON && (again & BIT(k)) && !IS_OPEN(k) -> again = again & ~BIT(k) }
#define CONFIRM_NOW(i)                                                                          \
  d_step {                                                                                      \
    CONFIRM == 1 && !RIDES_ONLY && ON && state[2 + i] == OPEN && OPEN_ENTRIES(i) < 4 &&       \
        confirming == 0 && posted > told && COMPLETE(0) &&                                      \
        (posted < 2 || COMPLETE(1)) && (posted < 3 || COMPLETE(2)) ->                            \
    told = posted; confirming = 1 + i;                                                          \
    if                                                                                          \
    :: !REACHES(1, i)                                                                           \
    :: REACHES(1, i) && (i) == 0 -> entries0!CONFIRMATION, 0, 0, 0, posted, 0                    \
    :: REACHES(1, i) && (i) == 1 -> entries1!CONFIRMATION, 0, 0, 0, posted, 0                    \
    fi                                                                                          \
  }

/* ---- Data. */
#define TAKE                                                                                  \
  d_step {                                                                                    \
    taken < TRANSFERS && ON && fifo[SLOT(taken)] == taken + 1 &&                           \
        (taken < WINDOW || (sent & BIT(taken - WINDOW))) -> taken++                           \
  }
#define USABLE(k, i)                                                            \
  (fifo[SLOT(k)] == (k) + 1 && (ANY_ENTRY || fifo_epoch[SLOT(k)] >= lane[i]) &&  \
   fifo_key[2 * SLOT(k) + i] != 0)
#define POST(x, i)                                                                             \
  d_step {                                                                                     \
    x < PIECES && ON && (x) / STRIPES < taken && at[x] == 0 && state[i] == OPEN &&           \
        USABLE((x) / STRIPES, i) ->                                                            \
    assert(!(sent & BIT((x) / STRIPES)));           /* the buffer is ours */                   \
    assert(fifo_key[2 * SLOT((x) / STRIPES) + i] == lane[i]); /* the keys are this lane's */   \
    assert(any_fault || !(ever & BIT(x)));          /* a hand-over repeats nothing */          \
    ever = ever | BIT(x); at[x] = 1 + i;                                                       \
    flying[i] = (REACHES(0, i) -> flying[i] | BIT(x) : flying[i])                              \
  }
#define ACK(i)                                                           \
  d_step {                                                               \
    acks[i] != 0 && ON -> acked = acked | acks[i]; acks[i] = 0                 \
  }
#define SETTLED(k) ((acked & OF(k)) == OF(k))
#define SENT(k)                                                                            \
  d_step {                                                                                 \
    k < TRANSFERS && ON && k < taken && !(sent & BIT(k)) && SETTLED(k) &&               \
        (CONFIRM == 0 || k < confirmed) ->                                                 \
    assert(((arrived | unpolled[0] | unpolled[1]) & OF(k)) == OF(k) ||                     \
           (CONFIRM == 0 && lost_by_nic)); /* done means that it is there */               \
    sent = sent | BIT(k)                                                                   \
  }
inline land(x, i) {
  k_ = (x) / STRIPES;
  assert(k_ < posted && !(received & BIT(k_)));                     /* the receive is open */
  assert(!((arrived | unpolled[0] | unpolled[1]) & BIT(x)));        /* no stripe comes twice */
  memory[SLOT(k_) * STRIPES + (x) % STRIPES] = k_ + 1;
  if
  :: TRACK_POLLS -> unpolled[i] = unpolled[i] | BIT(x)
  :: else -> arrived = arrived | BIT(x)
  fi
}
#define LAND(x, i)                                                                       \
  d_step {                                                                               \
    x < PIECES && ON && (flying[i] & BIT(x)) ->                                       \
    flying[i] = flying[i] & ~BIT(x);                                                     \
    land(x, i);                                                                          \
    acks[i] = (lane[i] != 0 && lane[i] == lane[2 + i] && state[i] != GONE -> acks[i] | BIT(x) : acks[i]) \
  }
#define LAND_LATE(x, i) \
  d_step { x < PIECES && ON && (late[i] & BIT(x)) -> late[i] = late[i] & ~BIT(x); land(x, i) }
#define LOSE(x, i)                                                                        \
  d_step {                                                                                \
    dying > 0 && x < PIECES && ON && (flying[i] & BIT(x)) ->                           \
    dying--; any_fault = 1; lost_by_nic = 1; faulty[i] = lane[2 + i]; seen[i] = 3;        \
    flying[i] = flying[i] & ~BIT(x);                                                      \
    acks[i] = (lane[i] == lane[2 + i] && state[i] != GONE -> acks[i] | BIT(x) : acks[i])  \
  }
#define RECEIVED(k)                                                                          \
  d_step {                                                                                   \
    k < TRANSFERS && ON && k < posted && !(received & BIT(k)) && COMPLETE(k) ->           \
    assert(memory[SLOT(k) * STRIPES] == k + 1 && memory[SLOT(k) * STRIPES + STRIPES - 1] == k + 1); \
    received = received | BIT(k)                                                             \
  }

/* ---- Faults, fences, hand-overs. */
#define FAIL(end, i, who)                                                                    \
  d_step {                                                                                   \
    faults > 0 && !ALL_DONE && ON && lane[2 * (end) + i] != 0 &&                           \
        state[2 * (end) + i] < SUSPECT && faulty[i] != lane[2 * (end) + i] &&                 \
        ((end) == 0 || lane[i] != lane[2 + i]) ->                                            \
    faults--; any_fault = 1; faulty[i] = lane[2 * (end) + i]; seen[i] = who                    \
  }
#define NOTICE(end, i)                                                                          \
  d_step {                                                                                      \
    ON && faulty[i] != 0 && faulty[i] == lane[2 * (end) + i] && (seen[i] & (1 << (end))) && state[2 * (end) + i] < SUSPECT && \
        state[2 * (end) + i] != NONE && FREE(to_r) && FREE(to_s) ->                             \
    a_ = ((i) == 0 -> faulty[0] : 0); b_ = ((i) == 1 -> faulty[1] : 0);                         \
    suspect(end)                                                                                \
  }
inline fence_receiver(i) {
  if
  :: NO_DATA_FENCE -> late[i] = late[i] | flying[i]
  :: else
  fi;
  flying[i] = 0;
  if
  :: RESET_FIRST
  :: else -> arrived = arrived | unpolled[i]
  fi;
  unpolled[i] = 0
}
inline fence_sender(i) {
  acks[i] = 0;
  if
  :: (i) == 0 ->
     do
     :: nempty(entries0) -> entries0?p_, q_, r_, s_, t_, w_;
        if
        :: NO_ENTRY_FENCE && p_ != CONFIRMATION && len(old_entries) < 3 -> old_entries!p_, q_, r_, s_, t_, w_
        :: !(NO_ENTRY_FENCE && p_ != CONFIRMATION && len(old_entries) < 3)
        fi
     :: empty(entries0) -> break
     od
  :: (i) == 1 ->
     do
     :: nempty(entries1) -> entries1?p_, q_, r_, s_, t_, w_;
        if
        :: NO_ENTRY_FENCE && p_ != CONFIRMATION && len(old_entries) < 3 -> old_entries!p_, q_, r_, s_, t_, w_
        :: !(NO_ENTRY_FENCE && p_ != CONFIRMATION && len(old_entries) < 3)
        fi
     :: empty(entries1) -> break
     od
  fi
}
#define FENCE_LANE(end, i)                                                               \
  d_step {                                                                               \
    ON && state[2 * (end) + i] == SUSPECT && FREE(to_r) && FREE(to_s) ->              \
    if                                                                                   \
    :: (end) == 0 -> fence_sender(i)                                                     \
    :: else -> fence_receiver(i)                                                         \
    fi;                                                                                  \
    state[2 * (end) + i] = GONE;                                                         \
    fenced[2 * (end) + i] = MAX(fenced[2 * (end) + i], lane[2 * (end) + i]);             \
    if                                                                                   \
    :: PLACE_AT_ONCE && (end) == 0 -> lane[i] = 0; state[i] = NONE                       \
    :: else                                                                              \
    fi;                                                                                  \
    after_fence(end)                                                                     \
  }
/* No marker in time: the queue pair is destroyed, and what was not polled is not known. */
#define FENCE_SILENT(i)                                                             \
  d_step {                                                                          \
    silent > 0 && ON && state[2 + i] == SUSPECT && unpolled[i] != 0 &&           \
        FREE(to_r) && FREE(to_s) ->                                                 \
    silent--; lost_by_nic = 1; any_fault = 1; unpolled[i] = 0; flying[i] = 0;       \
    state[2 + i] = GONE;                                                            \
    fenced[2 + i] = MAX(fenced[2 + i], lane[2 + i]);                                \
    after_fence(1)                                                                  \
  }
#define UNDER_WAY(x, i) (x < PIECES && at[x] == 1 + (i) && !(acked & BIT(x)))
#define RETIRE(i)                                                                            \
  d_step {                                                                                   \
    handovers > 0 && !ALL_DONE && ON && phase[0] == RUN && state[i] == OPEN &&            \
        state[1 - i] == OPEN && retiring[i] == 0 ->                                          \
    handovers--; state[i] = RETIRED; retiring[i] = lane[i]                                   \
  }
#define DRAINED_S(i)                                                                         \
  d_step {                                                                                   \
    ON && state[i] == RETIRED && retiring[i] == lane[i] && !quiet[i] && FREE(to_r) &&      \
        (NO_DRAIN || (!UNDER_WAY(0, i) && !UNDER_WAY(1, i) && !UNDER_WAY(2, i) && !UNDER_WAY(3, i))) -> \
    quiet[i] = 1;                                                                            \
    if                                                                                       \
    :: phase[0] == RUN -> to_r!QUIET, epoch[0], ((i) == 0 -> lane[0] : 0), ((i) == 1 -> lane[1] : 0), 0 \
    :: else                                                                                  \
    fi                                                                                       \
  }
#define DRAINED_R(i)                                                                         \
  d_step {                                                                                   \
    ON && state[2 + i] == RETIRED && retiring[2 + i] == lane[2 + i] && !quiet[2 + i] &&    \
        FREE(to_s) && (NO_DRAIN || OPEN_ENTRIES(i) == 0) ->                                  \
    quiet[2 + i] = 1;                                                                        \
    if                                                                                       \
    :: phase[1] == RUN ->                                                                    \
       a_ = ((i) == 0 -> lane[2] : 0); b_ = ((i) == 1 -> lane[3] : 0);                       \
       facts(1); join(1); stop(1);                                                           \
       to_s!ASK, episode[1], lanes[2], lanes[3], 0;                                          \
       phase[1] = ASKING                                                                     \
    :: else                                                                                  \
    fi                                                                                       \
  }
inline take_quiet_one(i, named) {
  if
  :: (named) != 0 && fenced[2 + i] < (named) && !(BUSY(1) && lanes[2 + i] == (named)) &&
         retiring[2 + i] == 0 && !(QUIET_DROPPED && BUSY(1)) ->
     retiring[2 + i] = named;
     if
     :: lane[2 + i] == (named) && state[2 + i] <= OPEN -> state[2 + i] = RETIRED
     :: else
     fi
  :: else
  fi
}

/* ---- The supply of lanes: the sender offers, the receiver makes and answers, the sender is up. */
#define MAKE_OFFER(i)                                                                     \
  d_step {                                                                                \
    !ALL_DONE && ON && offer == 0 && state[i] == NONE && lane[i] == 0 && FREE(to_r) && \
        (phase[0] == RUN || (offers > 0 && (lanes[i] == 0 || PLACE_OF_EPISODE))) ->        \
    offers = (phase[0] == RUN -> offers : offers - 1);                                    \
    epoch[0]++; offer = epoch[0]; offer_at = i;                                           \
    to_r!OFFER, offer, ((i) == 0 -> offer : 0), ((i) == 1 -> offer : 0), 0;               \
    if                                                                                    \
    :: USE_BEFORE_ANSWER -> lane[i] = offer; state[i] = OPEN                              \
    :: else                                                                               \
    fi                                                                                    \
  }
inline drop_offer() {
  a_ = (offer_at == 0 -> offer : 0);
  b_ = (offer_at == 1 -> offer : 0);
  offer = 0;
  suspect(0)
}
#define DROP_OFFER \
  d_step { drops > 0 && offer != 0 && ON && FREE(to_r) -> drops--; pending = 3 }
inline take_offer() {
  i_ = (a_ != 0 -> 0 : 1);
  if
  :: lane[2 + i_] == e_ -> to_s!ANSWER, e_, a_, b_, 1
  :: lane[2 + i_] != e_ && (making[i_] == e_ || e_ < offered)
  :: lane[2 + i_] != e_ && making[i_] != e_ && e_ >= offered ->
     offered = e_; epoch[1] = MAX(epoch[1], e_);
     if
     :: lane[2 + i_] == 0 || (PLACE_AT_ONCE && state[2 + i_] == GONE) -> making[i_] = e_
     :: else -> to_s!ANSWER, e_, a_, b_, 0
     fi
  fi
}
#define MAKE_LANE(i)                                                                        \
  d_step {                                                                                  \
    making[i] != 0 && ON && FREE(to_s) ->                                                \
    lane[2 + i] = making[i]; state[2 + i] = MADE; making[i] = 0;                            \
    to_s!ANSWER, lane[2 + i], ((i) == 0 -> lane[2] : 0), ((i) == 1 -> lane[3] : 0), 1       \
  }
inline take_answer() {
  if
  :: e_ != offer
  :: e_ == offer && m_ == 0 -> offer = 0
  :: e_ == offer && m_ == 1 ->
     lane[offer_at] = offer; state[offer_at] = OPEN; said_up[offer_at] = offer;
     to_r!UP, offer, a_, b_, 0;
     offer = 0
  fi
}
inline take_up() {
  i_ = (a_ != 0 -> 0 : 1);
  if
  :: lane[2 + i_] == e_ && state[2 + i_] == MADE ->
     state[2 + i_] = OPEN;
     entry_epoch = MAX(entry_epoch, MAX(e_, epoch[1]));
     if
     :: NOT_AGAIN
     :: else -> again_all(1)
     fi
  :: else
  fi
}

#define HEAR_S                                                                        \
  d_step {                                                                            \
    nempty(to_s) && ON && FREE(to_r) ->                                            \
    to_s?kind_, e_, a_, b_, m_;                                                       \
    if                                                                                \
    :: kind_ == ASK -> take_ask()                                                     \
    :: kind_ == RECORD -> take_record(0)                                              \
    :: kind_ == ANSWER -> take_answer()                                               \
    fi                                                                                \
  }
#define HEAR_R                                                                        \
  d_step {                                                                            \
    nempty(to_r) && ON && FREE(to_s) ->                                            \
    to_r?kind_, e_, a_, b_, m_;                                                       \
    if                                                                                \
    :: kind_ == FENCE -> take_fence()                                                 \
    :: kind_ == RECORD -> take_record(1)                                              \
    :: kind_ == QUIET -> take_quiet_one(0, a_); take_quiet_one(1, b_)                 \
    :: kind_ == OFFER -> take_offer()                                                 \
    :: kind_ == UP -> take_up()                                                       \
    fi                                                                                \
  }
/* A session ends: what is under way is lost. In the next each end says again what counts. */
#define BREAK                                                                         \
  d_step {                                                                            \
    breaks > 0 && ON && (nempty(to_s) || nempty(to_r)) ->                          \
    breaks--;                                                                         \
    do                                                                                \
    :: nempty(to_s) -> to_s?kind_, e_, a_, b_, m_                                     \
    :: nempty(to_r) -> to_r?kind_, e_, a_, b_, m_                                     \
    :: empty(to_s) && empty(to_r) -> break                                            \
    od;                                                                               \
    if                                                                                \
    :: offer != 0 -> to_r!OFFER, offer, (offer_at == 0 -> offer : 0), (offer_at == 1 -> offer : 0), 0 \
    :: else                                                                           \
    fi;                                                                               \
    if                                                                                \
    :: said_up[0] != 0 && !UP_ONCE -> to_r!UP, said_up[0], said_up[0], 0, 0           \
    :: else                                                                           \
    fi;                                                                               \
    if                                                                                \
    :: said_up[1] != 0 && !UP_ONCE -> to_r!UP, said_up[1], 0, said_up[1], 0           \
    :: else                                                                           \
    fi;                                                                               \
    repeat(0);                                                                        \
    repeat(1)                                                                         \
  }

active proctype Connection() {
  d_step {
    epoch[0] = 1; epoch[1] = 1; episode[0] = 1; episode[1] = 1; offered = 1;
    lane[0] = 1; lane[1] = 1; lane[2] = 1; lane[3] = 1;
    state[0] = OPEN; state[1] = OPEN; state[2] = OPEN; state[3] = OPEN;
    handovers = HANDOVERS; offers = OFFERS; drops = DROPS
  }
  /* Also fewer than the bound: a hang must not hide behind a fault that is still to come. */
  do
  :: faults < FAULTS -> faults++
  :: break
  od;
  do
  :: dying < DYING -> dying++
  :: break
  od;
  do
  :: silent < SILENT -> silent++
  :: break
  od;
  do
  :: breaks < BREAKS -> breaks++
  :: break
  od;
  do
  :: ANNOUNCE(0) :: ANNOUNCE(1)
  :: SAY_AGAIN(0, 0) :: SAY_AGAIN(0, 1) :: SAY_AGAIN(1, 0) :: SAY_AGAIN(1, 1) :: SAY_AGAIN(2, 0) :: SAY_AGAIN(2, 1)
  :: CONFIRM_NOW(0) :: CONFIRM_NOW(1)
  :: LAND_ENTRY(entries0) :: LAND_ENTRY(entries1) :: LAND_ENTRY(old_entries)
  :: LOSE_ENTRY(entries0, 0) :: LOSE_ENTRY(entries1, 1)
  :: TAKE
  :: POST(0, 0) :: POST(0, 1) :: POST(1, 0) :: POST(1, 1) :: POST(2, 0) :: POST(2, 1) :: POST(3, 0) :: POST(3, 1)
  :: LAND(0, 0) :: LAND(0, 1) :: LAND(1, 0) :: LAND(1, 1) :: LAND(2, 0) :: LAND(2, 1) :: LAND(3, 0) :: LAND(3, 1)
  :: LAND_LATE(0, 0) :: LAND_LATE(0, 1) :: LAND_LATE(1, 0) :: LAND_LATE(1, 1)
  :: LOSE(0, 0) :: LOSE(0, 1) :: LOSE(1, 0) :: LOSE(1, 1) :: LOSE(2, 0) :: LOSE(2, 1) :: LOSE(3, 0) :: LOSE(3, 1)
  :: d_step { ON && (unpolled[0] | unpolled[1]) != 0 -> arrived = arrived | unpolled[0] | unpolled[1]; unpolled[0] = 0; unpolled[1] = 0 }
  :: ACK(0) :: ACK(1)
  :: SENT(0) :: SENT(1) :: SENT(2)
  :: RECEIVED(0) :: RECEIVED(1) :: RECEIVED(2)
  :: FAIL(0, 0, 1) :: FAIL(0, 1, 1) :: FAIL(0, 0, 2) :: FAIL(0, 1, 2) :: FAIL(0, 0, 3) :: FAIL(0, 1, 3)
  :: FAIL(1, 0, 3) :: FAIL(1, 1, 3)
  :: NOTICE(0, 0) :: NOTICE(0, 1) :: NOTICE(1, 0) :: NOTICE(1, 1)
  :: FENCE_LANE(0, 0) :: FENCE_LANE(0, 1) :: FENCE_LANE(1, 0) :: FENCE_LANE(1, 1)
  :: FENCE_SILENT(0) :: FENCE_SILENT(1)
  :: RETIRE(0) :: RETIRE(1)
  :: DRAINED_S(0) :: DRAINED_S(1) :: DRAINED_R(0) :: DRAINED_R(1)
  :: MAKE_OFFER(0) :: MAKE_OFFER(1) :: DROP_OFFER :: MAKE_LANE(0) :: MAKE_LANE(1)
  :: HEAR_S :: HEAR_R :: BREAK
  :: d_step { pending == 1 && !over -> pending = 0; resume(0) }
  :: d_step { pending == 2 && !over -> pending = 0; resume(1) }
  :: d_step { pending == 3 && !over -> pending = 0; drop_offer() }
  :: over || (ALL_DONE && AT_REST && pending == 0) -> break
  od
}
