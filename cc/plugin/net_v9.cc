// NCCL's table of version 9: conversions and nothing else.
#include "cc/plugin/boundary.h"
#include "cc/plugin/convert.h"
#include "cc/plugin/tables.h"

namespace railhop::plugin {
namespace {

using nccl::PropertiesV9;

}  // namespace

RAILHOP_NCCL_TABLE nccl::NetV9 ncclNetPlugin_v9 = {
    .name = kDefaultNetName,
    .init = InitOnce,
    .devices = Devices,
    .get_properties = GetPropertiesAs<PropertiesV9, FillSinceV9<PropertiesV9>>,
    .listen = ListenPlain,
    .connect = ConnectPlain,
    .accept = AcceptPlain,
    .reg_mr = RegMr,
    .reg_mr_dma_buf = RegMrDmaBuf,
    .dereg_mr = DeregMr,
    .isend = ISendPlain,
    .irecv = IRecvPlain,
    .iflush = IFlush,
    .test = Test,
    .close_send = CloseSend,
    .close_recv = CloseRecv,
    .close_listen = CloseListen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_v_device = MakeVDeviceAs<nccl::FusedV9>,
};

}  // namespace railhop::plugin
