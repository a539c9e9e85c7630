/* What the guest's kernel need not do when it boots. */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>

#include "shim.h"

/* A kernel that is built with CONFIG_UEVENT_HELPER, as the distribution's is, begins this program for each device,
 * queue and module that it registers, whether there is such a program or not: a process of the host each time, and
 * more than a hundred of them while it boots. udev took its place in 2005. */
#define HOTPLUG "/sbin/hotplug"
/* The kernel keeps its name in an array of this size (`UEVENT_HELPER_PATH_LEN`). */
#define HOTPLUG_NAME_BYTES 256

static char *find_hotplug(char *from, size_t len_bytes)
{
	static const char name[HOTPLUG_NAME_BYTES] = HOTPLUG;
	char *end = from + len_bytes;
	for (char *found = from; (found = memmem(found, (size_t)(end - found), HOTPLUG, sizeof HOTPLUG)); found++)
		if ((size_t)(end - found) >= sizeof name && memcmp(found, name, sizeof name) == 0)
			return found;
	return NULL;
}

/* The program itself comes first. */
static int forget_hotplug_of_program(struct dl_phdr_info *program, size_t size, void *data)
{
	(void)size;
	(void)data;
	for (int index = 0; index < program->dlpi_phnum; index++) {
		const ElfW(Phdr) *segment = &program->dlpi_phdr[index];
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W))
			continue;
		char *found = find_hotplug((char *)program->dlpi_addr + segment->p_vaddr, segment->p_filesz);
		if (found)
			*found = '\0'; /* no helper, as after `echo > /proc/sys/kernel/hotplug` */
	}
	return 1;
}

void start_boot(void)
{
	dl_iterate_phdr(forget_hotplug_of_program, NULL);
}
