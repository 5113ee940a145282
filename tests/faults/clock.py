"""A clock that is wrong: the wall clock of a process and its children, moved by days; clocks that only measure spans stay right.

The mechanism is LD_PRELOAD of a library of forty lines that is compiled here; where there is no C compiler, libfaketime if it is
installed. Both move what Python and the JVM ask the C library for.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DAY_S = 86_400
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *text = getenv("TEST_CLOCK_SHIFT_S");
    return text ? atol(text) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *where) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return (time_t)-1;
    if (where != NULL) *where = exact.tv_sec;
    return exact.tv_sec;
}
/* Who waits until a moment of the moved clock must be waked by the kernel's; a monotonic clock is far below 10^9. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec moved = *until;
    if (wait == NULL) *(void **)&wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (wait == NULL) *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (moved.tv_sec > 1000000000) moved.tv_sec -= shift();
    return wait(cond, mutex, &moved);
}
"""
INSTALLED = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)


def mechanism(folder: Path) -> Path | None:
    """The library to load, compiled into `folder` or found; None where neither is to be had."""
    if sys.platform != "linux":
        return None
    if compiler := shutil.which("cc") or shutil.which("gcc"):
        (folder / "clock.c").write_text(SOURCE, encoding="utf-8")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "clock.so"), str(folder / "clock.c"), "-ldl"], check=True)
        return folder / "clock.so"
    found = [path for pattern in INSTALLED for path in Path("/").glob(pattern.removeprefix("/"))]
    return found[0] if found else None


def shifted(library: Path, days: int) -> Mapping[str, str]:
    """The environment of a process whose clock is so many days ahead (negative: behind)."""
    if library.name == "clock.so":
        return {"LD_PRELOAD": str(library), "TEST_CLOCK_SHIFT_S": str(days * DAY_S)}
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{days:+d}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
