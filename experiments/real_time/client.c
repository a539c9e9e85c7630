/*
 * A foreign client of a block device server: libnbd, and nothing of Chronodisk.
 *
 *   client URI blocking|spinning DEPTH <requests >times
 *
 * A line of input is "r OFFSET LENGTH" or "w OFFSET LENGTH", in bytes. DEPTH of the requests are outstanding at a time,
 * the next one is sent as soon as one has completed. A line of output, in the order of the input, has the nanoseconds
 * from just before a request is handed to libnbd until libnbd has its reply, and the nanosecond at which it was handed.
 * A blocking client waits in poll(2), as programs do; a spinning one never gives up its CPU.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <libnbd.h>

enum { REQUESTS_MAX = 1 << 20, DEPTH_MAX = 128, LENGTH_MAX = 32 << 20 };

struct request {
    bool is_write;
    uint64_t offset;
    uint64_t length;
    uint64_t begun_ns;
    uint64_t ended_ns;
    /* Position of its buffer among those of the outstanding requests. */
    unsigned slot;
};

static struct request *requests;
static size_t request_count;
static unsigned free_slots[DEPTH_MAX];
static unsigned free_slot_count;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "client: %s\n", what);
    exit(1);
}

static void fail_nbd(void)
{
    fail(nbd_get_error());
}

/* Returns the length of the longest request. */
static uint64_t read_requests(void)
{
    char operation;
    uint64_t offset, length, length_max = 0;

    requests = calloc(REQUESTS_MAX, sizeof *requests);
    if (requests == NULL)
        fail("no memory");
    while (scanf(" %c %" SCNu64 " %" SCNu64, &operation, &offset, &length) == 3) {
        if (operation != 'r' && operation != 'w')
            fail("an operation is r or w");
        if (request_count == REQUESTS_MAX || length == 0 || length > LENGTH_MAX)
            fail("too many requests, or a length out of range");
        requests[request_count++] =
            (struct request){ .is_write = operation == 'w', .offset = offset, .length = length };
        if (length > length_max)
            length_max = length;
    }
    if (request_count == 0 || !feof(stdin))
        fail("a line is \"r OFFSET LENGTH\" or \"w OFFSET LENGTH\", and there is at least one");
    return length_max;
}

static int completed(void *data, int *error)
{
    struct request *request = data;

    request->ended_ns = now_ns();
    if (*error != 0)
        fail("the server answered with an error");
    free_slots[free_slot_count++] = request->slot;
    /* libnbd may forget the command. */
    return 1;
}

static void send_request(struct nbd_handle *nbd, struct request *request, char *buffers, uint64_t length_max)
{
    nbd_completion_callback callback = { .callback = completed, .user_data = request };
    char *buffer;
    int64_t cookie;

    request->slot = free_slots[--free_slot_count];
    buffer = buffers + request->slot * length_max;
    request->begun_ns = now_ns();
    cookie = request->is_write ? nbd_aio_pwrite(nbd, buffer, request->length, request->offset, callback, 0)
                               : nbd_aio_pread(nbd, buffer, request->length, request->offset, callback, 0);
    if (cookie == -1)
        fail_nbd();
}

int main(int argc, char **argv)
{
    bool spinning;
    unsigned depth;
    uint64_t length_max;
    struct nbd_handle *nbd;
    char *buffers;

    if (argc != 4)
        fail("usage: client URI blocking|spinning DEPTH");
    spinning = strcmp(argv[2], "spinning") == 0;
    depth = (unsigned)strtoul(argv[3], NULL, 10);
    if ((!spinning && strcmp(argv[2], "blocking") != 0) || depth == 0 || depth > DEPTH_MAX)
        fail("usage: client URI blocking|spinning DEPTH");
    length_max = read_requests();
    buffers = malloc(depth * length_max);
    if (buffers == NULL)
        fail("no memory");
    memset(buffers, 0xa5, depth * length_max);
    /* Where it is not permitted, a page fault may add to a time. */
    mlockall(MCL_CURRENT);
    while (free_slot_count < depth) {
        free_slots[free_slot_count] = free_slot_count;
        free_slot_count++;
    }

    nbd = nbd_create();
    if (nbd == NULL || nbd_connect_uri(nbd, argv[1]) == -1)
        fail_nbd();
    for (size_t next = 0; next < request_count || free_slot_count < depth;) {
        while (next < request_count && free_slot_count > 0)
            send_request(nbd, &requests[next++], buffers, length_max);
        if (nbd_poll(nbd, spinning ? 0 : -1) == -1)
            fail_nbd();
    }
    if (nbd_shutdown(nbd, 0) == -1)
        fail_nbd();
    nbd_close(nbd);
    for (size_t i = 0; i < request_count; i++)
        printf("%" PRIu64 " %" PRIu64 "\n", requests[i].ended_ns - requests[i].begun_ns, requests[i].begun_ns);
    return 0;
}
