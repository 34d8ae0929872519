// Asynchronous events of devices, ports, queues and queue pairs.
#include <cerrno>
#include <cstring>

#include "cc/fabric/abi/admission.h"
#include "cc/fabric/abi/objects.h"

namespace railhop::fabric::abi {
namespace {

enum class Element { kCq, kQp, kPort };

Element ElementOf(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Element::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Element::kQp;
    default:
      return Element::kPort;
  }
}

// Fills `event` and counts it as handed out. Runs under the event queue's lock.
void Deliver(const AsyncRecord& record, ibv_async_event* event) {
  std::memset(event, 0, sizeof(*event));
  event->event_type = static_cast<ibv_event_type>(record.event);
  switch (record.user == nullptr ? Element::kPort : ElementOf(event->event_type)) {
    case Element::kCq: {
      auto* const cq = static_cast<CqObject*>(record.user);
      pthread_mutex_lock(&cq->cq.mutex);
      ++cq->async_events;
      pthread_mutex_unlock(&cq->cq.mutex);
      event->element.cq = Public(cq);
      return;
    }
    case Element::kQp: {
      auto* const qp = static_cast<QpObject*>(record.user);
      pthread_mutex_lock(&qp->ex.qp_base.mutex);
      ++qp->async_events;
      pthread_mutex_unlock(&qp->ex.qp_base.mutex);
      event->element.qp = Public(qp);
      return;
    }
    case Element::kPort:
      event->element.port_num = static_cast<int>(record.port);
      return;
  }
}

}  // namespace
}  // namespace railhop::fabric::abi

using namespace railhop::fabric;       // NOLINT: the verbs ABI has no namespace
using namespace railhop::fabric::abi;  // NOLINT

// Also on a removed device: the event that says so comes this way.
RAILHOP_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (IsParents(*Of(context))) {
    errno = EPERM;
    return -1;
  }
  AsyncRecord record;
  const auto deliver = [event](const AsyncRecord& taken) { Deliver(taken, event); };
  return Of(context)->core->events.Get(&record, deliver) ? 0 : -1;
}

RAILHOP_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  switch (ElementOf(event->event_type)) {
    case Element::kCq: {
      ibv_cq* const cq = event->element.cq;
      pthread_mutex_lock(&cq->mutex);
      ++cq->async_events_completed;
      pthread_cond_broadcast(&cq->cond);
      pthread_mutex_unlock(&cq->mutex);
      return;
    }
    case Element::kQp: {
      ibv_qp* const qp = event->element.qp;
      pthread_mutex_lock(&qp->mutex);
      ++qp->events_completed;
      pthread_cond_broadcast(&qp->cond);
      pthread_mutex_unlock(&qp->mutex);
      return;
    }
    case Element::kPort:
      return;
  }
}
