// verbs::Table over simulated NICs: the seam at which the plugin meets the simulator.
#ifndef RAILHOP_CC_SIM_PLUGIN_VERBS_H_
#define RAILHOP_CC_SIM_PLUGIN_VERBS_H_

#include <memory>

#include "cc/verbs/table.h"

namespace railhop::sim {

// Acts in the world and for the host of SetVerbsWorld: get_device_list lists that host's NICs, all
// other functions go by the object that they are given. The same table for all hosts. One thread.
std::shared_ptr<const verbs::Table> PluginVerbs();

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_VERBS_H_
