/* Records which system calls the guest's kernel makes: stands in for linux.uml, and becomes it under a filter that
 * reports each call to a process of its own, which counts it and lets it go on. Used by scripts/guest-calls, which
 * defines KERNEL, the kernel's path, and OUTPUT, the folder of the counts. Linked statically, since the guest's clock
 * would be loaded into it otherwise. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

/* The argument by whose value a call is allowed, or -1. */
static int selector(int call)
{
	switch (call) {
	case SYS_ptrace:
	case SYS_prctl:
	case SYS_arch_prctl:
	case SYS_clone:
	case SYS_seccomp:
	case SYS_fallocate:
		return 0;
	case SYS_ioctl:
	case SYS_fcntl:
	case SYS_open:
	case SYS_socket:
	case SYS_socketpair:
	case SYS_memfd_create:
		return 1;
	case SYS_openat:
		return 2;
	default:
		return -1;
	}
}

#define ROWS_MAX 4096
static struct {
	int call;
	unsigned value;
	unsigned long count;
} rows[ROWS_MAX];
static int rows_count;

static void count(const struct seccomp_data *data)
{
	int at = 0, argument = selector(data->nr);
	unsigned value = argument < 0 ? 0 : (unsigned)data->args[argument];
	while (at < rows_count && (rows[at].call != data->nr || rows[at].value != value))
		at++;
	if (at == ROWS_MAX)
		return;
	if (at == rows_count)
		rows_count++;
	rows[at].call = data->nr;
	rows[at].value = value;
	rows[at].count++;
}

static void write_counts(void)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%d", OUTPUT, getpid());
	FILE *file = fopen(path, "w");
	for (int at = 0; file && at < rows_count; at++)
		fprintf(file, "%d %d %u %lu\n", rows[at].call, selector(rows[at].call), rows[at].value, rows[at].count);
	if (file)
		fclose(file);
}

static int receive_listener(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof control };
	if (recvmsg(socket, &message, 0) <= 0 || !CMSG_FIRSTHDR(&message))
		_exit(1);
	int listener;
	memcpy(&listener, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof listener);
	return listener;
}

static void supervise(int socket)
{
	static union {
		struct seccomp_notif call;
		char room[1024];
	} asked;
	static union {
		struct seccomp_notif_resp answer;
		char room[1024];
	} answer;
	setsid();
	/* The launcher waits until nobody holds the guest's descriptors. */
	for (int fd = 0; fd < 1024; fd++)
		if (fd != socket)
			close(fd);
	int listener = receive_listener(socket);
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	while (poll(&wait, 1, -1) >= 0 && !(wait.revents & POLLHUP)) {
		memset(&asked, 0, sizeof asked);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) < 0)
			continue;
		memset(&answer, 0, sizeof answer);
		answer.answer.id = asked.call.id;
		answer.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0)
			count(&asked.call.data);
	}
	write_counts();
	_exit(0);
}

static void send_listener(int socket, int listener)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &listener, sizeof listener);
	if (sendmsg(socket, &message, 0) < 0)
		_exit(1);
}

int main(int argc, char **argv)
{
	(void)argc;
	int sockets[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return 1;
	/* Not a child of the kernel, which would wait for it. */
	pid_t between = fork();
	if (between == 0) {
		if (fork() == 0)
			supervise(sockets[0]);
		_exit(0);
	}
	while (syscall(SYS_wait4, between, NULL, 0, NULL) < 0 && errno == EINTR)
		;
	/* All calls are reported but that which sends the listener. */
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)sockets[1], 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				    SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
				    &program);
	if (listener < 0)
		return 1;
	send_listener(sockets[1], listener);
	close(listener);
	execv(KERNEL, argv);
	return 127;
}
