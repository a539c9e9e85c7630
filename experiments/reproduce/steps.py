"""The experiments of each paper, in the order in which they run."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One experiment: a target of this folder's Makefile."""

    target: str
    #: Tables and figures of the paper.
    shows: str
    #: Expected time on two processors.
    minutes: int
    #: Variables of the target.
    variables: tuple[str, ...] = ()
    #: Hours or days: not in the fast tier.
    is_slow: bool = False
    needs_root: bool = False

    @property
    def name(self) -> str:
        """Name in the log and in the table of steps."""
        return " ".join([self.target, *self.variables])

    @property
    def tier(self) -> str:
        """Tier of the step."""
        return "slow" if self.is_slow else "fast"


@dataclass(frozen=True)
class Paper:
    """One of the five papers."""

    name: str
    title: str
    steps: list[Step] = field(default_factory=list)


PAPERS = [
    Paper(
        "memulator",
        "Griffin et al., Timing-Accurate Storage Emulation, FAST 2002",
        [
            Step("memulator", "tables 5 to 7, large transfers, synchronous writes", 60),
            Step("real-time", "tables 2 and 3, figure 5", 20),
            Step("working-set", "section 3.1: a store that overflows", 1),
            Step("iscsi-conformance", "table 1: the commands of SCSI", 2, needs_root=True),
            Step("iscsi-rates", "table 4: the remote device", 6, needs_root=True),
            Step("interface-extensions", "section 6.3: interfaces that no drive has", 5),
        ],
    ),
    Paper(
        "os-pausing",
        "Wu and Tsai, A Storage Device Emulator for System Performance Evaluation, ACM TECS 2015",
        [
            Step("os-pausing", "figures 9 to 13, small", 60),
            Step("guest-clock", "the guest's clock: latencies, speed, drift", 30),
            Step("os-pausing", "figures 9 to 13 at the paper's size", 2_880, ("FULL=1",), is_slow=True),
            Step("guest-soak", "half an hour of hard loads on each clock", 120, is_slow=True),
        ],
    ),
    Paper(
        "david",
        "Agrawal et al., Emulating Goliath Storage Systems with David, ACM TOS 2012",
        [
            Step("david", "tables I and II, figure 4", 20),
            Step("david-figures", "figures 1, 8 and 9", 60),
            Step("david-table3", "table III", 5),
            Step("schedulers", "section 5.2: the request queue", 1),
            Step("shadow", "figures 6 and 7", 5),
            Step("md-arrays", "section 5.2: arrays beside Linux's md", 15),
            Step("david", "tables I and II, figure 4 at the paper's sizes", 600, ("FULL=1",), is_slow=True),
            Step("david-figures", "figures 1, 8 and 9 at the paper's sizes", 1_200, ("FULL=1",), is_slow=True),
        ],
    ),
    Paper(
        "simulation-1994",
        "Thekkath et al., Techniques for File System Simulation, 1994",
        [
            Step("disk-distance", "the disk model beside measured drives", 3),
            Step("intervals", "confidence of bootstrapped workloads", 1),
            Step("call-traces", "recorded system calls replayed", 40),
            Step("large-replay", "a trace of 1.3 million calls", 3),
            Step("simulation-1994", "figures 3 and 4, table I, on ext2", 60),
            Step("simulation-1994", "figures 3 and 4, table I, on ext4", 60, ("FS=ext4",)),
        ],
    ),
    Paper(
        "spe",
        "Kim et al., A fast and simple system performance emulator for enhanced solid state disks, 2010",
        [
            Step("spe", "figures 3 to 8, table 2", 90, needs_root=True),
            Step("reality", "programs on this machine's disk and on a model of it", 30, needs_root=True),
        ],
    ),
]
