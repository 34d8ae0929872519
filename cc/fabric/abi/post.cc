// Posting requests: ibv_post_send, ibv_post_recv, and the ibv_wr_* calls that build requests in
// place.
//
// A request is copied once, from the program's struct into its place in the send queue. Whatever
// the queue pair cannot do is refused here, so that the core sees only requests that it knows.
#include <cerrno>
#include <cstring>

#include "cc/fabric/abi/admission.h"
#include "cc/fabric/abi/objects.h"

namespace railhop::fabric::abi {
namespace {

using rdma::Opcode;
using rdma::SendWqe;
using rdma::VerbCall;

constexpr uint32_t kSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
constexpr uint32_t kAtomicBytes = 8;

bool IsAtomic(Opcode opcode) {
  return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}
bool IsReadLike(Opcode opcode) { return opcode == Opcode::kRead || IsAtomic(opcode); }
bool HasImmediate(Opcode opcode) {
  return opcode == Opcode::kSendImm || opcode == Opcode::kWriteImm;
}

// Sets all fields of `wqe` that describe a request without data.
void Clear(SendWqe* wqe, uint64_t wr_id, Opcode opcode, uint32_t flags) {
  wqe->wr_id = wr_id;
  wqe->opcode = opcode;
  wqe->flags = flags;
  wqe->imm_data = 0;
  wqe->rkey = 0;
  wqe->remote_addr = 0;
  wqe->compare_add = 0;
  wqe->swap = 0;
  wqe->length = 0;
  wqe->sge_count = 0;
  wqe->inline_data = nullptr;
}

// 0 or EINVAL.
int SetSges(const QpObject& qp, const ibv_sge* sges, size_t count, SendWqe* wqe) {
  if (count > qp.cap.max_send_sge) return EINVAL;
  uint64_t length = 0;
  uint32_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (sges[i].length == 0) continue;
    wqe->sges[used++] = {sges[i].addr, sges[i].length, sges[i].lkey};
    length += sges[i].length;
  }
  if (length > rdma::kMaxMessageBytes) return EINVAL;
  wqe->sge_count = used;
  wqe->length = static_cast<uint32_t>(length);
  return 0;
}

// Appends to the inline data. 0 or EINVAL.
int AddInline(const QpObject& qp, const void* data, size_t length, SendWqe* wqe) {
  if (length > qp.cap.max_inline_data - wqe->length) return EINVAL;
  uint8_t* const buffer = qp.core->InlineBuffer(wqe);
  if (length != 0) std::memcpy(buffer + wqe->length, data, length);
  wqe->inline_data = buffer;
  wqe->flags |= rdma::kSendInline;
  wqe->length += static_cast<uint32_t>(length);
  return 0;
}

// What is wrong with a whole request: 0 or EINVAL.
int CheckWqe(const QpObject& qp, const SendWqe& wqe) {
  if ((wqe.flags & ~kSendFlags) != 0) return EINVAL;
  if (!IsReadLike(wqe.opcode)) return 0;
  if (qp.ex.qp_base.qp_type != IBV_QPT_RC || (wqe.flags & IBV_SEND_INLINE) != 0) return EINVAL;
  return IsAtomic(wqe.opcode) && wqe.length != kAtomicBytes ? EINVAL : 0;
}

// Copies `wr` into `wqe`. 0 or EINVAL.
int FillWqe(const QpObject& qp, const ibv_send_wr& wr, SendWqe* wqe) {
  if (Raw(wr.opcode) > IBV_WR_ATOMIC_FETCH_AND_ADD || wr.num_sge < 0) return EINVAL;
  const auto opcode = static_cast<Opcode>(wr.opcode);
  Clear(wqe, wr.wr_id, opcode, wr.send_flags);
  if (HasImmediate(opcode)) wqe->imm_data = wr.imm_data;
  if (IsAtomic(opcode)) {
    wqe->remote_addr = wr.wr.atomic.remote_addr;
    wqe->rkey = wr.wr.atomic.rkey;
    wqe->compare_add = wr.wr.atomic.compare_add;
    wqe->swap = wr.wr.atomic.swap;
  } else if (opcode != Opcode::kSend && opcode != Opcode::kSendImm) {
    wqe->remote_addr = wr.wr.rdma.remote_addr;
    wqe->rkey = wr.wr.rdma.rkey;
  }
  const auto count = static_cast<uint32_t>(wr.num_sge);
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    if (const int error = SetSges(qp, wr.sg_list, count, wqe); error != 0) return error;
    return CheckWqe(qp, *wqe);
  }
  if (count > qp.cap.max_send_sge) return EINVAL;
  if (count == 0) wqe->inline_data = qp.core->InlineBuffer(wqe);
  for (uint32_t i = 0; i < count; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (const int error = AddInline(qp, reinterpret_cast<const void*>(sge.addr), sge.length, wqe);
        error != 0) {
      return error;
    }
  }
  return CheckWqe(qp, *wqe);
}

}  // namespace

