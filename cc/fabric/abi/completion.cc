// Completion queues and completion channels.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "cc/fabric/abi/admission.h"
#include "cc/fabric/abi/objects.h"

namespace railhop::fabric::abi {
namespace {

using rdma::Completion;
using rdma::VerbCall;

constexpr int kPollAtOnce = 16;
constexpr uint32_t kShortCqEntries = 64;  // rdma::kQuirkShortCq
constexpr uint32_t kMinCapacity = 16;

// The bits of ibv_create_cq_ex's wc_flags that are given: all of the plain work completion, no
// timestamps.
constexpr uint64_t kWcFlags = IBV_WC_STANDARD_FLAGS;

uint64_t Random(std::atomic<uint64_t>& state) {  // splitmix64
  uint64_t z = state.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void ToWc(const Completion& completion, ibv_wc* wc) {
  wc->wr_id = completion.wr_id;
  wc->status = static_cast<ibv_wc_status>(completion.status);
  wc->opcode = static_cast<ibv_wc_opcode>(completion.opcode);
  wc->vendor_err = completion.vendor_err;
  wc->byte_len = completion.byte_len;
  wc->imm_data = completion.imm_data;
  wc->qp_num = completion.qp_num;
  wc->src_qp = completion.src_qp;
  wc->wc_flags = completion.with_imm != 0 ? IBV_WC_WITH_IMM : 0;
  wc->pkey_index = 0;
  wc->slid = 0;
  wc->sl = 0;
  wc->dlid_path_bits = 0;
}

// In an error completion only wr_id, status, qp_num and vendor_err mean anything (ibv_poll_cq(3)).
void Scramble(CqObject* cq, ibv_wc* wc) {
  if (wc->status == IBV_WC_SUCCESS) return;
  const uint64_t a = Random(cq->noise), b = Random(cq->noise);
  wc->opcode = static_cast<ibv_wc_opcode>(a & 0xff);
  wc->byte_len = static_cast<uint32_t>(a >> 32);
  wc->imm_data = static_cast<uint32_t>(b);
  wc->src_qp = static_cast<uint32_t>(b >> 32) & 0xffffff;
  wc->wc_flags = static_cast<unsigned int>(a >> 8) & 0xf;
  wc->slid = static_cast<uint16_t>(b >> 16);
}

int PollObject(CqObject* cq, int count, ibv_wc* wc) {
  const ContextObject& context = *Of(cq->cq.context);
  if (const int error = Admit(context, VerbCall::kPollCq); error != 0) return -error;
  const bool scramble =
      (context.device->quirks.load(std::memory_order_relaxed) & rdma::kQuirkRandomErrorFields) != 0;
  Completion batch[kPollAtOnce];
  int done = 0;
  while (done < count) {
    const int wanted = std::min(count - done, kPollAtOnce);
    const int got = cq->core->Poll(wanted, batch);
    if (got < 0) return done > 0 ? done : got;
    for (int i = 0; i < got; ++i) {
      ToWc(batch[i], &wc[done]);
      if (scramble) Scramble(cq, &wc[done]);
      ++done;
    }
    if (got < wanted) break;
  }
  return done;
}

// ---- ibv_cq_ex ----

int NextPoll(ibv_cq_ex* cq) {
  CqObject* const object = Of(cq);
  const int got = PollObject(object, 1, &object->current);
  if (got < 0) return -got;
  if (got == 0) return ENOENT;
  cq->status = object->current.status;
  cq->wr_id = object->current.wr_id;
  return 0;
}

// 0: a completion is there, and end_poll must follow; ENOENT: none.
int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Of(cq)->poll_mutex.lock();
  const int error = NextPoll(cq);
  if (error != 0) Of(cq)->poll_mutex.unlock();
  return error;
}

void EndPoll(ibv_cq_ex* cq) { Of(cq)->poll_mutex.unlock(); }

ibv_wc_opcode ReadOpcode(ibv_cq_ex* cq) { return Of(cq)->current.opcode; }
uint32_t ReadVendorErr(ibv_cq_ex* cq) { return Of(cq)->current.vendor_err; }
uint32_t ReadByteLen(ibv_cq_ex* cq) { return Of(cq)->current.byte_len; }
__be32 ReadImmData(ibv_cq_ex* cq) { return Of(cq)->current.imm_data; }
uint32_t ReadQpNum(ibv_cq_ex* cq) { return Of(cq)->current.qp_num; }
uint32_t ReadSrcQp(ibv_cq_ex* cq) { return Of(cq)->current.src_qp; }
unsigned int ReadWcFlags(ibv_cq_ex* cq) { return Of(cq)->current.wc_flags; }
uint32_t ReadSlid(ibv_cq_ex* cq) { return Of(cq)->current.slid; }
uint8_t ReadSl(ibv_cq_ex* cq) { return Of(cq)->current.sl; }
uint8_t ReadDlidPathBits(ibv_cq_ex* cq) { return Of(cq)->current.dlid_path_bits; }
// The rest is never asked for: ibv_create_cq_ex refuses the flags. Zero, should a program call it
// all the same.
uint64_t ReadZero64(ibv_cq_ex*) { return 0; }
uint32_t ReadZero32(ibv_cq_ex*) { return 0; }
uint16_t ReadZero16(ibv_cq_ex*) { return 0; }
void ReadNoTmInfo(ibv_cq_ex*, ibv_wc_tm_info* info) { std::memset(info, 0, sizeof(*info)); }

void FillPolling(ibv_cq_ex* cq) {
  cq->start_poll = StartPoll;
  cq->next_poll = NextPoll;
  cq->end_poll = EndPoll;
  cq->read_opcode = ReadOpcode;
  cq->read_vendor_err = ReadVendorErr;
  cq->read_byte_len = ReadByteLen;
  cq->read_imm_data = ReadImmData;
  cq->read_qp_num = ReadQpNum;
  cq->read_src_qp = ReadSrcQp;
  cq->read_wc_flags = ReadWcFlags;
  cq->read_slid = ReadSlid;
  cq->read_sl = ReadSl;
  cq->read_dlid_path_bits = ReadDlidPathBits;
  cq->read_completion_ts = ReadZero64;
  cq->read_cvlan = ReadZero16;
  cq->read_flow_tag = ReadZero32;
  cq->read_tm_info = ReadNoTmInfo;
  cq->read_completion_wallclock_ns = ReadZero64;
}

// ---- Making them ----

// Entries for `cqe` asked for; 0: not allowed. Like most providers it rounds up.
uint32_t CapacityFor(const DeviceEntry& device, int cqe) {
  const bool short_cq = (device.quirks.load(std::memory_order_relaxed) & rdma::kQuirkShortCq) != 0;
  const uint32_t limit =
      short_cq ? std::min(device.caps.max_cqe, kShortCqEntries) : device.caps.max_cqe;
  if (cqe < 1 || static_cast<uint32_t>(cqe) > limit) return 0;
  if (short_cq) return static_cast<uint32_t>(cqe);
  uint32_t capacity = kMinCapacity;
  while (capacity < static_cast<uint32_t>(cqe)) capacity *= 2;
  return std::max(std::min(capacity, limit), static_cast<uint32_t>(cqe));
}

CqObject* CreateError(int error) {
  errno = error;
  return nullptr;
}

// Null with errno.
CqObject* Create(ibv_context* context, int cqe, void* user, ibv_comp_channel* channel,
                 uint32_t vector) {
  ContextObject& object = *Of(context);
  if (const int error = Admit(object, VerbCall::kCreateCq); error != 0) return CreateError(error);
  const uint32_t capacity = CapacityFor(*object.device, cqe);
  if (capacity == 0 || vector >= static_cast<uint32_t>(context->num_comp_vectors))
    return CreateError(EINVAL);
  if (channel != nullptr && channel->context != context) return CreateError(EINVAL);
  Usage& usage = UsageOf(object);
  if (!TakeOne(usage.cqs, object.device->caps.max_cq)) return CreateError(ENOMEM);
  auto* const cq = new (std::nothrow) CqObject();
  if (cq == nullptr) {
    usage.cqs.fetch_sub(1);
    return CreateError(ENOMEM);
  }
  cq->core = object.nic->CreateCq(object.core, capacity,
                                  channel == nullptr ? nullptr : &Of(channel)->core, cq);
  if (cq->core == nullptr) {
    delete cq;
    usage.cqs.fetch_sub(1);
    return nullptr;
  }
  cq->cq.context = context;
  cq->cq.channel = channel;
  cq->cq.cq_context = user;
  cq->cq.handle = cq->core->index();
  cq->cq.cqe = static_cast<int>(capacity);
  cq->noise = cq->core->index();
  pthread_mutex_init(&cq->cq.mutex, nullptr);
  pthread_cond_init(&cq->cq.cond, nullptr);
  FillPolling(&cq->cq);
  if (channel != nullptr) {
    pthread_mutex_lock(&context->mutex);
    ++channel->refcnt;
    pthread_mutex_unlock(&context->mutex);
  }
  return cq;
}

}  // namespace

int PollCq(ibv_cq* cq, int count, ibv_wc* wc) { return PollObject(Of(cq), count, wc); }

int RequestNotifyCq(ibv_cq* cq, int solicited_only) {
  if (const int error = Admit(*Of(cq->context), VerbCall::kReqNotifyCq); error != 0) return error;
  Of(cq)->core->RequestNotify(solicited_only != 0);
  return 0;
}

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kKnownFlags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  const bool bad_flags =
      (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr->flags & ~kKnownFlags) != 0;
  if ((attr->comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 || bad_flags) {
    errno = EINVAL;
    return nullptr;
  }
  if ((attr->wc_flags & ~kWcFlags) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const int cqe = static_cast<int>(std::min<uint32_t>(attr->cqe, 0x7fffffff));
  CqObject* const cq = Create(context, cqe, attr->cq_context, attr->channel, attr->comp_vector);
  return cq == nullptr ? nullptr : &cq->cq;
}

}  // namespace railhop::fabric::abi

using namespace railhop::fabric;       // NOLINT: the verbs ABI has no namespace
using namespace railhop::fabric::abi;  // NOLINT
using railhop::rdma::VerbCall;

RAILHOP_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (const int error = Admit(*Of(context), VerbCall::kCreateCompChannel); error != 0) {
    errno = error;
    return nullptr;
  }
  auto* const object = new (std::nothrow) ChannelObject();
  if (object == nullptr || object->core.events.fd() < 0) {
    if (object == nullptr) errno = ENOMEM;
    delete object;
    return nullptr;
  }
  object->channel.context = context;
  object->channel.fd = object->core.events.fd();
  return &object->channel;
}

