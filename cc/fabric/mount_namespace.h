// A private view of the file system, in which this process may put folders of its own over those of
// /sys.
//
// Root gets a mount namespace. Others get a user namespace around it, in which they are still
// themselves and, when all is mounted, have no more rights than before: the kernel lets processes
// look into each other's memory only if neither has rights that the other lacks.
#ifndef RAILHOP_CC_FABRIC_MOUNT_NAMESPACE_H_
#define RAILHOP_CC_FABRIC_MOUNT_NAMESPACE_H_

#include <set>
#include <string>
#include <vector>

namespace railhop::fabric {

class MountNamespace {
 public:
  enum class Who { kAnybody, kRootOnly };  // kRootOnly: without a user namespace
  // Moves this process, which must have one thread, into a namespace of its own. False and *error
  // where the system refuses that.
  bool Enter(Who who, std::string* error);
  // Gives back the rights that Enter brought. Call it when all is mounted.
  bool DropRights(std::string* error);

  // Makes `path` (absolute, below an existing folder) a folder that can be written, with all that
  // was in it before except the names in `without`. Parents are made so too where that is needed.
  bool MakeWritable(const std::string& path, const std::set<std::string>& without,
                    std::string* error);
  // Shows the folder `from` at `to` as well.
  bool Bind(const std::string& from, const std::string& to, std::string* error);
  // Takes all that was mounted away again. Call it before DropRights.
  void Undo();

 private:
  bool Cover(const std::string& path, const std::set<std::string>& without, std::string* error);

  bool user_namespace_ = false;
  std::set<std::string> writable_;
  std::vector<std::string> covered_;  // in the order in which they were mounted
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_MOUNT_NAMESPACE_H_
