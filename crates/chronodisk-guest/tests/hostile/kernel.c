/* A hostile program in the place of a guest's kernel. It tries each way in which a program could reach past its guest,
 * and prints a line with each attempt's name and the number of its error, 0 for a success. The file VICTIMS lists its
 * targets. Arguments that would do harm beyond the victims are such that a call that is not refused fails with
 * another error than a refusal's. Compiled by the tests of the confinement. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int process, shared_memory, semaphores, queue;
static char folder[4096], file[4200], unix_name[4200], mqueue[256], abstract_name[64];
static char in_folder[8192];

static void attempt(const char *name, long result)
{
	printf("attempt %s %d\n", name, result < 0 ? errno : 0);
	fflush(stdout);
}

#define TRY(name, call) (errno = 0, attempt(name, (long)(call)))
#define CALL(name, ...) TRY(name, syscall(__VA_ARGS__))

static const char *place(const char *name)
{
	snprintf(in_folder, sizeof in_folder, "%s/%s", folder, name);
	return in_folder;
}

static void other_processes(void)
{
	struct rlimit none = { 0, 0 };
	struct sched_param parameter = { 0 };
	struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t times[3]; }
		attributes = { .size = 48, .nice = 5 };
	siginfo_t information = { .si_code = SI_QUEUE };
	cpu_set_t one;
	char byte = 0;
	struct iovec here = { &byte, 1 }, there = { (void *)0x1000, 1 };
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	TRY("prlimit", prlimit(process, RLIMIT_CPU, &none, NULL));
	TRY("setpriority", setpriority(PRIO_PROCESS, process, 5));
	TRY("setpriority-user", setpriority(PRIO_USER, 54321, 5));
	CALL("ioprio_set", SYS_ioprio_set, 1, process, 3 << 13);
	TRY("sched_setaffinity", sched_setaffinity(process, sizeof one, &one));
	TRY("sched_setscheduler", sched_setscheduler(process, SCHED_BATCH, &parameter));
	TRY("sched_setparam", sched_setparam(process, &parameter));
	CALL("sched_setattr", SYS_sched_setattr, process, &attributes, 0);
	TRY("kill", kill(process, SIGCONT));
	TRY("kill-group", kill(-process, SIGCONT));
	CALL("tgkill", SYS_tgkill, process, process, SIGCONT);
	CALL("tkill", SYS_tkill, process, SIGCONT);
	CALL("rt_sigqueueinfo", SYS_rt_sigqueueinfo, process, SIGCONT, &information);
	CALL("rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, process, process, SIGCONT, &information);
	int held = (int)syscall(SYS_pidfd_open, process, 0);
	attempt("pidfd_open", held);
	CALL("pidfd_send_signal", SYS_pidfd_send_signal, held, SIGCONT, NULL, 0);
	CALL("pidfd_getfd", SYS_pidfd_getfd, held, 0, 0);
	CALL("process_madvise", SYS_process_madvise, held, &there, 1, MADV_COLD, 0);
	CALL("process_mrelease", SYS_process_mrelease, held, 0);
	int pipes[2];
	if (pipe(pipes) == 0) {
		int signal_set = fcntl(pipes[0], F_SETSIG, SIGKILL);
		attempt("fcntl-signal", signal_set);
		TRY("fcntl-owner", fcntl(pipes[0], F_SETOWN, process));
		struct f_owner_ex owner = { F_OWNER_PID, process };
		TRY("fcntl-owner-ex", fcntl(pipes[0], F_SETOWN_EX, &owner));
	}
	TRY("ptrace-seize", ptrace(PTRACE_SEIZE, process, 0, 0));
	TRY("ptrace-attach", ptrace(PTRACE_ATTACH, process, 0, 0));
	TRY("process_vm_readv", process_vm_readv(process, &here, 1, &there, 1, 0));
	TRY("process_vm_writev", process_vm_writev(process, &here, 1, &there, 1, 0));
	char memory[64];
	snprintf(memory, sizeof memory, "/proc/%d/mem", process);
	TRY("open-memory", open(memory, O_RDWR));
	CALL("kcmp", SYS_kcmp, process, process, 0, 0, 0);
	CALL("migrate_pages", SYS_migrate_pages, process, 0, NULL, NULL);
	CALL("move_pages", SYS_move_pages, process, 0, NULL, NULL, NULL, 0);
	CALL("get_robust_list", SYS_get_robust_list, process, NULL, NULL);
}

static void shared_objects(void)
{
	struct { long type; char text[8]; } message = { 1, "hostile" };
	struct sembuf up = { 0, 1, IPC_NOWAIT };
	void *shared = shmat(shared_memory, NULL, 0);
	attempt("shmat", shared == (void *)-1 ? -1 : 0);
	if (shared != (void *)-1)
		strcpy(shared, "hostile");
	TRY("shmctl", shmctl(shared_memory, IPC_RMID, NULL));
	TRY("shmget", shmget(IPC_PRIVATE, 4096, 0600));
	TRY("semop", semop(semaphores, &up, 1));
	TRY("semctl", semctl(semaphores, 0, IPC_RMID));
	TRY("semget", semget(IPC_PRIVATE, 1, 0600));
	TRY("msgsnd", msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT));
	TRY("msgrcv", msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT));
	TRY("msgctl", msgctl(queue, IPC_RMID, NULL));
	TRY("msgget", msgget(IPC_PRIVATE, 0600));
	TRY("mq_open", mq_open(mqueue, O_RDWR | O_NONBLOCK));
	TRY("mq_unlink", mq_unlink(mqueue));
}

static void files(void)
{
	int fd = open(file, O_RDONLY);
	int flags = 0;
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	struct fsxattr extended = { 0 };
	struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	if (fd < 0)
		attempt("file-is-not-there", 0);
	TRY("open-tmpfile", open(folder, O_TMPFILE | O_RDWR, 0600));
	TRY("open-tmpfile-write", open("/tmp", O_TMPFILE | O_WRONLY, 0600));
	TRY("ioctl-setversion", ioctl(fd, FS_IOC_SETVERSION, &flags));
	TRY("ioctl-setflags", ioctl(fd, FS_IOC_SETFLAGS, &flags));
	TRY("ioctl-fssetxattr", ioctl(fd, FS_IOC_FSSETXATTR, &extended));
	TRY("ioctl-fiemap", ioctl(fd, FS_IOC_FIEMAP, NULL));
	TRY("ioctl-ficlone", ioctl(fd, FICLONE, -1));
	TRY("flock", flock(fd, LOCK_EX | LOCK_NB));
	TRY("fcntl-lock", fcntl(fd, F_SETLK, &lock));
	TRY("fcntl-lock-of-description", fcntl(fd, F_OFD_SETLK, &lock));
	TRY("fcntl-lease", fcntl(fd, F_SETLEASE, F_RDLCK));
	TRY("fcntl-notify", fcntl(open(folder, O_RDONLY), F_NOTIFY, DN_CREATE));
	TRY("open-write", open(file, O_WRONLY));
	TRY("open-truncate", open(file, O_RDONLY | O_TRUNC));
	TRY("open-create", open(place("made"), O_RDWR | O_CREAT, 0600));
	CALL("creat", SYS_creat, place("made"), 0600);
	TRY("truncate", truncate(file, 0));
	TRY("mkdir", mkdir(place("made"), 0700));
	TRY("mknod", mknod(place("made"), S_IFIFO | 0600, 0));
	TRY("symlink", symlink("x", place("made")));
	TRY("link", link(file, place("made")));
	TRY("rename", rename(file, place("made")));
	TRY("unlink", unlink(file));
	TRY("rmdir", rmdir(folder));
	TRY("chmod", chmod(file, 0777));
	TRY("fchmod", fchmod(fd, 0777));
	CALL("fchmodat2", 452, AT_FDCWD, file, 0777, 0);
	TRY("chown", chown(file, getuid(), getgid()));
	TRY("fchown", fchown(fd, getuid(), getgid()));
	TRY("lchown", lchown(file, getuid(), getgid()));
	TRY("utimensat", utimensat(AT_FDCWD, file, times, 0));
	CALL("utime", SYS_utime, file, NULL);
	CALL("futimesat", SYS_futimesat, AT_FDCWD, file, NULL);
	CALL("setxattr", SYS_setxattr, file, "user.hostile", "x", 1, 0);
	CALL("fsetxattr", SYS_fsetxattr, fd, "user.hostile", "x", 1, 0);
	CALL("removexattr", SYS_removexattr, file, "user.hostile");
	CALL("file_setattr", 469, AT_FDCWD, file, NULL, 0, 0);
	/* The clock's page, which the launcher has mapped. */
	TRY("ftruncate", ftruncate(30, 0));
	TRY("fallocate", fallocate(30, 0, 0, 1 << 20));
	CALL("name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, file, NULL, NULL, 0);
	CALL("open_by_handle_at", SYS_open_by_handle_at, AT_FDCWD, NULL, 0);
	CALL("sync_file_range", SYS_sync_file_range, fd, 0, 0, 0);
	CALL("inotify_init1", SYS_inotify_init1, 0);
	CALL("fanotify_init", SYS_fanotify_init, 0, 0);
	CALL("quotactl", SYS_quotactl, 0, NULL, 0, NULL);
	CALL("copy_file_range", SYS_copy_file_range, fd, NULL, -1, NULL, 1, 0);
	CALL("openat2", SYS_openat2, AT_FDCWD, file, NULL, 0);
}

