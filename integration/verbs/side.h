// One end of a connection, and pairs of them: what nearly every case is made of.
//
// A Side owns a device context, a protection domain, two completion queues and a queue pair, and
// takes them down in order. Making anything fails the case when the library refuses; cases that
// want a refusal call the table themselves. Attributes for modify_qp come as {attr, mask} values,
// so a case can spoil one and try.
#ifndef RAILHOP_INTEGRATION_VERBS_SIDE_H_
#define RAILHOP_INTEGRATION_VERBS_SIDE_H_

#include <memory>
#include <string>
#include <vector>

#include "integration/verbs/world.h"

namespace railhop::conformance {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// An open device with the port and the address that the options name.
class Device {
 public:
  Device(World& world, const std::string& name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  World& world;
  std::string name;
  ibv_context* context = nullptr;
  ibv_device_attr attr = {};
  ibv_port_attr port_attr = {};
  int gid_index = 0;
  ibv_gid gid = {};
};

// Registered memory between guard zones. Deregisters when it goes.
class Region {
 public:
  Region(World& world, ibv_pd* pd, size_t size, int access = kAllAccess, size_t skew = 0);
  ~Region();
  Region(Region&&) noexcept;
  Region& operator=(Region&&) = delete;

  // Deregisters now.
  void Deregister();
  ibv_sge Sge(size_t offset, size_t length) const {
    return {buffer->addr() + offset, static_cast<uint32_t>(length), mr->lkey};
  }
  uint8_t* data() const { return buffer->data(); }
  uint64_t addr() const { return buffer->addr(); }

  World* world;
  Buffer* buffer;
  ibv_mr* mr;
};

struct SideOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t send_wr = 64, recv_wr = 64, send_sge = 2, recv_sge = 2;
  uint32_t inline_bytes = 64;
  bool sig_all = false;
  int cq_entries = 256;
  bool channels = false;  // a completion channel for each completion queue
  uint64_t send_ops = 0;  // nonzero: ibv_create_qp_ex with these send_ops_flags
};

// Attributes and mask of one ibv_modify_qp.
struct QpChange {
  ibv_qp_attr attr = {};
  int mask = 0;
};

struct ConnectOptions {
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t timeout = 14;  // 67 ms
  uint8_t retry_count = 3;
  uint8_t rnr_retry = 6;
  uint8_t min_rnr_timer = 5;       // 0.08 ms
  uint32_t first_psn = 0x123456;   // of the first side's send queue
  uint32_t second_psn = 0xfffff0;  // of the second side's: wraps soon
  int access = kAllAccess;
  uint8_t rd_atomic = 1;
};

class Side {
 public:
  Side(World& world, const std::string& device, const SideOptions& options = {});
  // Shares `owner`'s device, protection domain and completion queues; a queue pair of its own.
  Side(Side& owner, const SideOptions& options);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Region NewRegion(size_t size, int access = kAllAccess, size_t skew = 0) {
    return Region(world, pd, size, access, skew);
  }

  // What the transition needs, complete and legal. `peer` is where RTR points.
  QpChange InitChange(int access = kAllAccess) const;
  QpChange RtrChange(const Side& peer, const ConnectOptions& options, uint32_t rq_psn) const;
  QpChange RtrChange(uint32_t peer_qpn, const ibv_gid& peer_gid, uint16_t peer_lid,
                     const ConnectOptions& options, uint32_t rq_psn) const;
  QpChange RtsChange(const ConnectOptions& options, uint32_t sq_psn) const;
  static QpChange StateChange(ibv_qp_state state);

  // 0 or an errno value. An RTR that gives ETIMEDOUT is tried again for three seconds: the address
  // resolution of a link that has just come up may fail.
  int Modify(QpChange change) const;
  // Fails the case unless it works.
  void MustModify(const QpChange& change, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) const;
  void MoveTo(ibv_qp_state state, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) const {
    MustModify(StateChange(state), file, line);
  }
  ibv_qp_state State() const;
  void DestroyQp();

  // Each posts one request and returns what the library returned.
  int PostSend(ibv_send_wr wr) const;
  int PostRecv(uint64_t wr_id, const std::vector<ibv_sge>& list) const;
  void MustSend(const ibv_send_wr& wr, const char* file = __builtin_FILE(),
                int line = __builtin_LINE()) const;
  void MustRecv(uint64_t wr_id, const std::vector<ibv_sge>& list,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;

  World& world;
  std::shared_ptr<Device> device;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* send_channel = nullptr;
  ibv_comp_channel* recv_channel = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_qp* qp = nullptr;

 private:
  void CreateQp(const SideOptions& options);
  bool owns_queues_ = true;
};

// Takes both from RESET to RTS, pointing at each other.
void Connect(Side& first, Side& second, const ConnectOptions& options = {});

// Two connected sides on the two devices.
struct Pair {
  explicit Pair(World& world, const SideOptions& options = {}, const ConnectOptions& connect = {});
  Pair(World& world, const SideOptions& options, const SideOptions& second_options,
       const ConnectOptions& connect);
  Side first;
  Side second;
};

// A send work request. `list` must outlive the posting.
ibv_send_wr SendWr(ibv_wr_opcode opcode, uint64_t wr_id, std::vector<ibv_sge>& list,
                   unsigned flags = IBV_SEND_SIGNALED);
ibv_send_wr RdmaWr(ibv_wr_opcode opcode, uint64_t wr_id, std::vector<ibv_sge>& list,
                   uint64_t remote_addr, uint32_t rkey, unsigned flags = IBV_SEND_SIGNALED);
ibv_send_wr AtomicWr(ibv_wr_opcode opcode, uint64_t wr_id, std::vector<ibv_sge>& list,
                     uint64_t remote_addr, uint32_t rkey, uint64_t compare_add, uint64_t swap);

// Waits for `count` completions and returns them in order. Fails when they do not come in time.
std::vector<ibv_wc> Poll(World& world, ibv_cq* cq, int count, double seconds = 10,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE());
ibv_wc PollOne(World& world, ibv_cq* cq, double seconds = 10, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());
// Waits for one completion and expects its status and work request.
ibv_wc ExpectCompletion(World& world, ibv_cq* cq, uint64_t wr_id, ibv_wc_status status,
                        double seconds = 10, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE());
// Fails when a completion comes within `seconds`.
void ExpectQuiet(World& world, ibv_cq* cq, double seconds, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_SIDE_H_
