/* The monotonic clock from the processor's counter, for a program in the guest (LD_PRELOAD). In User-Mode Linux every look at the clock is a
 * system call of tens of microseconds; on other Linux it costs some nanoseconds. fio reads this counter by itself. For x86-64 only. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static double ns_per_tick;
static unsigned long long first_tick;
static long long first_ns;

static long long kernel_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* A fifth of a second tells the rate to better than a thousandth, though each look takes up to 0.1 ms. */
__attribute__((constructor)) static void calibrate(void) {
    struct timespec fifth = {0, 200000000};
    first_ns = kernel_ns();
    first_tick = __rdtsc();
    syscall(SYS_nanosleep, &fifth, (void *)0);
    long long later_ns = kernel_ns();
    ns_per_tick = (double)(later_ns - first_ns) / (double)(__rdtsc() - first_tick);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    if (which != CLOCK_MONOTONIC || ns_per_tick == 0) return (int)syscall(SYS_clock_gettime, which, now);
    long long ns = first_ns + (long long)((double)(__rdtsc() - first_tick) * ns_per_tick);
    now->tv_sec = ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return 0;
}
