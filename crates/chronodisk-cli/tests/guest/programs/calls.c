/* Calls of today's programs on files, in the folder that is named. What a file system does not know fails here and is
 * recorded so. Constants that only the kernel reads are in memory that this program never touches. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK 4096
#define FILE_BYTES (64 * BLOCK)

static char data[FILE_BYTES] __attribute__((aligned(BLOCK)));
static const struct open_how how = { .flags = O_CREAT | O_RDWR, .mode = 0600, .resolve = RESOLVE_BENEATH };
static const struct open_how in_root = { .flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT };

static int filled(const char *name)
{
	int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
	write(file, data, FILE_BYTES);
	fsync(file);
	return file;
}

static void clones(void)
{
	int from = filled("from"), to = open("to", O_CREAT | O_RDWR, 0644), other = filled("other");
	ioctl(to, FICLONE, from);
	struct file_clone_range range = { from, BLOCK, 4 * BLOCK, 100 * BLOCK };
	ioctl(to, FICLONERANGE, &range);
	struct {
		struct file_dedupe_range range;
		struct file_dedupe_range_info info;
	} same = { { 0, 8 * BLOCK, 1, 0, 0 }, { other, 0, 0, 0, 0 } };
	ioctl(from, FIDEDUPERANGE, &same);
	fsync(to);
	loff_t in = 2 * BLOCK, out = 200 * BLOCK;
	copy_file_range(from, &in, to, &out, 3 * BLOCK, 0);
	copy_file_range(from, NULL, to, &out, BLOCK, 0);
	off_t at = BLOCK;
	sendfile(to, from, &at, 2 * BLOCK);
	int ends[2];
	pipe(ends);
	loff_t splice_from = 5 * BLOCK, splice_to = 300 * BLOCK;
	splice(from, &splice_from, ends[1], NULL, BLOCK, 0);
	splice(ends[0], NULL, to, &splice_to, BLOCK, 0);
	struct iovec piece = { data, 1000 };
	vmsplice(ends[1], &piece, 1, 0);
	read(ends[0], data, 1000);
	close(ends[0]);
	close(ends[1]);
	fsync(to);
	close(from);
	close(to);
	close(other);
}

static void names(void)
{
	int file = open(".", O_TMPFILE | O_RDWR, 0644);
	char name[64];
	write(file, data, 3 * BLOCK);
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	linkat(AT_FDCWD, name, AT_FDCWD, "by-name", AT_SYMLINK_FOLLOW);
	linkat(file, "", AT_FDCWD, "by-descriptor", AT_EMPTY_PATH);
	int again = open(name, O_RDONLY);
	chmod(name, 0600);
	fsync(file);
	close(again);
	close(file);
	int folder = open(".", O_RDONLY | O_DIRECTORY);
	int made = (int)syscall(SYS_openat2, folder, "beneath", &how, sizeof how);
	write(made, data, BLOCK);
	close(made);
	close((int)syscall(SYS_openat2, folder, "/beneath", &in_root, sizeof in_root));
	syscall(SYS_openat2, folder, "../beneath", &how, sizeof how);
	renameat2(folder, "beneath", folder, "by-name", RENAME_NOREPLACE);
	renameat2(folder, "beneath", folder, "by-name", RENAME_EXCHANGE);
	struct statx status;
	statx(folder, "by-name", AT_STATX_FORCE_SYNC, STATX_ALL, &status);
	statx(folder, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status);
	mknod("fifo", S_IFIFO | 0600, 0);
	struct timespec times[2] = { { 0, UTIME_OMIT }, { 1000, 0 } };
	utimensat(folder, "by-name", times, 0);
	futimens(folder, times);
	fsync(folder);
	close(folder);
}

static void ranges(void)
{
	static const int modes[] = { FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE,
				     FALLOC_FL_COLLAPSE_RANGE,
				     FALLOC_FL_INSERT_RANGE,
				     FALLOC_FL_UNSHARE_RANGE };
	int file = filled("ranges");
	for (unsigned mode = 0; mode < sizeof modes / sizeof *modes; mode++)
		fallocate(file, modes[mode], 8 * BLOCK, 4 * BLOCK);
	sync_file_range(file, 0, 16 * BLOCK, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	struct iovec pieces[2] = { { data, BLOCK }, { data, 2 * BLOCK } };
	pwritev2(file, pieces, 2, 20 * BLOCK, RWF_DSYNC);
	pwritev2(file, pieces, 1, -1, RWF_SYNC);
	pwritev2(file, pieces, 1, 0, RWF_APPEND);
	posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
	preadv2(file, pieces, 2, BLOCK, RWF_NOWAIT);
	preadv2(file, pieces, 2, BLOCK, 0);
	readahead(file, 0, 16 * BLOCK);
	lseek(file, 0, SEEK_HOLE);
	fcntl(file, F_SETFL, O_DIRECT);
	pwrite(file, data, 2 * BLOCK, 0);
	close(file);
}

static void attributes(void)
{
	char value[256];
	int file = filled("attributes");
	setxattr("attributes", "user.one", data, 10, XATTR_CREATE);
	setxattr("attributes", "user.one", data, 10, XATTR_CREATE);
	fsetxattr(file, "user.two", data, 200, 0);
	fgetxattr(file, "user.two", value, 20);
	getxattr("attributes", "user.one", value, sizeof value);
	getxattr("attributes", "system.posix_acl_access", value, sizeof value);
	lgetxattr("attributes", "security.capability", value, sizeof value);
	listxattr("attributes", value, sizeof value);
	fremovexattr(file, "user.two");
	removexattr("attributes", "user.two");
	unsigned flags = 0;
	ioctl(file, FS_IOC_GETFLAGS, &flags);
	flags |= FS_NODUMP_FL;
	ioctl(file, FS_IOC_SETFLAGS, &flags);
	struct fsxattr more = { 0 };
	ioctl(file, FS_IOC_FSGETXATTR, &more);
	more.fsx_xflags |= FS_XFLAG_NOATIME;
	ioctl(file, FS_IOC_FSSETXATTR, &more);
	struct fiemap map = { .fm_length = ~0ull, .fm_flags = FIEMAP_FLAG_SYNC };
	ioctl(file, FS_IOC_FIEMAP, &map);
	int block = 0;
	ioctl(file, FIGETBSZ, &block);
	block = 0;
	ioctl(file, FIBMAP, &block);
	close(file);
}

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

/* Calls on a descriptor that an empty path stands for, and modes of links. */
static void empty_paths(void)
{
	char target[100];
	close(filled("by-path"));
	symlink("by-path", "link");
	int file = open("by-path", O_PATH), link = open("link", O_PATH | O_NOFOLLOW);
	fchownat(file, "", getuid(), getgid(), AT_EMPTY_PATH);
	syscall(SYS_faccessat2, file, "", R_OK, AT_EMPTY_PATH);
	syscall(SYS_fchmodat2, file, "", 0640, AT_EMPTY_PATH);
	syscall(SYS_fchmodat2, AT_FDCWD, "by-path", 0600, AT_SYMLINK_NOFOLLOW);
	syscall(SYS_fchmodat2, AT_FDCWD, "link", 0777, AT_SYMLINK_NOFOLLOW);
	readlinkat(link, "", target, sizeof target);
	int watches = inotify_init1(IN_NONBLOCK);
	inotify_add_watch(watches, "by-path", IN_MODIFY);
	inotify_add_watch(watches, "missing", IN_MODIFY | IN_DONT_FOLLOW);
	close(watches);
	utimensat(AT_FDCWD, "link", NULL, AT_SYMLINK_NOFOLLOW);
	close(link);
	close(file);
	struct sockaddr_un address = { AF_UNIX, "socket" };
	int bound = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(bound, (struct sockaddr *)&address, sizeof address);
	bind(second, (struct sockaddr *)&address, sizeof address);
	chmod("socket", 0600);
	close(second);
	close(bound);
}

int main(int argc, char **argv)
{
	if (argc != 2 || chdir(argv[1]) != 0)
		return 2;
	for (size_t byte = 0; byte < sizeof data; byte++)
		data[byte] = (char)(byte * byte >> 3);
	clones();
	names();
	ranges();
	attributes();
	empty_paths();
	sync();
	return 0;
}