int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  QpObject& object = *Of(qp);
  int error = Admit(*Of(qp->context), VerbCall::kPostSend);
  if (error == 0) error = object.core->BeginPost();
  if (error != 0) {
    *bad = wr;
    return error;
  }
  for (; wr != nullptr; wr = wr->next) {
    SendWqe* const wqe = object.core->Reserve();
    error = wqe == nullptr ? ENOMEM : FillWqe(object, *wr, wqe);
    if (error != 0) break;
    object.core->Commit();
  }
  object.core->EndPost();  // what came before a bad request is posted
  if (error != 0) *bad = wr;
  return error;
}

int PostReceive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  QpObject& object = *Of(qp);
  int error = Admit(*Of(qp->context), VerbCall::kPostRecv);
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    const auto count = static_cast<uint32_t>(wr->num_sge);
    if (wr->num_sge < 0 || count > object.cap.max_recv_sge) {
      error = EINVAL;
      break;
    }
    rdma::Sge sges[rdma::kMaxSge];
    for (uint32_t i = 0; i < count; ++i)
      sges[i] = {wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
    error = object.core->PostReceive(wr->wr_id, sges, count);
    if (error != 0) break;
  }
  if (error != 0) *bad = wr;
  return error;
}

// ---- ibv_wr_* ----

namespace {

// The request under construction; null after an error.
SendWqe* Current(ibv_qp_ex* qp) {
  return Of(qp)->builder.error == 0 ? Of(qp)->builder.wqe : nullptr;
}

void SetError(ibv_qp_ex* qp, int error) {
  Builder& builder = Of(qp)->builder;
  if (error != 0 && builder.error == 0) builder.error = error;
}

// Puts the request under construction into the queue.
void Finish(ibv_qp_ex* qp) {
  QpObject& object = *Of(qp);
  SendWqe* const wqe = Current(qp);
  object.builder.wqe = nullptr;
  if (wqe == nullptr) return;
  const int error = CheckWqe(object, *wqe);
  SetError(qp, error);
  if (error == 0) object.core->Commit();
}

void WrStart(ibv_qp_ex* qp) {
  QpObject& object = *Of(qp);
  Builder& builder = object.builder;
  builder.mutex.lock();
  builder.wqe = nullptr;
  builder.error = Admit(*Of(qp->qp_base.context), VerbCall::kPostSend);
  if (builder.error == 0) builder.error = object.core->BeginPost();
  builder.open = builder.error == 0;
}

void Close(ibv_qp_ex* qp, bool post) {
  QpObject& object = *Of(qp);
  Builder& builder = object.builder;
  if (builder.open) post ? object.core->EndPost() : object.core->AbandonPost();
  builder.open = false;
  builder.wqe = nullptr;
  builder.mutex.unlock();
}

// All requests since wr_start are posted, or, after an error, none.
int WrComplete(ibv_qp_ex* qp) {
  Finish(qp);
  const int error = Of(qp)->builder.error;
  Close(qp, error == 0);
  return error;
}

void WrAbort(ibv_qp_ex* qp) { Close(qp, false); }

// Begins a request; null after an error.
SendWqe* Begin(ibv_qp_ex* qp, Opcode opcode) {
  Finish(qp);
  QpObject& object = *Of(qp);
  if (object.builder.error != 0) return nullptr;
  SendWqe* const wqe = object.core->Reserve();
  if (wqe == nullptr) {
    SetError(qp, ENOMEM);
    return nullptr;
  }
  // IBV_SEND_INLINE is set by the call that gives the data.
  Clear(wqe, qp->wr_id, opcode, qp->wr_flags & ~static_cast<uint32_t>(IBV_SEND_INLINE));
  object.builder.wqe = wqe;
  return wqe;
}

void BeginRemote(ibv_qp_ex* qp, Opcode opcode, uint32_t rkey, uint64_t remote_addr,
                 __be32 imm_data = 0) {
  SendWqe* const wqe = Begin(qp, opcode);
  if (wqe == nullptr) return;
  wqe->rkey = rkey;
  wqe->remote_addr = remote_addr;
  wqe->imm_data = imm_data;
}

void WrSend(ibv_qp_ex* qp) { Begin(qp, Opcode::kSend); }
void WrSendImm(ibv_qp_ex* qp, __be32 imm_data) {
  BeginRemote(qp, Opcode::kSendImm, 0, 0, imm_data);
}
void WrRdmaWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  BeginRemote(qp, Opcode::kWrite, rkey, remote_addr);
}
void WrRdmaWriteImm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, __be32 imm_data) {
  BeginRemote(qp, Opcode::kWriteImm, rkey, remote_addr, imm_data);
}
void WrRdmaRead(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  BeginRemote(qp, Opcode::kRead, rkey, remote_addr);
}

