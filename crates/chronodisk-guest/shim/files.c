/* The host's tree, of which what the guest moves is counted, and the guest's memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

static int (*real_open)(const char *, int, ...);
static int (*real_open64)(const char *, int, ...);
static int (*real_mkstemp64)(char *);
static int (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_openpty)(int *, int *, char *, const struct termios *, const struct winsize *);
static ssize_t (*real_pread64)(int, void *, size_t, off64_t);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);

/* What the host's file system does for its tree is not the guest's work. */
static uint64_t instant_of_host_tree_call(void)
{
	return page && page->computing == CHRONODISK_COMPUTING_MEASURED && is_guest_kernel() ? host_nanos() : 0;
}

static void account_for_host_tree_call(uint64_t since_host)
{
	if (since_host)
		account_for_host_call(since_host);
}

ssize_t pread64(int fd, void *buffer, size_t len_bytes, off64_t at)
{
	uint64_t since = instant_of_host_tree_call();
	ssize_t got = real_pread64(fd, buffer, len_bytes, at);
	account_for_host_tree_call(since);
	if (got > 0 && shared_page)
		shared_page->host_tree_read_bytes += (uint64_t)got;
	return got;
}

ssize_t pwrite64(int fd, const void *buffer, size_t len_bytes, off64_t at)
{
	uint64_t since = instant_of_host_tree_call();
	ssize_t put = real_pwrite64(fd, buffer, len_bytes, at);
	account_for_host_tree_call(since);
	if (put > 0 && shared_page)
		shared_page->host_tree_written_bytes += (uint64_t)put;
	return put;
}

/* The guest's memory has no name in any file system, so nothing is left behind, and a small or
 * unexecutable /dev/shm does no harm. */
static int memory_file(void)
{
	return (int)syscall(SYS_memfd_create, "chronodisk-guest-memory", MFD_CLOEXEC);
}

/* The host lets the guest's kernel open no file for writing. Its standard input is /dev/null for writing, too. */
static int is_null_device(const char *path, int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY && strcmp(path, "/dev/null") == 0;
}

/* User Mode Linux asks for a file without a name where the host can make one... */
static int open_as(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
	if (!is_kernel_process())
		return real(path, flags, mode);
	if ((flags & O_TMPFILE) == O_TMPFILE)
		return memory_file();
	return is_null_device(path, flags) ? fcntl(STDIN_FILENO, F_DUPFD, 0) : real(path, flags, mode);
}

static mode_t mode_among(int flags, va_list rest)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = mode_among(flags, rest);
	va_end(rest);
	return open_as(real_open, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = mode_among(flags, rest);
	va_end(rest);
	return open_as(real_open64, path, flags, mode);
}

/* ...and else for one with a name, which it removes at once. */
static char memory_name[64];

int mkstemp64(char *template)
{
	if (!is_kernel_process())
		return real_mkstemp64(template);
	int fd = memory_file();
	size_t len_bytes = strlen(template);
	if (fd >= 0 && len_bytes < sizeof memory_name)
		memcpy(memory_name, template, len_bytes + 1);
	return fd;
}

int unlink(const char *path)
{
	if (memory_name[0] && strcmp(path, memory_name) == 0) {
		memory_name[0] = 0;
		return 0;
	}
	return real_unlink(path);
}

/* The folder of the kernel's own files is one where none can be made; see uml_dir in the launcher. */
#define KERNEL_FOLDER "/proc/self/"

int mkdir(const char *path, mode_t mode)
{
	size_t len_bytes = sizeof KERNEL_FOLDER - 1;
	if (!is_kernel_process() || strncmp(path, KERNEL_FOLDER, len_bytes) != 0)
		return real_mkdir(path, mode);
	errno = path[len_bytes] ? ENOENT : EEXIST;
	return -1;
}

/* The kernel makes a pseudo-terminal to see how the host's behave. It has no other use for one. */
int openpty(int *primary, int *secondary, char *name, const struct termios *settings, const struct winsize *size)
{
	if (!is_kernel_process())
		return real_openpty(primary, secondary, name, settings, size);
	errno = ENOENT;
	return -1;
}

/* What the guest's kernel draws from its host to seed its own generator: the run's, so that runs
 * repeat. The sequence is SplitMix64 (Steele, Lea, Flood 2014). */
ssize_t getrandom(void *buffer, size_t len_bytes, unsigned flags)
{
	static uint64_t state;
	static int seeded;
	if (!is_kernel_process())
		return syscall(SYS_getrandom, buffer, len_bytes, flags);
	if (!seeded)
		state = shared_page->seed;
	seeded = 1;
	for (size_t at = 0; at < len_bytes; at += sizeof state) {
		uint64_t word = state += 0x9e3779b97f4a7c15ull;
		word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
		word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
		word ^= word >> 31;
		memcpy((char *)buffer + at, &word, len_bytes - at < sizeof word ? len_bytes - at : sizeof word);
	}
	return (ssize_t)len_bytes;
}

void start_files(void)
{
	real_open = next_symbol("open");
	real_open64 = next_symbol("open64");
	real_mkstemp64 = next_symbol("mkstemp64");
	real_unlink = next_symbol("unlink");
	real_mkdir = next_symbol("mkdir");
	real_openpty = next_symbol("openpty");
	real_pread64 = next_symbol("pread64");
	real_pwrite64 = next_symbol("pwrite64");
}
