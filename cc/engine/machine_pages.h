// The pages docs/reference/*-machine.md, made from the tables of the machines.
#ifndef RAILHOP_CC_ENGINE_MACHINE_PAGES_H_
#define RAILHOP_CC_ENGINE_MACHINE_PAGES_H_

#include <string>

namespace railhop::engine {

std::string FailoverMachinePage();
std::string PathMachinePage();
std::string PortMachinePage();

}  // namespace railhop::engine

#endif  // RAILHOP_CC_ENGINE_MACHINE_PAGES_H_
