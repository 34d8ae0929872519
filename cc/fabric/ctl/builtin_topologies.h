// The topologies of testdata/topologies, so that `run --topology two-hosts-4nic` works wherever the
// program is.
#ifndef RAILHOP_CC_FABRIC_CTL_BUILTIN_TOPOLOGIES_H_
#define RAILHOP_CC_FABRIC_CTL_BUILTIN_TOPOLOGIES_H_

namespace railhop::fabric {

struct BuiltinTopology {
  const char* name;
  const char* text;
};

// Sorted by name; ends with an entry of null pointers.
extern const BuiltinTopology kBuiltinTopologies[];

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_CTL_BUILTIN_TOPOLOGIES_H_
