// Completion queues and channels.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "cc/sim/verbs_objects.h"
#include "cc/sim/verbs_table.h"

namespace railhop::sim {
namespace {

using rdma::VerbCall;

constexpr uint64_t kEmptyPollNs = 1000;

void ToWc(const rdma::Completion& completion, ibv_wc* wc) {
  std::memset(wc, 0, sizeof(*wc));
  wc->wr_id = completion.wr_id;
  wc->status = static_cast<ibv_wc_status>(completion.status);
  wc->opcode = static_cast<ibv_wc_opcode>(completion.opcode);
  wc->vendor_err = completion.vendor_err;
  wc->byte_len = completion.byte_len;
  wc->imm_data = completion.imm_data;
  wc->qp_num = completion.qp_num;
  wc->src_qp = completion.src_qp;
  wc->wc_flags = completion.with_imm != 0 ? IBV_WC_WITH_IMM : 0;
}

// Puts a queue that was armed into its channel.
class ChannelNotifier final : public CqListener {
 public:
  explicit ChannelNotifier(SimCq* cq) : cq_(cq) {}
  void OnCompletion(Cq*, bool notify) override {
    if (!notify || cq_->cq.channel == nullptr) return;
    Of(cq_->cq.channel)->events.push_back(cq_);
    SetReadable(cq_->cq.channel->fd, true);
  }

 private:
  SimCq* const cq_;
};

ibv_comp_channel* CreateCompChannel(ibv_context* context) {
  if (const int error = Of(context)->core->Enter(VerbCall::kCreateCompChannel)) {
    errno = error;
    return nullptr;
  }
  SimChannel* object = Of(context)->world->kept().Add(std::make_unique<SimChannel>());
  object->channel.context = context;
  object->channel.fd = NewEventFd();
  return &object->channel;
}

int DestroyCompChannel(ibv_comp_channel* channel) {
  if (channel->refcnt != 0) return EBUSY;
  Of(channel->context)->world->kept().Delete(Of(channel));
  return 0;
}

ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                 int vector) {
  auto made = std::make_unique<SimCq>();
  SimCq* object = made.get();
  int error = EINVAL;
  if (cqe >= 1 && vector >= 0 && vector < context->num_comp_vectors &&
      (channel == nullptr || channel->context == context)) {
    error = Of(context)->core->CreateCq(static_cast<uint32_t>(cqe), object, &object->core);
  }
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  Of(context)->world->kept().Add(std::move(made));
  object->cq.context = context;
  object->cq.channel = channel;
  object->cq.cq_context = cq_context;
  object->cq.cqe = static_cast<int>(object->core->capacity());
  object->listener = std::make_unique<ChannelNotifier>(object);
  object->core->set_listener(object->listener.get());
  if (channel != nullptr) ++channel->refcnt;
  return &object->cq;
}

int ResizeCq(ibv_cq* cq, int cqe) {
  Context* core = Of(cq->context)->core;
  if (const int error = core->Enter(VerbCall::kCreateCq)) return error;
  if (cqe < 1 || static_cast<uint32_t>(cqe) > core->nic()->config().caps.max_cqe) return EINVAL;
  if (!Of(cq)->core->Resize(static_cast<uint32_t>(cqe))) return EINVAL;
  cq->cqe = static_cast<int>(Of(cq)->core->capacity());
  return 0;
}

int DestroyCq(ibv_cq* cq) {
  SimCq* object = Of(cq);
  Context* core = Of(cq->context)->core;
  if (object->comp_events != cq->comp_events_completed ||
      object->async_events != cq->async_events_completed) {
    return EBUSY;
  }
  if (const int error = core->DestroyCq(object->core)) return error;
  if (cq->channel != nullptr) {
    SimChannel* channel = Of(cq->channel);
    auto& events = channel->events;
    events.erase(std::remove(events.begin(), events.end(), object), events.end());
    SetReadable(cq->channel->fd, !events.empty());
    --cq->channel->refcnt;
  }
  SetReadable(Of(cq->context)->async_fd, core->HasEvents());
  Of(cq->context)->world->kept().Delete(object);
  return 0;
}

int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  SimChannel* object = Of(channel);
  if (!WaitFor(channel->fd, [&] { return !object->events.empty(); })) return -1;
  SimCq* event = object->events.front();
  object->events.pop_front();
  SetReadable(channel->fd, !object->events.empty());
  ++event->comp_events;
  *cq = &event->cq;
  *cq_context = event->cq.cq_context;
  return 0;
}

void AckCqEvents(ibv_cq* cq, unsigned int count) { cq->comp_events_completed += count; }

}  // namespace

int SimPollCq(ibv_cq* cq, int count, ibv_wc* wc) {
  SimCq* object = Of(cq);
  Context* core = Of(cq->context)->core;
  int done = 0;
  for (const bool again : {true, false}) {
    rdma::Completion got;
    while (done < count) {
      const int n = core->PollCq(object->core, 1, &got);
      if (n < 0) return done > 0 ? done : n;
      if (n == 0) break;
      ToWc(got, &wc[done++]);
    }
    if (done > 0 || !again || Actors() != nullptr) break;
    // Nothing yet: whoever polls in a loop lets time pass.
    VerbsWorld()->loop().RunUntil(VerbsNowNs() + kEmptyPollNs);
  }
  return done;
}

int SimReqNotifyCq(ibv_cq* cq, int solicited_only) {
  if (const int error = Of(cq->context)->core->Enter(VerbCall::kReqNotifyCq)) return error;
  Of(cq)->core->Arm(solicited_only != 0);
  return 0;
}

void FillQueueVerbs(VerbsFunctions* table) {
  table->create_comp_channel = CreateCompChannel;
  table->destroy_comp_channel = DestroyCompChannel;
  table->create_cq = CreateCq;
  table->resize_cq = ResizeCq;
  table->destroy_cq = DestroyCq;
  table->get_cq_event = GetCqEvent;
  table->ack_cq_events = AckCqEvents;
  table->poll_cq = SimPollCq;
  table->req_notify_cq = SimReqNotifyCq;
}

}  // namespace railhop::sim
