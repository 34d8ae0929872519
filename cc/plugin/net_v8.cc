// NCCL's table of version 8: conversions and nothing else.
#include "cc/plugin/boundary.h"
#include "cc/plugin/convert.h"
#include "cc/plugin/tables.h"

namespace railhop::plugin {
namespace {

using nccl::PropertiesV8;

}  // namespace

RAILHOP_NCCL_TABLE nccl::NetV8 ncclNetPlugin_v8 = {
    .name = kDefaultNetName,
    .init = InitOnce,
    .devices = Devices,
    .get_properties = GetPropertiesAs<PropertiesV8, FillSinceV8<PropertiesV8>>,
    .listen = ListenPlain,
    .connect = ConnectPlain,
    .accept = AcceptPlain,
    .reg_mr = RegMr,
    .reg_mr_dma_buf = RegMrDmaBuf,
    .dereg_mr = DeregMr,
    .isend = ISendInt,
    .irecv = IRecvInt,
    .iflush = IFlush,
    .test = Test,
    .close_send = CloseSend,
    .close_recv = CloseRecv,
    .close_listen = CloseListen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
};

}  // namespace railhop::plugin
