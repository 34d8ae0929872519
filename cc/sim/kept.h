// Objects that a program makes and may never get rid of: a device that is gone can refuse every
// call that would destroy them. What is left goes with the owner of this.
#ifndef RAILHOP_CC_SIM_KEPT_H_
#define RAILHOP_CC_SIM_KEPT_H_

#include <memory>
#include <unordered_map>

namespace railhop::sim {

// One thread.
class Kept {
 public:
  Kept() = default;
  ~Kept() {
    for (const auto& entry : objects_) entry.second(entry.first);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  template <typename T>
  T* Add(std::unique_ptr<T> object) {
    objects_[object.get()] = [](void* it) { delete static_cast<T*>(it); };
    return object.release();
  }
  // Of what Add gave.
  template <typename T>
  void Delete(T* object) {
    objects_.erase(object);
    delete object;
  }

 private:
  std::unordered_map<void*, void (*)(void*)> objects_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_KEPT_H_
