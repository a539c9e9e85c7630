/* Threads that share a table of descriptors and make, copy and close some at once, in the folder that is named. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 100
#define ROUNDS 12

static const char *folder;
static pthread_barrier_t barrier;
static char data[20000];

static int open_file(long number, int flags)
{
	char name[4096];
	snprintf(name, sizeof name, "%s/t%ld", folder, number);
	return open(name, flags, 0644);
}

/* Each opens a file of its own, all at the same moment. */
static void *opens(void *argument)
{
	long number = (long)argument;
	struct stat status;
	pthread_barrier_wait(&barrier);
	int file = open_file(number, O_CREAT | O_WRONLY);
	fstat(file, &status);
	write(file, data, 100 + (size_t)number * 97);
	fsync(file);
	close(file);
	return NULL;
}

/* Numbers of descriptors go from one thread to the other. */
static void *races(void *argument)
{
	long number = (long)argument;
	pthread_barrier_wait(&barrier);
	for (int round = 0; round < ROUNDS; round++) {
		int file = open_file(1000 + number, O_CREAT | O_RDWR | O_APPEND);
		int copy = dup(file);
		int high = fcntl(file, F_DUPFD_CLOEXEC, 200 + (int)number);
		write(copy, data, 500);
		close(file);
		if (round % 3 == 0)
			fdatasync(high);
		int other = open_file(1000 + number, O_RDONLY);
		dup2(other, high);
		read(high, data, 300);
		close(copy);
		close(high);
		close(other);
	}
	return NULL;
}

/* Pipes and pairs of sockets, through which a child passes a file's contents. */
static void *streams(void *argument)
{
	long number = (long)argument;
	int pipe_ends[2], sockets[2];
	char bytes[64];
	pthread_barrier_wait(&barrier);
	for (int round = 0; round < 4; round++) {
		if (pipe(pipe_ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
			exit(1);
		int file = open_file(2000 + number, O_CREAT | O_RDWR);
		write(pipe_ends[1], data, sizeof bytes);
		read(pipe_ends[0], bytes, sizeof bytes);
		write(sockets[0], bytes, sizeof bytes);
		read(sockets[1], bytes, sizeof bytes);
		write(file, bytes, sizeof bytes);
		close(pipe_ends[0]);
		close(pipe_ends[1]);
		fsync(file);
		close(file);
		close(sockets[0]);
		close(sockets[1]);
	}
	return NULL;
}

/* Children get a copy of the table, in which they close all but one. */
static void *forks(void *argument)
{
	long number = (long)argument;
	pthread_barrier_wait(&barrier);
	int file = open_file(3000 + number, O_CREAT | O_WRONLY);
	pid_t child = fork();
	if (child == 0) {
		dup2(file, 100);
		syscall(SYS_close_range, 3, 99, 0);
		syscall(SYS_close_range, 101, ~0u, CLOSE_RANGE_UNSHARE);
		write(100, data, 3000);
		_exit(fsync(100) != 0);
	}
	write(file, data, 1000);
	close(file);
	waitpid(child, NULL, 0);
	return NULL;
}

static void run(void *(*work)(void *), int count)
{
	pthread_t threads[THREADS];
	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	for (long number = 0; number < count; number++)
		pthread_create(&threads[number], NULL, work, (void *)number);
	for (int number = 0; number < count; number++)
		pthread_join(threads[number], NULL);
	pthread_barrier_destroy(&barrier);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	folder = argv[1];
	memset(data, 'x', sizeof data);
	run(opens, THREADS);
	run(races, 20);
	run(streams, 10);
	run(forks, 8);
	return 0;
}