RAILHOP_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  ibv_context* const context = channel->context;
  if (IsParents(*Of(context))) return EPERM;
  pthread_mutex_lock(&context->mutex);
  const bool busy = channel->refcnt != 0;
  pthread_mutex_unlock(&context->mutex);
  if (busy) return EBUSY;
  delete Of(channel);
  return 0;
}

RAILHOP_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                     ibv_comp_channel* channel, int comp_vector) {
  CqObject* const cq =
      Create(context, cqe, cq_context, channel, static_cast<uint32_t>(comp_vector));
  return cq == nullptr ? nullptr : Public(cq);
}

RAILHOP_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  const ContextObject& context = *Of(cq->context);
  if (const int error = Admit(context, VerbCall::kCreateCq); error != 0) return error;
  const uint32_t capacity = CapacityFor(*context.device, cqe);
  if (capacity == 0) return EINVAL;
  if (const int error = Of(cq)->core->Resize(capacity); error != 0) return error;
  cq->cqe = static_cast<int>(capacity);
  return 0;
}

// Waits until all events of the queue that the program got are acknowledged.
RAILHOP_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  CqObject* const object = Of(cq);
  ContextObject& context = *Of(cq->context);
  ibv_comp_channel* const channel = cq->channel;
  if (const int error = Admit(context, VerbCall::kDestroyCq); error != 0) return error;
  if (object->core->users.load() != 0) return EBUSY;
  if (const int error = context.nic->DestroyCq(object->core); error != 0) return error;
  // The core took back the channel's events before it freed the queue; no event comes any more.
  context.core->events.Remove(
      [object](const AsyncRecord& record) { return record.user == object; });
  pthread_mutex_lock(&cq->mutex);
  while (cq->comp_events_completed != object->comp_events ||
         cq->async_events_completed != object->async_events) {
    pthread_cond_wait(&cq->cond, &cq->mutex);
  }
  pthread_mutex_unlock(&cq->mutex);
  if (channel != nullptr) {
    pthread_mutex_lock(&cq->context->mutex);
    --channel->refcnt;
    pthread_mutex_unlock(&cq->context->mutex);
  }
  UsageOf(context).cqs.fetch_sub(1);
  pthread_mutex_destroy(&cq->mutex);
  pthread_cond_destroy(&cq->cond);
  delete object;
  return 0;
}

RAILHOP_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (IsParents(*Of(channel->context))) {
    errno = EPERM;
    return -1;
  }
  const auto deliver = [&](Cq* event) {
    auto* const object = static_cast<CqObject*>(event->user());
    pthread_mutex_lock(&object->cq.mutex);
    ++object->comp_events;
    pthread_mutex_unlock(&object->cq.mutex);
    *cq = Public(object);
    *cq_context = object->cq.cq_context;
  };
  Cq* event = nullptr;
  return Of(channel)->core.events.Get(&event, deliver) ? 0 : -1;
}

RAILHOP_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += nevents;
  pthread_cond_broadcast(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}
