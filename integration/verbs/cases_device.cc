// Devices, ports, addresses and P_Keys: what a program reads before it makes anything.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <set>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

void ListNamesDevices(World& world) {
  const std::vector<std::string> names = ListDevices(world.v);
  const std::set<std::string> unique(names.begin(), names.end());
  ExpectEq(unique.size(), names.size(), "different device names");
  ExpectTrue(unique.count(world.first_device()) == 1, "the first device is listed");
  ExpectTrue(unique.count(world.second_device()) == 1, "the second device is listed");
  int count = -1;
  ibv_device** list = world.v.get_device_list(&count);
  ExpectEq(static_cast<size_t>(count), names.size(), "number of devices");
  ExpectTrue(list[count] == nullptr, "the list ends with NULL");
  world.v.free_device_list(list);
}

void OpenTwice(World& world) {
  Device one(world, world.first_device());
  Device two(world, world.first_device());
  ExpectTrue(one.context != two.context, "two contexts");
  ibv_pd* pd = world.v.alloc_pd(one.context);
  ibv_pd* other = world.v.alloc_pd(two.context);
  ExpectTrue(pd != nullptr && other != nullptr, "both make protection domains");
  ExpectEq(world.v.dealloc_pd(pd), 0, "ibv_dealloc_pd");
  ExpectEq(world.v.dealloc_pd(other), 0, "ibv_dealloc_pd");
}

void DeviceOutlivesList(World& world) {
  int count = 0;
  ibv_device** list = world.v.get_device_list(&count);
  ibv_context* context = world.v.open_device(list[0]);
  const std::string name = world.v.get_device_name(list[0]);
  world.v.free_device_list(list);
  ExpectTrue(context != nullptr, "ibv_open_device");
  ExpectTrue(name == world.v.get_device_name(context->device), "the open device keeps its name");
  ExpectEq(world.v.close_device(context), 0, "ibv_close_device");
}

void LimitsAreSane(World& world) {
  const ibv_device_attr attr = Device(world, world.first_device()).attr;
  ExpectTrue(attr.max_qp > 0 && attr.max_cq > 0 && attr.max_mr > 0 && attr.max_pd > 0,
             "objects can be made");
  ExpectTrue(attr.max_qp_wr > 0 && attr.max_sge > 0 && attr.max_cqe > 0, "queues have room");
  ExpectTrue(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0, "reads are possible");
  ExpectTrue(attr.max_mr_size >= (1u << 30), "a region of 1 GiB is possible");
  ExpectTrue(attr.phys_port_cnt >= world.options.port, "the port exists");
}

void ExtendedQueryAgrees(World& world) {
  Device device(world, world.first_device());
  ibv_device_attr_ex extended = {};
  ExpectEq(world.v.query_device_ex(device.context, &extended), 0, "query_device_ex");
  ExpectEq(extended.orig_attr.max_qp, device.attr.max_qp, "max_qp");
  ExpectEq(extended.orig_attr.max_cqe, device.attr.max_cqe, "max_cqe");
  ExpectEq(extended.orig_attr.node_guid, device.attr.node_guid, "node_guid");
}

void GuidAgrees(World& world) {
  Device device(world, world.first_device());
  ExpectEq(world.v.get_device_guid(device.context->device), device.attr.node_guid, "GUID");
  ExpectTrue(device.attr.node_guid != 0, "the GUID is not 0");
}

void PortIsActive(World& world) {
  for (const std::string& name : {world.first_device(), world.second_device()}) {
    const ibv_port_attr attr = Device(world, name).port_attr;
    ExpectEq(static_cast<int>(attr.state), static_cast<int>(IBV_PORT_ACTIVE), "state");
    ExpectTrue(attr.active_mtu >= IBV_MTU_256 && attr.active_mtu <= attr.max_mtu, "MTU");
    ExpectTrue(attr.gid_tbl_len > 0 && attr.pkey_tbl_len > 0, "tables have entries");
    ExpectTrue(attr.max_msg_sz >= (8u << 20), "messages of 8 MiB are possible");
    ExpectTrue(attr.active_width != 0 && attr.active_speed != 0, "width and speed");
    ExpectTrue(attr.link_layer == IBV_LINK_LAYER_ETHERNET || attr.lid != 0, "a LID or Ethernet");
  }
}

void PortOutOfRange(World& world) {
  Device device(world, world.first_device());
  ibv_port_attr attr = {};
  ExpectEq(world.v.query_port(device.context, 0, &attr), EINVAL, "port 0");
  const uint8_t beyond = device.attr.phys_port_cnt + 1;
  ExpectEq(world.v.query_port(device.context, beyond, &attr), EINVAL, "port beyond the last");
}

