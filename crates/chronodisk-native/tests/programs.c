/* Programs that are awkward to trace, one per word. Each works in the directory that is its second argument. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(99);
}

static void write_file(const char *name, int bytes)
{
	int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (file < 0)
		fail(name);
	for (int i = 0; i < bytes; i++)
		if (write(file, "x", 1) != 1)
			fail("write");
	close(file);
}

static void *thread(void *argument)
{
	char name[32];
	sprintf(name, "thread-%ld", (long)argument);
	write_file(name, 10);
	return NULL;
}

static void threads(void)
{
	pthread_t all[4];
	for (long i = 0; i < 4; i++)
		if (pthread_create(&all[i], NULL, thread, (void *)i))
			fail("pthread_create");
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
}

static void vforks(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t child = vfork();
		if (child == 0) {
			execl("/bin/true", "true", NULL);
			_exit(98);
		}
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
			fail("vfork");
	}
	write_file("vforks", 1);
}

static int ends[2];

static void on_alarm(int signal)
{
	(void)signal;
	if (write(ends[1], "a", 1) != 1)
		_exit(97);
}

/* A read that a handler interrupts: made again by the kernel, or EINTR. The handler writes what is read. */
static void interrupted(int flags)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval timer = { .it_value = { .tv_usec = 50000 } };
	char byte;
	if (pipe(ends) || sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &timer, NULL))
		fail("alarm");
	if (read(ends[0], &byte, 1) != (flags & SA_RESTART ? 1 : -1))
		fail("read");
	write_file("interrupted", 1);
}

/* A sleep that a stop and SIGCONT interrupt goes on. */
static void stopped(void)
{
	pid_t child = fork();
	if (child == 0) {
		struct timespec time = { .tv_nsec = 300000000 };
		if (nanosleep(&time, NULL))
			_exit(96);
		write_file("stopped", 1);
		_exit(0);
	}
	int status;
	usleep(50000);
	kill(child, SIGSTOP);
	if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status))
		fail("SIGSTOP");
	kill(child, SIGCONT);
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("SIGCONT");
}

static void *executes(void *argument)
{
	(void)argument;
	execl("/bin/sh", "sh", "-c", "echo x >executed", NULL);
	_exit(95);
}

/* A thread that is not the first executes a program. */
static void thread_executes(void)
{
	pthread_t other;
	if (pthread_create(&other, NULL, executes, NULL))
		fail("pthread_create");
	for (;;)
		pause();
}

/* Is killed while it waits. */
static void killed(void)
{
	write_file("killed", 2);
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(94);
	}
	usleep(50000);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	raise(SIGTERM);
}

static void maps(void)
{
	write_file("mapped", 100);
	int file = open("mapped", O_RDWR);
	char *bytes = mmap(NULL, 100, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (bytes == MAP_FAILED)
		fail("mmap");
	bytes[0] = 'y';
	/* Memory without a file is of no interest. */
	for (int i = 0; i < 100; i++)
		munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}

/* Descriptors through a socket, a clone3 with flags, a path that can't be read. */
static void passes(void)
{
	int pair[2], file = open("passed", O_CREAT | O_RDWR, 0644);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		fail("socketpair");
	char byte = 'p', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec piece = { &byte, 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &file, sizeof file);
	if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, 0) != 1)
		fail("message");
	struct { unsigned long flags, rest[10]; } arguments = { .flags = CLONE_FILES, .rest = { 0, 0, 0, SIGCHLD } };
	long child = syscall(SYS_clone3, &arguments, sizeof arguments);
	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, NULL, 0) != child)
		fail("clone3");
	if (open((char *)64, O_RDONLY) >= 0)
		fail("open");
}

/* Many tasks at once, some of which end before anybody can look. */
static void crowd(int rounds)
{
	for (int round = 0; round < rounds; round++) {
		pid_t child = fork();
		if (child == 0) {
			for (int i = 0; i < 20; i++)
				if (fork() == 0)
					_exit(0);
			while (wait(NULL) > 0)
				;
			char name[32];
			sprintf(name, "crowd-%d", round);
			write_file(name, 3);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	if (argc != 3 || chdir(argv[2]))
		fail("usage");
	const char *word = argv[1];
	if (!strcmp(word, "threads"))
		threads();
	else if (!strcmp(word, "vforks"))
		vforks();
	else if (!strcmp(word, "restarted"))
		interrupted(SA_RESTART);
	else if (!strcmp(word, "interrupted"))
		interrupted(0);
	else if (!strcmp(word, "stopped"))
		stopped();
	else if (!strcmp(word, "thread-executes"))
		thread_executes();
	else if (!strcmp(word, "killed"))
		killed();
	else if (!strcmp(word, "maps"))
		maps();
	else if (!strcmp(word, "passes"))
		passes();
	else if (!strcmp(word, "crowd"))
		crowd(10);
	else if (!strcmp(word, "waits")) {
		write_file("waits", 5);
		pause();
	} else
		fail("word");
	return 7;
}
