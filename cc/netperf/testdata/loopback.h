// A small network for tests: connections between processes of one host over Unix sockets, without
// any version's types. It carries messages honestly, or breaks them on purpose, so that what
// netperf looks for can be seen to be found.
//
// LOOPBACK_FAULT breaks message LOOPBACK_AT (from 0; default 5) of each connection: see Fault.
#ifndef RAILHOP_CC_NETPERF_TESTDATA_LOOPBACK_H_
#define RAILHOP_CC_NETPERF_TESTDATA_LOOPBACK_H_

#include <cstddef>
#include <cstdint>

namespace railhop::netperf::loopback {

inline constexpr int kDevices = 4;
inline constexpr int kGroupMax = 8;

enum class Fault {
  kNone,
  kCorrupt,    // a byte of the message is changed
  kShort,      // test() says one byte less
  kBehind,     // a byte behind the receive is written
  kBefore,     // a byte in front of the receive is written
  kDuplicate,  // the message before comes instead
  kLate,       // done before the bytes are there
  kEarlyDone,  // the send is done before its bytes are read
  kError,      // test() gives ncclRemoteError
  kHang,       // never done
  kStuck,      // test() does not return
  kDie,        // the process exits
  kPause,      // done half a second later
  kInit,       // init gives ncclSystemError
  kNoDevice,   // devices gives none
  kClose,      // closeRecv gives ncclInternalError
};

struct Listener;
struct Connection;
struct Request;

// Results are NCCL's; see the plugin ABI for what each does.
int Init();
int Devices(int* count);
int Listen(void* handle, Listener** listener);
int Connect(void* handle, Connection** connection);
int Accept(Listener* listener, Connection** connection);
int Send(Connection* connection, const void* data, size_t size, int tag, Request** request);
int Receive(Connection* connection, int n, void** data, const size_t* sizes, const int* tags,
            Request** request);
int Test(Request* request, int* done, int* sizes);
int Close(Connection* connection, bool receives);
int CloseListener(Listener* listener);

}  // namespace railhop::netperf::loopback

#endif  // RAILHOP_CC_NETPERF_TESTDATA_LOOPBACK_H_