// Programs built before port_cap_flags2 own a struct that ends there.
void OldPortQuery(World& world) {
  Device device(world, world.first_device());
  constexpr size_t kOldSize = offsetof(ibv_port_attr, port_cap_flags2);
  union {
    ibv_port_attr attr;
    uint8_t bytes[sizeof(ibv_port_attr) + 64];
  } room;
  memset(&room, 0x5a, sizeof room);
  const int error = world.v.query_port_old(device.context, world.options.port,
                                           reinterpret_cast<_compat_ibv_port_attr*>(&room.attr));
  ExpectEq(error, 0, "ibv_query_port");
  for (size_t i = kOldSize; i < sizeof room; ++i) {
    ExpectEq(room.bytes[i], 0x5a, "byte " + std::to_string(i) + " behind the old struct");
  }
  ExpectEq(static_cast<int>(room.attr.state), static_cast<int>(device.port_attr.state), "state");
  ExpectEq(room.attr.lid, device.port_attr.lid, "lid");
  ExpectEq(room.attr.link_layer, device.port_attr.link_layer, "link_layer");
}

void GidIsSet(World& world) {
  const Device first(world, world.first_device());
  const ibv_gid none = {};
  ExpectTrue(memcmp(&first.gid, &none, sizeof none) != 0, "the GID is not empty");
  const Device second(world, world.second_device());
  if (first.name == second.name) return;
  ExpectTrue(memcmp(&first.gid, &second.gid, sizeof none) != 0, "devices have GIDs of their own");
}

void GidOutOfRange(World& world) {
  Device device(world, world.first_device());
  ibv_gid gid = {};
  const int beyond = device.port_attr.gid_tbl_len;
  ExpectTrue(world.v.query_gid(device.context, world.options.port, beyond, &gid) != 0,
             "an index beyond the table is refused");
  ExpectTrue(world.v.query_gid(device.context, world.options.port, -1, &gid) != 0,
             "a negative index is refused");
}

void GidExAgrees(World& world) {
  Device device(world, world.first_device());
  ibv_gid_entry entry = {};
  ExpectEq(world.v.query_gid_ex(device.context, world.options.port,
                                static_cast<uint32_t>(device.gid_index), &entry, 0, sizeof entry),
           0, "ibv_query_gid_ex");
  ExpectTrue(memcmp(&entry.gid, &device.gid, sizeof device.gid) == 0, "the same GID");
  ExpectEq(entry.gid_index, static_cast<uint32_t>(device.gid_index), "gid_index");
  ExpectEq(entry.port_num, world.options.port, "port_num");
  const bool ethernet = device.port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
  ExpectTrue(ethernet == (entry.gid_type != IBV_GID_TYPE_IB), "the type fits the link layer");
}

void GidExOutOfRange(World& world) {
  Device device(world, world.first_device());
  ibv_gid_entry entry = {};
  const auto beyond = static_cast<uint32_t>(device.port_attr.gid_tbl_len);
  ExpectEq(
      world.v.query_gid_ex(device.context, world.options.port, beyond, &entry, 0, sizeof entry),
      EINVAL, "an index beyond the table");
  ExpectEq(world.v.query_gid_ex(device.context, device.attr.phys_port_cnt + 1u, 0, &entry, 0,
                                sizeof entry),
           EINVAL, "a port beyond the last");
}

void GidTableListsAll(World& world) {
  Device device(world, world.first_device());
  std::vector<ibv_gid_entry> entries(512);
  const ssize_t count =
      world.v.query_gid_table(device.context, entries.data(), entries.size(), 0, sizeof entries[0]);
  ExpectTrue(count > 0, "ibv_query_gid_table finds entries");
  bool found = false;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    ibv_gid gid = {};
    ExpectEq(world.v.query_gid(device.context, static_cast<uint8_t>(entry.port_num),
                               static_cast<int>(entry.gid_index), &gid),
             0, "ibv_query_gid of a listed entry");
    ExpectTrue(memcmp(&gid, &entry.gid, sizeof gid) == 0, "a listed entry is what query_gid says");
    found = found || (entry.port_num == world.options.port &&
                      entry.gid_index == static_cast<uint32_t>(device.gid_index));
  }
  ExpectTrue(found, "the entry in use is listed");
}

void GidTableWithoutRoom(World& world) {
  Device device(world, world.first_device());
  std::vector<ibv_gid_entry> entries(512);
  const ssize_t all =
      world.v.query_gid_table(device.context, entries.data(), entries.size(), 0, sizeof entries[0]);
  const ssize_t none =
      world.v.query_gid_table(device.context, entries.data(), 0, 0, sizeof entries[0]);
  ExpectTrue(all > 0, "entries with room");
  ExpectEq(none, static_cast<ssize_t>(-EINVAL), "entries without room");
}