static void sockets(void)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX }, abstract = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	strncpy(path.sun_path, unix_name, sizeof path.sun_path - 1);
	snprintf(abstract.sun_path + 1, sizeof abstract.sun_path - 1, "%s", abstract_name);
	socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract_name));
	TRY("connect", connect(fd, (struct sockaddr *)&path, sizeof path));
	TRY("connect-abstract", connect(fd, (struct sockaddr *)&abstract, length));
	TRY("bind", bind(fd, (struct sockaddr *)&abstract, length));
	TRY("listen", listen(fd, 1));
	TRY("socket-inet", socket(AF_INET, SOCK_STREAM, 0));
	TRY("socket-inet6", socket(AF_INET6, SOCK_DGRAM, 0));
	TRY("socket-netlink", socket(AF_NETLINK, SOCK_RAW, 0));
	TRY("socket-packet", socket(AF_PACKET, SOCK_RAW, 0));
	TRY("socket-vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
	TRY("socket-datagram", socket(AF_UNIX, SOCK_DGRAM, 0));
	int pair[2];
	TRY("socketpair-datagram", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	CALL("sendmmsg", SYS_sendmmsg, fd, NULL, 0, 0);
}

static int ends_at_once(void *unused)
{
	(void)unused;
	_exit(0);
}

static void kernels(void)
{
	static char stack[16384] __attribute__((aligned(16)));
	char *top = stack + sizeof stack;
	CALL("io_uring_setup", SYS_io_uring_setup, 1, NULL);
	CALL("keyctl", SYS_keyctl, 0, 0, 0, 0, 0);
	CALL("add_key", SYS_add_key, NULL, NULL, NULL, 0, 0);
	CALL("request_key", SYS_request_key, NULL, NULL, NULL, 0);
	CALL("bpf", SYS_bpf, -1, NULL, 0);
	CALL("perf_event_open", SYS_perf_event_open, NULL, 0, -1, -1, 0);
	CALL("userfaultfd", SYS_userfaultfd, 0);
	CALL("memfd_secret", SYS_memfd_secret, 0);
	CALL("mount", SYS_mount, "none", folder, "tmpfs", 0, NULL);
	CALL("umount2", SYS_umount2, folder, 0);
	CALL("pivot_root", SYS_pivot_root, folder, folder);
	CALL("chroot", SYS_chroot, folder);
	CALL("fsopen", SYS_fsopen, "tmpfs", 0);
	CALL("open_tree", SYS_open_tree, AT_FDCWD, folder, 1);
	CALL("move_mount", SYS_move_mount, -1, "", -1, "", 0);
	CALL("mount_setattr", SYS_mount_setattr, AT_FDCWD, folder, 0, NULL, 0);
	CALL("unshare", SYS_unshare, CLONE_NEWUSER);
	CALL("setns", SYS_setns, -1, 0);
	TRY("clone-namespace", clone(ends_at_once, top, CLONE_NEWUSER | SIGCHLD, NULL));
	CALL("clone3", SYS_clone3, NULL, 0);
	CALL("swapon", SYS_swapon, place("none"), 0);
	CALL("reboot", SYS_reboot, 0, 0, 0, NULL);
	CALL("sethostname", SYS_sethostname, NULL, 1);
	CALL("setdomainname", SYS_setdomainname, NULL, 1);
	CALL("syslog", SYS_syslog, 3, NULL, 0);
	CALL("settimeofday", SYS_settimeofday, NULL, (void *)1);
	CALL("clock_settime", SYS_clock_settime, 77, NULL);
	CALL("adjtimex", SYS_adjtimex, NULL);
	CALL("init_module", SYS_init_module, NULL, 0, NULL);
	CALL("finit_module", SYS_finit_module, -1, "", 0);
	CALL("kexec_load", SYS_kexec_load, 0, 0, NULL, ~0ul);
	CALL("iopl", SYS_iopl, 3);
	CALL("ioperm", SYS_ioperm, 0, 1, 1);
	CALL("acct", SYS_acct, place("none"));
	CALL("personality", SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */);
	CALL("setuid", SYS_setuid, getuid());
	CALL("capset", SYS_capset, NULL, NULL);
	CALL("mlockall", SYS_mlockall, 0);
	CALL("landlock_create_ruleset", SYS_landlock_create_ruleset, NULL, 0, 1);
	CALL("setsid", SYS_setsid);
	CALL("setpgid", SYS_setpgid, 0, 0);
	TRY("prctl-death-signal", prctl(PR_SET_PDEATHSIG, 0));
	TRY("prctl-subreaper", prctl(PR_SET_CHILD_SUBREAPER, 1));
	TRY("prctl-mm", prctl(PR_SET_MM, 0, 0, 0, 0));
	TRY("seccomp-strict", syscall(SYS_seccomp, 0, 1, NULL));
	TRY("ioctl-sti", ioctl(0, TIOCSTI, "x"));
	TRY("ioctl-terminal", ioctl(0, TCSETS, NULL));
	TRY("ioctl-linux", ioctl(0, TIOCLINUX, NULL));
	TRY("ioctl-controlling", ioctl(0, TIOCSCTTY, 0));
}

/* The kernel's numbers for errors come in the register. */
static long by_interrupt(long number)
{
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number) : "memory", "r8", "r9", "r10", "r11");
	errno = (int)-result;
	return result;
}

