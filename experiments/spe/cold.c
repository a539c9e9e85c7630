// Reads memory that it has just read, at once and after a wait: how much slower is it when others have displaced it
// from the cache meanwhile? It waits by spinning, so that nothing else runs on its processor, or asleep.
//
// Usage: cold KIB WAIT_US spin|sleep ROUNDS. It prints the nanoseconds of each round.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64 };

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// Each line names the next one, in an order that no prefetcher knows.
static size_t read_all(const size_t *memory, size_t lines) {
    size_t at = 0;
    for (size_t i = 0; i < lines; i++)
        at = memory[at];
    return at;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    size_t lines = (size_t)atol(argv[1]) * 1024 / LINE, words = LINE / sizeof(size_t);
    int64_t wait_ns = atoll(argv[2]) * 1000;
    int spins = strcmp(argv[3], "spin") == 0, rounds = atoi(argv[4]);
    size_t *memory = aligned_alloc(LINE, lines * LINE), *order = malloc(lines * sizeof *order);
    if (lines == 0 || !memory || !order)
        return 1;
    for (size_t i = 0; i < lines; i++)
        order[i] = i;
    srand(1);
    for (size_t i = lines - 1; i > 0; i--) {
        size_t other = (size_t)rand() % (i + 1), swapped = order[i];
        order[i] = order[other];
        order[other] = swapped;
    }
    for (size_t i = 0; i < lines; i++)
        memory[order[i] * words] = order[(i + 1) % lines] * words;
    volatile size_t sink = 0;
    for (int round = 0; round < rounds; round++) {
        for (int warm = 0; warm < 3; warm++)
            sink += read_all(memory, lines);
        int64_t until = now_ns() + wait_ns;
        struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
        if (spins)
            while (now_ns() < until)
                continue;
        else if (wait_ns > 0)
            nanosleep(&wait, 0);
        int64_t began = now_ns();
        sink += read_all(memory, lines);
        printf("%lld\n", (long long)(now_ns() - began));
    }
}
