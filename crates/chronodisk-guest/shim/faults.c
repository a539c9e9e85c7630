/* Page faults of the guest's programs.
 *
 * Around a fault on a file's page, a kernel sets the entries of up to sixteen pages in the program's page tables. User
 * Mode Linux then maps only the touched page in its host. So the first access of each of the others is a fault again, on
 * a page that the guest's page tables have; and so it is after a fork, whose process begins with nothing mapped. That
 * is half to two thirds of a guest's faults. Natively there is no such fault, so it counts as a kind of work of its own.
 *
 * A write to a page that the tables have for reading is a fault natively, too. Whether an access writes, the kernel asks
 * the process after its stop. Until then such a fault counts as one. */
#include "accounts.h"
#include "shim.h"

/* The process whose fault is a native one only if it writes, and the process that the kernel has asked. */
static pid_t undecided, asked;
static uint64_t fault_address;

/* A fault as the kernel's code in a program's process notes it at the beginning of its stack
 * (arch/x86/um/shared/sysdep/faultinfo_64.h). */
struct fault_information {
	int error_code;
	uint64_t address;
	int trap_number;
};
#define ERROR_CODE_WRITE 2

/* The process has stopped for a page fault. */
enum chronodisk_work work_of_fault(pid_t pid, uint64_t address)
{
	enum access access = stops_pass() ? page_access(address) : ACCESS_NONE;
	undecided = access == ACCESS_READ ? pid : 0;
	fault_address = address;
	return access == ACCESS_WRITE ? CHRONODISK_WORK_SPURIOUS_FAULT : CHRONODISK_WORK_FAULT;
}

/* The kernel asks the process about its fault... */
void note_fault_question(pid_t pid)
{
	asked = undecided == pid || is_recorded() ? pid : 0;
}

/* ...and the process has answered. */
void note_fault_answer(pid_t pid)
{
	struct fault_information information;
	_Static_assert(sizeof information % sizeof(long) == 0, "peek()");
	if (!asked || pid != asked)
		return;
	asked = 0;
	uint64_t stack = stack_of_process(pid) & ~(uint64_t)(PAGE_BYTES - 1);
	if (!stack || !peek(pid, stack, &information, sizeof information) ||
	    information.address != fault_address)
		return;
	int writes = (information.error_code & ERROR_CODE_WRITE) != 0;
	if (undecided == pid && !writes)
		account_for_spurious_fault();
	undecided = 0;
	record_fault_answer(information.address, writes);
}
