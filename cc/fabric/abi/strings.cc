// Names of enum values, and the arithmetic of static rates.
//
// Source of the names: the terms of the InfiniBand Architecture Specification volume 1 (11.6.2 for
// completion statuses, 11.6.3 for events). Programs print them; people search for them.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "cc/fabric/abi/verbs_header.h"

namespace {

template <size_t N>
const char* NameOf(const char* const (&names)[N], int value) {
  return value >= 0 && static_cast<size_t>(value) < N ? names[value] : "unknown";
}

constexpr const char* kStatusNames[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory window bind error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "remote aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "tag matching error",
    "tag matching rendezvous incomplete",
};
static_assert(std::size(kStatusNames) == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr const char* kEventNames[] = {
    "CQ error",
    "QP catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "work queue catastrophic error",
    "device speed change",  // rdma-core v60
};
static_assert(std::size(kEventNames) > IBV_EVENT_WQ_FATAL);

constexpr const char* kPortStateNames[] = {"no state change", "down",   "init",
                                           "armed",           "active", "active deferred"};
static_assert(std::size(kPortStateNames) == IBV_PORT_ACTIVE_DEFER + 1);

constexpr const char* kNodeTypeNames[] = {
    "unknown",           "InfiniBand channel adapter",
    "InfiniBand switch", "InfiniBand router",
    "iWARP NIC",         "usNIC",
    "usNIC UDP",         "unspecified",
};
static_assert(std::size(kNodeTypeNames) == IBV_NODE_UNSPECIFIED + 1);

// Static rates, IBTA 9.11.1 and its extensions: in units of 2.5 Gb/s where a whole number of them
// is meant (0: none), and in Mb/s on the wire.
struct Rate {
  ibv_rate code;
  int mult;
  int mbps;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},       {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},       {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},      {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},    {IBV_RATE_14_GBPS, 0, 14062},
    {IBV_RATE_56_GBPS, 0, 56250},       {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750},     {IBV_RATE_25_GBPS, 0, 25781},
    {IBV_RATE_100_GBPS, 0, 103125},     {IBV_RATE_200_GBPS, 0, 206250},
    {IBV_RATE_300_GBPS, 0, 309375},     {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},      {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},   {IBV_RATE_800_GBPS, 320, 850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
};

template <typename Matches>
const Rate* FindRate(Matches matches) {
  const auto* const found = std::find_if(std::begin(kRates), std::end(kRates), matches);
  return found == std::end(kRates) ? nullptr : found;
}

}  // namespace

RAILHOP_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  return NameOf(kStatusNames, status);
}
RAILHOP_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  return NameOf(kEventNames, event);
}
RAILHOP_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  return NameOf(kPortStateNames, state);
}
RAILHOP_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  return NameOf(kNodeTypeNames, type);
}

RAILHOP_EXPORT int ibv_rate_to_mult(ibv_rate rate) {
  const Rate* const found =
      FindRate([rate](const Rate& row) { return row.code == rate && row.mult != 0; });
  return found == nullptr ? -1 : found->mult;
}

RAILHOP_EXPORT ibv_rate mult_to_ibv_rate(int mult) {
  const Rate* const found =
      FindRate([mult](const Rate& row) { return row.mult == mult && mult != 0; });
  return found == nullptr ? IBV_RATE_MAX : found->code;
}

RAILHOP_EXPORT int ibv_rate_to_mbps(ibv_rate rate) {
  const Rate* const found = FindRate([rate](const Rate& row) { return row.code == rate; });
  return found == nullptr ? -1 : found->mbps;
}

RAILHOP_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) {
  const Rate* const found = FindRate([mbps](const Rate& row) { return row.mbps == mbps; });
  return found == nullptr ? IBV_RATE_MAX : found->code;
}
