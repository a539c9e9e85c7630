// Reads and computes by turns in one thread, and computes in another; ends with the later one. Nothing is shared
// between the threads but the processor.
//
//   beside                                        prints how many pieces of work this processor does in a second
//   beside READS PIECES_PER_READ PIECES_BESIDE [apart]    reads blocks of $CHRONODISK_DEVICE at random places
//
// With `apart`, each thread stays on a processor of its own. Some kernels put both on one, and let the other one sleep.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 1 << 16, STEPS_OF_A_PIECE = 10000 };

static volatile uint64_t result;

// Steps of xorshift, each of which needs the one before.
static void compute(long pieces) {
    uint64_t state = 88172645463325252;
    for (long step = 0; step < pieces * STEPS_OF_A_PIECE; step++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    result = state;
}

static void *compute_beside(void *pieces) {
    compute(*(long *)pieces);
    return NULL;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static int fail(const char *what) {
    perror(what);
    return 1;
}

static int stay_on(pthread_t thread, int processor) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    return pthread_setaffinity_np(thread, sizeof only, &only);
}

int main(int count, char **arguments) {
    if (count == 1) {
        enum { PIECES = 20000 };
        compute(PIECES / 10);
        double began = seconds();
        compute(PIECES);
        printf("%f\n", PIECES / (seconds() - began));
        return 0;
    }
    int apart = count == 5 && !strcmp(arguments[4], "apart");
    if ((count != 4 && !apart) || !getenv("CHRONODISK_DEVICE")) {
        fprintf(stderr, "usage: CHRONODISK_DEVICE=FILE %s [READS PIECES_PER_READ PIECES_BESIDE [apart]]\n",
                arguments[0]);
        return 2;
    }
    long reads = atol(arguments[1]), pieces_per_read = atol(arguments[2]), pieces_beside = atol(arguments[3]);
    int device = open(getenv("CHRONODISK_DEVICE"), O_RDONLY | O_DIRECT);
    if (device < 0)
        return fail("open");
    void *buffer;
    if (posix_memalign(&buffer, BLOCK, BLOCK))
        return fail("posix_memalign");
    pthread_t other;
    if (pthread_create(&other, NULL, compute_beside, &pieces_beside))
        return fail("pthread_create");
    if (apart && (stay_on(pthread_self(), 0) || stay_on(other, 1)))
        return fail("pthread_setaffinity_np");
    uint32_t number = 1;
    for (long read = 0; read < reads; read++) {
        compute(pieces_per_read);
        // Knuth's constants; the upper bits are the random ones.
        number = number * 1664525 + 1013904223;
        if (pread(device, buffer, BLOCK, (off_t)(number >> 16) % BLOCKS * BLOCK) != BLOCK)
            return fail("pread");
    }
    pthread_join(other, NULL);
    return 0;
}
