// NCCL's table of version 6: conversions and nothing else.
#include "cc/plugin/boundary.h"
#include "cc/plugin/convert.h"
#include "cc/plugin/tables.h"

namespace railhop::plugin {
namespace {

using nccl::PropertiesV6;

Result ConnectV6(int dev, void* handle, void** send_comm) {
  return ConnectPlain(dev, handle, send_comm, nullptr);
}

Result RegMrV6(void* comm, void* data, int size, int type, void** mhandle) {
  // A negative size becomes 0, which RegMr refuses.
  return RegMr(comm, data, size < 0 ? 0 : static_cast<size_t>(size), type, mhandle);
}

}  // namespace

RAILHOP_NCCL_TABLE nccl::NetV6 ncclNetPlugin_v6 = {
    .name = kDefaultNetName,
    .init = InitOnce,
    .devices = Devices,
    .get_properties = GetPropertiesAs<PropertiesV6, FillCommon<PropertiesV6>>,
    .listen = ListenPlain,
    .connect = ConnectV6,
    .accept = Accept,
    .reg_mr = RegMrV6,
    .reg_mr_dma_buf = RegMrDmaBuf,
    .dereg_mr = DeregMr,
    .isend = ISendInt,
    .irecv = IRecvInt,
    .iflush = IFlush,
    .test = Test,
    .close_send = CloseSend,
    .close_recv = CloseRecv,
    .close_listen = CloseListen,
};

}  // namespace railhop::plugin