void WrAtomicCmpSwp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                    uint64_t swap) {
  BeginRemote(qp, Opcode::kCompareSwap, rkey, remote_addr);
  if (SendWqe* const wqe = Current(qp); wqe != nullptr) {
    wqe->compare_add = compare;
    wqe->swap = swap;
  }
}

void WrAtomicFetchAdd(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add) {
  BeginRemote(qp, Opcode::kFetchAdd, rkey, remote_addr);
  if (SendWqe* const wqe = Current(qp); wqe != nullptr) wqe->compare_add = add;
}

void WrSetSgeList(ibv_qp_ex* qp, size_t count, const ibv_sge* sges) {
  if (SendWqe* const wqe = Current(qp); wqe != nullptr)
    SetError(qp, SetSges(*Of(qp), sges, count, wqe));
}

void WrSetSge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  const ibv_sge sge = {addr, length, lkey};
  WrSetSgeList(qp, 1, &sge);
}

void WrSetInlineDataList(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  SendWqe* const wqe = Current(qp);
  if (wqe == nullptr) return;
  wqe->length = 0;
  for (size_t i = 0; i < count; ++i)
    SetError(qp, AddInline(*Of(qp), buffers[i].addr, buffers[i].length, wqe));
}

void WrSetInlineData(ibv_qp_ex* qp, void* data, size_t length) {
  const ibv_data_buf buffer = {data, length};
  WrSetInlineDataList(qp, 1, &buffer);
}

// Requests that were not asked for at creation, as the device does not have them: the batch fails.
void WrBindMw(ibv_qp_ex* qp, ibv_mw*, uint32_t, const ibv_mw_bind_info*) {
  SetError(qp, EOPNOTSUPP);
}
void WrInvalidate(ibv_qp_ex* qp, uint32_t) { SetError(qp, EOPNOTSUPP); }
void WrSendTso(ibv_qp_ex* qp, void*, uint16_t, uint16_t) { SetError(qp, EOPNOTSUPP); }
void WrSetUdAddr(ibv_qp_ex* qp, ibv_ah*, uint32_t, uint32_t) { SetError(qp, EOPNOTSUPP); }
void WrAtomicWrite(ibv_qp_ex* qp, uint32_t, uint64_t, const void*) { SetError(qp, EOPNOTSUPP); }

}  // namespace

void FillBuilder(ibv_qp_ex* qp) {
  qp->wr_atomic_cmp_swp = WrAtomicCmpSwp;
  qp->wr_atomic_fetch_add = WrAtomicFetchAdd;
  qp->wr_bind_mw = WrBindMw;
  qp->wr_local_inv = WrInvalidate;
  qp->wr_rdma_read = WrRdmaRead;
  qp->wr_rdma_write = WrRdmaWrite;
  qp->wr_rdma_write_imm = WrRdmaWriteImm;
  qp->wr_send = WrSend;
  qp->wr_send_imm = WrSendImm;
  qp->wr_send_inv = WrInvalidate;
  qp->wr_send_tso = WrSendTso;
  qp->wr_set_ud_addr = WrSetUdAddr;
  qp->wr_set_xrc_srqn = WrInvalidate;
  qp->wr_set_inline_data = WrSetInlineData;
  qp->wr_set_inline_data_list = WrSetInlineDataList;
  qp->wr_set_sge = WrSetSge;
  qp->wr_set_sge_list = WrSetSgeList;
  qp->wr_start = WrStart;
  qp->wr_complete = WrComplete;
  qp->wr_abort = WrAbort;
  qp->wr_atomic_write = WrAtomicWrite;
}

}  // namespace railhop::fabric::abi
