// A clock that a test steps: what gettimeofday and clock_gettime say of the time of day, plus the seconds in the
// file that CLOCK_STEP names. Loaded before the C library's own (LD_PRELOAD).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step(void) {
    static int file = -2;
    char text[32] = {0};
    if (file == -2) file = open(getenv("CLOCK_STEP"), O_RDONLY);
    return file >= 0 && pread(file, text, sizeof text - 1, 0) > 0 ? atol(text) : 0;
}

int gettimeofday(struct timeval *tv, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int outcome = real(tv, zone);
    tv->tv_sec += step();
    return outcome;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(id, ts);
    if (id == CLOCK_REALTIME) ts->tv_sec += step();
    return outcome;
}
