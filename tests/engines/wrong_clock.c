/* Preloaded into a program: its time of day is wrong by as many seconds as the file named in
   WRONG_CLOCK_FILE says (one double), which may change at any time. Its monotonic clocks are
   right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static volatile const double *wrong_by_s;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("WRONG_CLOCK_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *page = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        wrong_by_s = page == MAP_FAILED ? NULL : page;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) begin();
    int failed = real(clock, now);
    if (!failed && wrong_by_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        double whole = floor(*wrong_by_s);
        now->tv_sec += (time_t)whole;
        now->tv_nsec += (long)((*wrong_by_s - whole) * 1e9);
        if (now->tv_nsec >= 1000000000L) {
            now->tv_nsec -= 1000000000L;
            now->tv_sec += 1;
        }
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    (void)zone;
    return failed;
}

time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME_COARSE, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