static void other_numbers(void)
{
	CALL("x32", 0x40000000 | SYS_getpid);
	CALL("no-such-call", 9999);
	TRY("int-0x80-getpid", by_interrupt(20));
	TRY("int-0x80-nice", by_interrupt(34));
}

/* A helper of the kernel's, which is another program. */
static void helper(char *program)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		execl(program, program, "helper", NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
}

/* Leaves a process of another program, which its folder's name marks. */
static void leave_process(void)
{
	char mark[8192];
	char *const environment[] = { mark, NULL };
	snprintf(mark, sizeof mark, "LEFT=%s", folder);
	if (fork() == 0) {
		setsid();
		if (fork() == 0)
			execle("/bin/sleep", "sleep", "600", NULL, environment);
		_exit(0);
	}
	/* It has begun by then. */
	usleep(100000);
}

/* Calls that must succeed. Without them, the refusals could have another reason. */
static void harmless(void)
{
	char byte;
	int fd = open(file, O_RDONLY), pair[2];
	TRY("allowed-read", read(fd, &byte, 1));
	TRY("allowed-socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	TRY("allowed-kill", kill(child, SIGKILL));
	TRY("allowed-wait", waitpid(child, NULL, 0));
	TRY("allowed-kill-of-none", kill(child, SIGKILL) < 0 && errno == ESRCH ? 0 : -1);
	/* As each process of User Mode Linux begins: it stops once, in the call. */
	int status = 0;
	child = fork();
	if (child == 0) {
		kill(getpid(), SIGSTOP);
		raise(SIGSTOP);
		_exit(5);
	}
	for (int stop = 0; stop < 2; stop++) {
		waitpid(child, &status, WUNTRACED);
		TRY("allowed-own-stop", WIFSTOPPED(status) ? kill(child, SIGCONT) : -1);
	}
	waitpid(child, &status, 0);
	TRY("allowed-stops-are-two", WIFEXITED(status) && WEXITSTATUS(status) == 5 ? 0 : -1);
	TRY("allowed-memory", memfd_create("harmless", 0));
	TRY("allowed-own-signal", kill(getpid(), SIGCONT));
}

int main(int argc, char **argv)
{
	FILE *victims = fopen(VICTIMS, "r");
	if (!victims || fscanf(victims, "%d %d %d %d %4095s %4199s %4199s %255s %63s", &process, &shared_memory,
			       &semaphores, &queue, folder, file, unix_name, mqueue, abstract_name) != 9)
		return 77;
	if (argc > 1 && strcmp(argv[1], "helper") == 0) {
		struct rlimit none = { 0, 0 };
		TRY("helper-prlimit", prlimit(process, RLIMIT_CPU, &none, NULL));
		TRY("helper-kill", kill(process, SIGCONT));
		TRY("helper-open-tmpfile", open(folder, O_TMPFILE | O_RDWR, 0600));
		return 0;
	}
	harmless();
	other_processes();
	shared_objects();
	files();
	sockets();
	kernels();
	other_numbers();
	helper(argv[0]);
	/* The launcher gives a kernel arguments, and has to end what it leaves. */
	if (argc > 1)
		leave_process();
	printf("end\n");
	return 9;
}
