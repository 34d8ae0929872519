// NCCL's table of version 12: conversions and nothing else.
#include "cc/plugin/boundary.h"
#include "cc/plugin/convert.h"
#include "cc/plugin/tables.h"

namespace railhop::plugin {
namespace {

using nccl::PropertiesV12;

void Fill(const NamedProperties& from, PropertiesV12* to) {
  FillSinceV9(from, to);
  to->max_multi_request = from.values.max_multi_request;
  to->rail_id = static_cast<int16_t>(from.values.rail_id);
  to->plane_id = static_cast<int16_t>(from.values.plane_id);
}

}  // namespace

RAILHOP_NCCL_TABLE nccl::NetV12 ncclNetPlugin_v12 = {
    .name = kDefaultNetName,
    .init = InitV11,
    .devices = Devices,
    .get_properties = GetPropertiesAs<PropertiesV12, Fill>,
    .listen = Listen,
    .connect = ConnectV11,
    .accept = AcceptPlain,
    .reg_mr = RegMr,
    .reg_mr_dma_buf = RegMrDmaBuf,
    .dereg_mr = DeregMr,
    .isend = ISend,
    .irecv = IRecv,
    .iflush = IFlush,
    .test = Test,
    .close_send = CloseSend,
    .close_recv = CloseRecv,
    .close_listen = CloseListen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_v_device = MakeVDeviceAs<nccl::FusedV12>,
    .finalize = Finalize,
    .set_net_attr = SetNetAttributesV11,
};

}  // namespace railhop::plugin
