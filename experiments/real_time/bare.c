/*
 * The least that a server of a device of constant service time can do: what it misses, the host makes it miss.
 *
 *   bare SOCKET SERVICE_MICROSECONDS TIMES
 *
 * One client, one request at a time, no model, no store, no log, no estimate of when a request was sent. It waits as
 * well as we know how to: real-time priority and locked memory where permitted, a thread of the lowest priority on
 * every CPU, a sleep until 250 µs before the reply is due and a spin for the rest, sending ahead by the median of what
 * sending took the last 127 times. A line of TIMES, in the order of the requests, has by how many nanoseconds the
 * return of the system call that sent the reply was after the instant at which the reply was due.
 *
 * The protocol is that of https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, as little of it as libnbd
 * needs to read and write.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS_MAX = 1 << 20, LENGTH_MAX = 32 << 20, SENDS_KEPT = 127 };

static const int64_t MARGIN_NS = 250 * 1000;
static const uint64_t CAPACITY_BYTES = 1ull << 30;
/* HAS_FLAGS; a read-only device would have another bit. */
static const uint16_t TRANSMISSION_FLAGS = 1;

static int64_t lateness_ns[REQUESTS_MAX];

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *keep_awake(void *cpu)
{
    struct sched_param lowest = { 0 };
    cpu_set_t where;

    CPU_ZERO(&where);
    CPU_SET((intptr_t)cpu, &where);
    if (pthread_setaffinity_np(pthread_self(), sizeof where, &where) != 0)
        return NULL;
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &lowest) != 0)
        return NULL;
    for (;;) {
        int64_t until = now_ns() + 8000;
        while (now_ns() < until)
            ;
        sched_yield();
    }
}

static void keep_all_awake(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t thread;

    for (intptr_t cpu = 0; cpu < cpus && cpu < 4; cpu++)
        if (pthread_create(&thread, NULL, keep_awake, (void *)cpu) != 0)
            fail("a thread");
}

/* Returns false if the client has gone. */
static bool send_all(int client, const void *bytes, size_t length)
{
    for (const char *next = bytes; length > 0;) {
        ssize_t sent = send(client, next, length, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return false;
        if (sent <= 0)
            fail("sending");
        next += sent;
        length -= (size_t)sent;
    }
    return true;
}

/* Returns false if the client has gone. */
static bool receive_all(int client, void *bytes, size_t length)
{
    for (char *next = bytes; length > 0;) {
        ssize_t got = recv(client, next, length, 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return false;
        if (got < 0)
            fail("receiving");
        next += got;
        length -= (size_t)got;
    }
    return true;
}

struct option_reply {
    uint64_t magic;
    uint32_t option, type, length;
} __attribute__((packed));

static bool reply_to_option(int client, uint32_t option, uint32_t type, const void *data, uint32_t length)
{
    struct option_reply reply = { htobe64(0x3e889045565a9), htobe32(option), htobe32(type), htobe32(length) };

    return send_all(client, &reply, sizeof reply) && send_all(client, data, length);
}

/* Fixed newstyle, until the client says GO; false if it goes instead, as one does that only looks for a listener. */
static bool negotiate(int client)
{
    enum { OPTION_GO = 7, REPLY_ACK = 1, REPLY_INFO = 3, INFO_EXPORT = 0 };
    const uint32_t unsupported = 0x80000001u;
    struct { uint64_t magic, option_magic; uint16_t flags; } __attribute__((packed)) greeting = {
        htobe64(0x4e42444d41474943), htobe64(0x49484156454f5054), htobe16(3)
    };
    struct { uint16_t type; uint64_t bytes; uint16_t flags; } __attribute__((packed)) export = {
        htobe16(INFO_EXPORT), htobe64(CAPACITY_BYTES), htobe16(TRANSMISSION_FLAGS)
    };
    struct { uint64_t magic; uint32_t option, length; } __attribute__((packed)) asked;
    uint32_t client_flags;
    char data[4096];

    if (!send_all(client, &greeting, sizeof greeting) || !receive_all(client, &client_flags, sizeof client_flags))
        return false;
    for (;;) {
        if (!receive_all(client, &asked, sizeof asked))
            return false;
        if (be32toh(asked.length) > sizeof data)
            fail("an option too long");
        if (!receive_all(client, data, be32toh(asked.length)))
            return false;
        if (be32toh(asked.option) == OPTION_GO)
            break;
        if (!reply_to_option(client, be32toh(asked.option), unsupported, NULL, 0))
            return false;
    }
    return reply_to_option(client, OPTION_GO, REPLY_INFO, &export, sizeof export) &&
           reply_to_option(client, OPTION_GO, REPLY_ACK, NULL, 0);
}

static void wait_until(int64_t due)
{
    int64_t until = due - MARGIN_NS;

    if (until > now_ns()) {
        struct timespec timer = { until / 1000000000, until % 1000000000 };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &timer, NULL);
    }
    while (now_ns() < due)
        ;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Half of the last sendings took longer than this. */
static int64_t lead_ns(const int64_t *sends, size_t count)
{
    int64_t sorted[SENDS_KEPT];

    if (count > SENDS_KEPT)
        count = SENDS_KEPT;
    if (count == 0)
        return 0;
    memcpy(sorted, sends, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted[count / 2];
}

int main(int argc, char **argv)
{
    struct { uint32_t magic; uint16_t flags, type; uint64_t handle, offset; uint32_t length; }
        __attribute__((packed)) request;
    struct { uint32_t magic, error; uint64_t handle; } __attribute__((packed)) reply = { htobe32(0x67446698), 0, 0 };
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct sched_param priority = { .sched_priority = 1 };
    int64_t sends[SENDS_KEPT], service_ns;
    size_t count = 0, reply_bytes;
    int listener, client;
    FILE *times;
    char *data;

    if (argc != 4 || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: bare SOCKET SERVICE_MICROSECONDS TIMES\n");
        return 2;
    }
    service_ns = strtoll(argv[2], NULL, 10) * 1000;
    strcpy(address.sun_path, argv[1]);
    data = calloc(1, sizeof reply + LENGTH_MAX);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (data == NULL || listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 4) != 0)
        fail(argv[1]);
    keep_all_awake();
    /* Neither is always permitted. */
    mlockall(MCL_CURRENT);
    sched_setscheduler(0, SCHED_FIFO, &priority);
    while ((client = accept(listener, NULL, NULL)) >= 0 && !negotiate(client))
        close(client);
    if (client < 0)
        fail("accepting");
    while (receive_all(client, &request, sizeof request)) {
        int64_t due = now_ns() + service_ns, begun, ended;
        bool is_write = be16toh(request.type) == 1;
        uint32_t length = be32toh(request.length);

        if (be16toh(request.type) > 1)
            break;
        if (length > LENGTH_MAX || count == REQUESTS_MAX)
            fail("too long, or too many");
        if (is_write && !receive_all(client, data + sizeof reply, length))
            break;
        reply.handle = request.handle;
        memcpy(data, &reply, sizeof reply);
        reply_bytes = sizeof reply + (is_write ? 0 : length);
        wait_until(due - lead_ns(sends, count));
        begun = now_ns();
        if (!send_all(client, data, reply_bytes))
            break;
        ended = now_ns();
        sends[count % SENDS_KEPT] = ended - begun;
        lateness_ns[count++] = ended - due;
    }
    times = fopen(argv[3], "w");
    if (times == NULL)
        fail(argv[3]);
    for (size_t i = 0; i < count; i++)
        fprintf(times, "%lld\n", (long long)lateness_ns[i]);
    if (fclose(times) != 0)
        fail(argv[3]);
    return 0;
}
