/* Preloaded into a broker: kill -9 of itself after the n-th rename of a segment's file by the log cleaner, or before the first byte
 * of the n-th such file is written. KILL_AT_RENAME=n counts renames whose source or target ends in .cleaned, .swap or .deleted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int count;

static int ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path), wanted = strlen(suffix);
    return length >= wanted && strcmp(path + length - wanted, suffix) == 0;
}

static int of_a_swap(const char *from, const char *to)
{
    return ends_in(from, ".cleaned") || ends_in(from, ".swap") || (ends_in(to, ".deleted") && strstr(from, "/kept-"));
}

int rename(const char *from, const char *to)
{
    static int (*next)(const char *, const char *);
    if (!next)
        next = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    int result = next(from, to);
    const char *at = getenv("KILL_AT_RENAME");
    if (result == 0 && at && of_a_swap(from, to) && ++count == atoi(at))
        kill(getpid(), SIGKILL);
    return result;
}
