/* The admin API of the Railhop plugin as C calls, exported by libnccl-net-railhop.so.
 *
 * Find the library that NCCL has loaded (dlopen with RTLD_NOLOAD, then dlsym); do not link against
 * it, and do not load a second one. All calls may be made by any thread at any time, also before
 * NCCL has started the plugin and after it has ended it; none throws, and none blocks for longer
 * than it is asked to wait. Reading costs the data path nothing.
 *
 * Errors are returned as RAILHOP_ADMIN_* numbers with one line of text that says what to do.
 */
#ifndef RAILHOP_CC_ADMIN_RAILHOP_ADMIN_H_
#define RAILHOP_CC_ADMIN_RAILHOP_ADMIN_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. It grows when something is added; what is there keeps its meaning. */
#define RAILHOP_ADMIN_VERSION 1

/* What calls return: 0, or as railhop.proto.admin.ErrorCode. */
enum {
  RAILHOP_ADMIN_OK = 0,
  RAILHOP_ADMIN_INVALID = 1,      /* a request or value that means nothing */
  RAILHOP_ADMIN_NOT_FOUND = 2,    /* no such port, device, connection or option */
  RAILHOP_ADMIN_NOT_LOADED = 3,   /* the plugin is not started in this process */
  RAILHOP_ADMIN_STALE_SOCKET = 4, /* not returned here; on sockets only */
  RAILHOP_ADMIN_PERMISSION = 5,   /* not returned here; on sockets only */
  RAILHOP_ADMIN_REFUSED = 6,      /* it would do harm; nothing has changed */
  RAILHOP_ADMIN_TIMEOUT = 7,      /* not returned here; on sockets only */
  RAILHOP_ADMIN_INTERNAL = 8      /* no memory, a bug */
};

/* How railhop_force_failover leaves a port. */
enum {
  RAILHOP_ADMIN_DRAIN = 1, /* what is under way completes first */
  RAILHOP_ADMIN_NOW = 2    /* as a fault: at once */
};

/* RAILHOP_ADMIN_VERSION of the library. */
int railhop_admin_version(void);

/* One request, one response: bytes of railhop.proto.admin.Request in, of
 * railhop.proto.admin.Response out (cc/proto/admin.proto), the same that travel on the socket.
 * *response is to be given to railhop_admin_free. Returns 0 if there is a response, which may say
 * that the request failed; otherwise RAILHOP_ADMIN_INTERNAL (no memory), with *response a null
 * pointer. */
int railhop_admin_call(const void* request, size_t request_size, void** response,
                       size_t* response_size);
void railhop_admin_free(void* response);

/* Commands. `target` is "mlx5_0:1" (a port), "mlx5_0" (all ports of a device) or
 * "connection:<hex id>". Texts end in a zero byte; `error` may be null, and gets one line (cut to
 * error_size) if the call does not return 0. */

/* The target's traffic moves to other ports; a port stays out of service until railhop_release.
 * `mode` is RAILHOP_ADMIN_DRAIN or RAILHOP_ADMIN_NOW. */
int railhop_force_failover(const char* target, int mode, char* error, size_t error_size);
/* Back to the nearest ports that answer, without waiting for the hold-down. A null or empty target
 * means all. */
int railhop_fail_back(const char* target, char* error, size_t error_size);
/* A port or device goes out of service, in order, until railhop_release. */
int railhop_hold(const char* target, char* error, size_t error_size);
/* And back. Success as well where nothing holds it: then nothing has changed. */
int railhop_release(const char* target, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif

#endif /* RAILHOP_CC_ADMIN_RAILHOP_ADMIN_H_ */
