//! Checks against manual arithmetic, with the constants of MQSim's default set-up unless stated otherwise.

use super::super::geometry::CellKind;
use super::*;

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    chips_per_channel: 1,
    dies_per_chip: 2,
    planes_per_die: 2,
    blocks_per_plane: 16,
    pages_per_block: 256,
    page_bytes: 8_192,
    unit_bytes: 8_192,
    cells: CellKind::Mlc,
    one_shot_pages: 1,
};

const READ: Nanos = Nanos::from_micros(75);
const PROGRAM: Nanos = Nanos::from_micros(750);
const ERASE: Nanos = Nanos::from_micros(3_800);

const SUSPEND: Suspend = Suspend {
    latency: Nanos::from_micros(100),
    resume: Nanos::from_micros(5),
    least_left: Nanos::from_micros(200),
    most_times: 2,
};

fn nanos(count: u64) -> Nanos {
    Nanos::from_nanos(count)
}

/// CS 20, WC 25, WB 100, RR 20, ADL 70, CALS 15, DBSY 500, RHW 100, CCS 300, RPRE 15, DQSRE 15, WPST 6, WPSTH 15 ns.
fn timing() -> FlashTiming {
    FlashTiming {
        bus_rate: 333_333_333,
        read_command: nanos(20 + 6 * 25 + 100 + 20),
        read_command_plane: nanos(500 + 6 * 25),
        data_out: nanos(15 + 15),
        data_out_page: nanos(100 + 6 * 25 + 300 + 15 + 15),
        program_command: nanos(20 + 6 * 25 + 70 + 6 + 15 + 100),
        program_command_page: nanos(500 + 5 * 25 + 70 + 6 + 15 + 100),
        erase_command: nanos(20 + 4 * 25 + 100),
        erase_command_plane: nanos(500 + 4 * 25 + 100),
        cache_register: false,
        commands_wait_for_bus: false,
        command_after_data: false,
        join_reads: false,
        program_suspend: None,
        erase_suspend: None,
        most_reads_in_a_row: 4,
    }
}

struct Bench {
    flash: Flash<u32>,
    events: Events,
    now: Nanos,
    done: Vec<(u32, u64)>,
}

impl Bench {
    fn new(timing: FlashTiming) -> Self {
        let flash = Flash::new(&GEOMETRY, Arc::new(timing));
        Bench { flash, events: Events::new(), now: Nanos::ZERO, done: Vec::new() }
    }

    fn run_until(&mut self, until: Nanos) {
        let mut done = Vec::new();
        while let Some((at, event)) = self.events.pop_until(until) {
            self.now = at;
            self.flash.happen(at, event, &mut self.events, &mut done);
            let last = done.drain(..).filter(|done| done.last);
            self.done.extend(last.map(|done| (done.owner, done.at.as_nanos())));
        }
        if until < Nanos::MAX {
            self.now = until;
        }
    }

    fn submit(&mut self, owner: u32, work: Work, class: Class, die: u32, pages: u32, bytes: u32) {
        self.submit_row(owner, work, class, die, (pages, bytes), (owner, 1));
    }

