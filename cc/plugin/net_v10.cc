// NCCL's table of version 10: conversions and nothing else.
#include "cc/plugin/boundary.h"
#include "cc/plugin/convert.h"
#include "cc/plugin/tables.h"

namespace railhop::plugin {
namespace {

using nccl::PropertiesV10;

Result InitV10(nccl::Logger logger, nccl::ProfilerCallback /*profiler*/) {
  return InitOnce(logger);
}

Result ConnectV10(int dev, nccl::CommConfig* config, void* handle, void** send_comm,
                  nccl::DeviceHandle** /*device_comm*/) {
  const int traffic_class = config == nullptr ? nccl::kUndefined : config->traffic_class;
  return Connect(nullptr, traffic_class, dev, handle, send_comm);
}

}  // namespace

RAILHOP_NCCL_TABLE nccl::NetV10 ncclNetPlugin_v10 = {
    .name = kDefaultNetName,
    .init = InitV10,
    .devices = Devices,
    .get_properties = GetPropertiesAs<PropertiesV10, FillSinceV9<PropertiesV10>>,
    .listen = ListenPlain,
    .connect = ConnectV10,
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
    .make_v_device = MakeVDeviceAs<nccl::FusedV10>,
};

}  // namespace railhop::plugin
