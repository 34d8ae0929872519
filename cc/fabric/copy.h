// Moves bytes between this process and another one in a single system call.
#ifndef RAILHOP_CC_FABRIC_COPY_H_
#define RAILHOP_CC_FABRIC_COPY_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace railhop::fabric {

// Writes `length` bytes, from byte `offset` of the local `pieces` on, to `va` in process `pid`.
// Short writes become visible in ascending order of address, in units of 8 bytes, the last unit
// last: programs poll on such memory. False with errno: EFAULT (memory is gone at either end),
// ESRCH (process is gone), EPERM (not permitted).
bool WriteToProcess(uint32_t pid, const iovec* pieces, size_t count, uint64_t offset,
                    uint64_t length, uint64_t va);

// Reads `length` bytes from `va` in process `pid` to the local `pieces`, from their byte `offset`
// on.
bool ReadFromProcess(uint32_t pid, const iovec* pieces, size_t count, uint64_t offset,
                     uint64_t length, uint64_t va);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_COPY_H_