    fn submit_row(&mut self, owner: u32, work: Work, class: Class, die: u32, size: (u32, u32), place: (u32, u32)) {
        let ((pages, bytes), (row, planes)) = (size, place);
        let array = match work {
            Work::Read => READ,
            Work::Program => PROGRAM,
            Work::Erase => ERASE,
        };
        let transaction = Transaction { work, class, die, pages, bytes, array, row, planes, owner };
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    fn read(&mut self, owner: u32, die: u32, bytes: u32) {
        self.submit(owner, Work::Read, Class::HostRead, die, 1, bytes);
    }

    fn finish(mut self) -> Vec<(u32, u64)> {
        self.run_until(Nanos::MAX);
        self.done
    }
}

/// Command 290 ns, array 75 µs, set-up 30 ns, 4,096 bytes at 6 ns for two.
const IDLE_READ: u64 = 290 + 75_000 + 30 + 12_288;

#[test]
fn an_idle_read_is_command_array_and_transfer() {
    let mut bench = Bench::new(timing());
    bench.read(0, 0, 4_096);
    assert_eq!(bench.finish(), [(0, IDLE_READ)]);
}

#[test]
fn reads_of_one_die_follow_each_other_and_dies_of_one_bus_share_it() {
    let mut bench = Bench::new(timing());
    bench.read(0, 0, 4_096);
    bench.read(1, 0, 4_096);
    // Dies 0 and 2 are on bus 0, die 1 on the other.
    bench.read(2, 2, 4_096);
    bench.read(3, 1, 4_096);
    let transfer = 30 + 12_288;
    let expected = [(0, IDLE_READ), (3, IDLE_READ), (2, IDLE_READ + transfer), (1, 2 * IDLE_READ)];
    // The second command of die 0 is sent while the bus carries the data of die 2, 290 ns after them.
    let second = IDLE_READ + transfer + 290 + 75_000 + transfer;
    let done = bench.finish();
    assert_eq!(done[..3], expected[..3]);
    assert_eq!(done[3], (1, second));
}

#[test]
fn dies_whose_data_have_met_go_on_in_step_unless_commands_follow_data() {
    const READS: u32 = 20;
    let last = |command_after_data: bool| {
        let mut bench = Bench::new(FlashTiming { command_after_data, ..timing() });
        for number in 0..READS {
            bench.read(2 * number, 0, 4_096);
            bench.read(2 * number + 1, 2, 4_096);
        }
        bench.finish().last().map(|done| done.1)
    };
    let (reads, transfer) = (u64::from(READS), 30 + 12_288);
    // The data of the second die wait once, for the first die's data and the command after them.
    assert_eq!(last(true), Some(reads * IDLE_READ + transfer + 290));
    // In step, each read takes the data of both.
    assert_eq!(last(false), Some(reads * (IDLE_READ + transfer)));
}

#[test]
fn two_planes_share_the_array_time_and_not_the_bus() {
    let mut bench = Bench::new(timing());
    bench.submit(0, Work::Read, Class::HostRead, 0, 2, 16_384);
    let transfers = 30 + 24_576 + (100 + 150 + 300 + 30) + 24_576;
    assert_eq!(bench.finish(), [(0, 290 + 650 + 75_000 + transfers)]);
}

#[test]
fn a_program_lets_reads_of_other_dies_between_its_pages() {
    let mut bench = Bench::new(timing());
    bench.submit(0, Work::Program, Class::HostProgram, 0, 2, 16_384);
    bench.read(1, 2, 4_096);
    let (first, second) = (361 + 24_576, 816 + 24_576);
    // The read's command gets the bus after the first page, and delays the second page by its length.
    let begun = first + 290;
    assert_eq!(bench.finish(), [(1, begun + 75_000 + 12_318), (0, begun + second + 750_000)]);
}

#[test]
fn a_read_suspends_a_program_which_then_takes_what_was_left() {
    let mut bench = Bench::new(FlashTiming { program_suspend: Some(SUSPEND), ..timing() });
    bench.submit(0, Work::Program, Class::HostProgram, 0, 1, 8_192);
    let begun = 361 + 24_576;
    bench.run_until(nanos(begun + 250_000));
    bench.read(1, 0, 4_096);
    let read = begun + 250_000 + 100_000 + IDLE_READ;
    let done = bench.finish();
    assert_eq!(done, [(1, read), (0, read + 5_000 + 500_000)]);
}

#[test]
fn what_is_nearly_done_or_often_suspended_is_left_alone() {
    let mut bench = Bench::new(FlashTiming { program_suspend: Some(SUSPEND), ..timing() });
    bench.submit(0, Work::Program, Class::HostProgram, 0, 1, 8_192);
    let end = 361 + 24_576 + 750_000;
    bench.run_until(nanos(end - 199_999));
    bench.read(1, 0, 4_096);
    assert_eq!(bench.finish(), [(0, end), (1, end + IDLE_READ)]);

    let suspend = Suspend { most_times: 2, least_left: Nanos::ZERO, ..SUSPEND };
    let mut bench = Bench::new(FlashTiming { erase_suspend: Some(suspend), ..timing() });
    bench.submit(0, Work::Erase, Class::Erase, 0, 2, 0);
    for owner in 1..=3 {
        bench.run_until(bench.now + Nanos::from_micros(400));
        bench.read(owner, 0, 4_096);
    }
    // 920 ns command, suspended twice: after 400 µs, then 400 − 100 − 87.608 − 5 µs later; the third read waits.
    let end = 920 + 3_800_000 + 2 * (100_000 + IDLE_READ + 5_000);
    let done = bench.finish();
    assert_eq!(done[2..], [(0, end), (3, end + IDLE_READ)]);
}

#[test]
fn a_read_that_comes_before_the_array_has_begun_suspends_it_then() {
    let suspend = Suspend { latency: nanos(10), resume: nanos(20), least_left: Nanos::ZERO, most_times: 1 };
    let mut bench = Bench::new(FlashTiming { program_suspend: Some(suspend), ..timing() });
    bench.submit(0, Work::Program, Class::HostProgram, 0, 1, 8_192);
    bench.run_until(nanos(10_000));
    bench.read(1, 0, 4_096);
    let begun = 361 + 24_576;
    let read = begun + 10 + IDLE_READ;
    assert_eq!(bench.finish(), [(1, read), (0, read + 20 + 750_000)]);
}

#[test]
fn the_more_urgent_class_goes_first_and_the_collector_first_of_all_when_urgent() {
    for (urgent, order) in [(false, [0, 4, 3, 2, 1]), (true, [0, 4, 2, 1, 3])] {
        let mut bench = Bench::new(timing());
        bench.flash.set_urgent(0, urgent);
        bench.read(0, 0, 4_096);
        bench.submit(1, Work::Program, Class::CollectorProgram, 0, 1, 8_192);
        bench.submit(2, Work::Read, Class::CollectorRead, 0, 1, 8_192);
        bench.read(3, 0, 4_096);
        bench.submit(4, Work::Read, Class::MappingRead, 0, 1, 8_192);
        let owners: Vec<u32> = bench.finish().iter().map(|done| done.0).collect();
        assert_eq!(owners, order, "urgent: {urgent}");
    }
}

#[test]
fn reads_do_not_keep_a_program_waiting_for_ever() {
    let mut bench = Bench::new(timing());
    for owner in 0..8 {
        bench.read(owner, 0, 4_096);
    }
    bench.submit(8, Work::Program, Class::HostProgram, 0, 1, 8_192);
    let owners: Vec<u32> = bench.finish().iter().map(|done| done.0).collect();
    assert_eq!(owners, [0, 1, 2, 3, 8, 4, 5, 6, 7]);
}

#[test]
fn reads_of_one_row_join_if_they_wait_together() {
    let mut bench = Bench::new(FlashTiming { join_reads: true, ..timing() });
    let read = |bench: &mut Bench, owner, row, plane: u32| {
        bench.submit_row(owner, Work::Read, Class::HostRead, 0, (1, 4_096), (row, 1 << plane));
    };
    read(&mut bench, 0, 9, 0);
    // Reads that arrive while the die reads another row wait. 3 has the plane of 1, and 2 is in another row.
    read(&mut bench, 1, 5, 0);
    read(&mut bench, 2, 6, 1);
    read(&mut bench, 3, 5, 0);
    read(&mut bench, 4, 5, 1);
    let joined = IDLE_READ + 290 + 650 + 75_000 + 30 + 12_288;
    let second = joined + 100 + 6 * 25 + 300 + 30 + 12_288;
    let expected = [(0, IDLE_READ), (1, joined), (4, second), (2, second + IDLE_READ), (3, second + 2 * IDLE_READ)];
    assert_eq!(bench.finish(), expected);
}

#[test]
fn a_cache_register_lets_the_array_go_on_while_data_leave() {
    let mut bench = Bench::new(FlashTiming { cache_register: true, ..timing() });
    for owner in 0..3 {
        bench.read(owner, 0, 4_096);
    }
    // Each further read costs its command and the array's time.
    let each = 290 + 75_000;
    let wait = 12_318;
    let done = bench.finish();
    assert_eq!(done[0], (0, each + wait));
    // The command of the second follows the data on the bus, since these were reserved first.
    assert_eq!(done[1], (1, each + wait + each + wait));
}

#[test]
fn commands_can_be_made_to_wait_for_an_idle_bus() {
    let mut bench = Bench::new(FlashTiming { commands_wait_for_bus: true, ..timing() });
    bench.read(0, 0, 4_096);
    bench.read(1, 2, 4_096);
    bench.read(2, 0, 4_096);
    let transfer = 12_318;
    // Both arrays work in parallel, the two transfers are consecutive, then the third command passes.
    let both = IDLE_READ + transfer;
    assert_eq!(bench.finish(), [(0, IDLE_READ), (1, both), (2, both + IDLE_READ)]);
}
