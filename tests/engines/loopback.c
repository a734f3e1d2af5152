/* Preloaded into a server that knows no option for it: what would listen on every address
   listens on loopback only. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int bind(int fd, const struct sockaddr *address, socklen_t size) {
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    struct sockaddr_in own;
    if (address->sa_family == AF_INET && size >= sizeof own) {
        memcpy(&own, address, sizeof own);
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return real(fd, (const struct sockaddr *)&own, sizeof own);
    }
    return real(fd, address, size);
}