void PkeyTable(World& world) {
  Device device(world, world.first_device());
  __be16 pkey = 0;
  ExpectEq(world.v.query_pkey(device.context, world.options.port, 0, &pkey), 0, "ibv_query_pkey");
  ExpectEq(pkey & htobe16(0x7fff), htobe16(0x7fff), "the first P_Key is the default one");
  ExpectTrue(world.v.query_pkey(device.context, world.options.port, device.port_attr.pkey_tbl_len,
                                &pkey) != 0,
             "an index beyond the table is refused");
}

void PkeyIndexFound(World& world) {
  Device device(world, world.first_device());
  ExpectTrue(world.v.get_pkey_index != nullptr, "ibv_get_pkey_index exists");
  __be16 pkey = 0;
  ExpectEq(world.v.query_pkey(device.context, world.options.port, 0, &pkey), 0, "ibv_query_pkey");
  ExpectEq(world.v.get_pkey_index(device.context, world.options.port, pkey), 0, "its index");
  ExpectEq(world.v.get_pkey_index(device.context, world.options.port, htobe16(0x1234)), -1,
           "the index of a P_Key that is not there");
}

void NamesOfValues(World& world) {
  for (int s = IBV_WC_SUCCESS; s <= IBV_WC_GENERAL_ERR; ++s) {
    ExpectTrue(strlen(world.v.wc_status_str(static_cast<ibv_wc_status>(s))) > 3, "status names");
  }
  for (int e = IBV_EVENT_CQ_ERR; e <= IBV_EVENT_GID_CHANGE; ++e) {
    ExpectTrue(strlen(world.v.event_type_str(static_cast<ibv_event_type>(e))) > 3, "event names");
  }
  ExpectTrue(strlen(world.v.port_state_str(IBV_PORT_ACTIVE)) > 3, "state names");
  ExpectTrue(strlen(world.v.node_type_str(IBV_NODE_CA)) > 3, "node names");
  ExpectTrue(world.v.wc_status_str(static_cast<ibv_wc_status>(999)) != nullptr, "unknown status");
}

}  // namespace

std::vector<Case> DeviceCases() {
  const std::vector<std::string> none, gids = {"gid_table"};
  return {
      {"Device.List_NamesTheDevicesAndEndsWithNull", "man ibv_get_device_list", none,
       ListNamesDevices},
      {"Device.OpenTwice_GivesIndependentContexts", "man ibv_open_device", none, OpenTwice},
      {"Device.ListFreed_OpenDeviceStays", "man ibv_get_device_list", none, DeviceOutlivesList},
      {"Device.Query_LimitsAreSane", "man ibv_query_device", none, LimitsAreSane},
      {"Device.QueryEx_AgreesWithQuery", "man ibv_query_device_ex", none, ExtendedQueryAgrees},
      {"Device.Guid_AgreesWithAttributes", "man ibv_get_device_guid", none, GuidAgrees},
      {"Port.Query_IsActiveWithMtuAndSpeed", "man ibv_query_port", none, PortIsActive},
      {"Port.QueryOutOfRange_Einval", "man ibv_query_port", none, PortOutOfRange},
      {"Port.QueryOldAbi_WritesTheOldStructOnly", "verbs.h, struct _compat_ibv_port_attr", none,
       OldPortQuery},
      {"Gid.Query_IsSetAndItsOwn", "man ibv_query_gid", none, GidIsSet},
      {"Gid.QueryOutOfRange_Fails", "man ibv_query_gid", none, GidOutOfRange},
      {"Gid.QueryEx_AgreesWithQuery", "man ibv_query_gid_ex", gids, GidExAgrees},
      {"Gid.QueryExOutOfRange_Einval", "man ibv_query_gid_ex", gids, GidExOutOfRange},
      {"Gid.Table_ListsEntriesAsQueryGidDoes", "man ibv_query_gid_table", gids, GidTableListsAll},
      {"Gid.TableWithoutRoom_Einval", "man ibv_query_gid_table", gids, GidTableWithoutRoom},
      {"Pkey.Query_DefaultKeyFirst", "man ibv_query_pkey", none, PkeyTable},
      {"Pkey.GetIndex_FindsAKeyOrFails", "man ibv_get_pkey_index", none, PkeyIndexFound},
      {"Names.OfStatusEventAndState_AreThere", "man ibv_event_type_str", none, NamesOfValues},
  };
}

}  // namespace railhop::conformance
