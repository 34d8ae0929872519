#include "cc/sim/plugin_verbs.h"

#include "cc/sim/verbs_table.h"

namespace railhop::sim {

std::shared_ptr<const verbs::Table> PluginVerbs() {
  static const std::shared_ptr<const verbs::Table> table = [] {
    const VerbsFunctions& from = SimVerbs();
    auto to = std::make_shared<verbs::Table>();
    to->get_device_list = from.get_device_list;
    to->free_device_list = from.free_device_list;
    to->get_device_name = from.get_device_name;
    to->get_device_guid = from.get_device_guid;
    to->open_device = from.open_device;
    to->close_device = from.close_device;
    to->query_device = from.query_device;
    to->query_port = from.query_port;
    to->query_gid = from.query_gid;
    to->query_pkey = from.query_pkey;
    to->alloc_pd = from.alloc_pd;
    to->dealloc_pd = from.dealloc_pd;
    to->reg_mr = from.reg_mr;
    to->dereg_mr = from.dereg_mr;
    to->create_cq = from.create_cq;
    to->destroy_cq = from.destroy_cq;
    to->create_qp = from.create_qp;
    to->modify_qp = from.modify_qp;
    to->query_qp = from.query_qp;
    to->destroy_qp = from.destroy_qp;
    to->get_async_event = from.get_async_event;
    to->ack_async_event = from.ack_async_event;
    to->reg_mr_iova2 = from.reg_mr_iova2;
    to->query_gid_ex = from.query_gid_ex;
    return to;
  }();
  return table;
}

}  // namespace railhop::sim
