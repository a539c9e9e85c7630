//! Request pages at a disk on a guest's clock.

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_engine::Engine;
use chronodisk_store::RamStore;
use proptest::prelude::*;

use super::pages::request_page;
use super::*;

/// A device with 1 GiB, its store, and its request pages.
struct Machine {
    clock: GuestClock,
    store: RequestPageStore,
    pages: RequestPages,
    device: DeviceIndex,
    now: Nanos,
    requests: u64,
}

const CAPACITY_BYTES: u64 = 1 << 30;
/// Sectors of the pages that the tests write.
const PAGE: u64 = 800;

impl Machine {
    fn new(profile: &str) -> Machine {
        let options = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), ..BuildOptions::default() };
        let mut engine = Engine::new();
        let device = engine.attach(Profile::find(profile).unwrap().build(&options).unwrap());
        let (store, pages) = RequestPageStore::watch(Box::new(RamStore::new(CAPACITY_BYTES, CAPACITY_BYTES)));
        Machine { clock: GuestClock::new(engine), store, pages, device, now: Nanos::ZERO, requests: 0 }
    }

    /// Serves a request, and returns whether its data are where they should be.
    fn request(&mut self, op: Op, lba: u64, sectors: u32) -> bool {
        self.requests += 1;
        let request = Request::new(self.requests, op, lba, sectors);
        self.clock.kick(self.now);
        self.pages.arrive(&mut self.clock, self.device, request, Transfer::Moved { took: Nanos::ZERO });
        let idle = self.clock.idle(self.now, None);
        self.now = idle.resume_at.unwrap();
        !self.pages.has_failed(request.id)
    }

    fn write(&mut self, lba: u64, bytes: &[u8]) -> bool {
        self.store.write(lba * SECTOR_BYTES, bytes).unwrap();
        self.request(Op::Write, lba, (bytes.len() as u64 / SECTOR_BYTES) as u32)
    }

    fn read(&mut self, lba: u64, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.store.read(lba * SECTOR_BYTES, &mut bytes).unwrap();
        self.request(Op::Read, lba, (len_bytes as u64 / SECTOR_BYTES) as u32);
        bytes
    }

    /// Writes a request page, and returns the answer's outcome and its numbers from byte 24 on.
    fn ask(&mut self, page: &[u8]) -> (u32, u32, u32, Vec<u64>) {
        self.write(PAGE, page);
        self.answer()
    }

    fn answer(&mut self) -> (u32, u32, u32, Vec<u64>) {
        let page = self.read(PAGE, PAGE_BYTES);
        assert!(page.starts_with(b"Chronodisk reply"));
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
        let numbers = page[32..4_088].chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        (word(20), word(24), word(28), numbers.collect())
    }
}

#[test]
fn a_disk_reads_in_gaps_for_a_program() {
    let mut machine = Machine::new("cheetah-9lp");
    let wanted = 200_000;
    assert_eq!(machine.ask(&request_page(1, 1, &[0, wanted])).0, 0);
    for index in 0..200_u64 {
        machine.request(Op::Read, index * 7_919 * 8 % (CAPACITY_BYTES / SECTOR_BYTES - 8), 8);
    }
    let mut sectors = 0;
    loop {
        let (outcome, count, others, numbers) = machine.ask(&request_page(3, 0, &[]));
        assert_eq!(outcome, 0);
        for read in numbers[1..].chunks_exact(3).take(count as usize) {
            assert!(read[0] + read[1] <= wanted && read[1] > 0 && read[2] <= machine.now.as_nanos(), "{read:?}");
            sectors += read[1];
        }
        if others == 0 {
            // The sectors of a gap under way are neither read nor wanted.
            assert!(sectors > 1_000 && sectors + numbers[0] <= wanted, "{sectors} read, {} wanted", numbers[0]);
            break;
        }
        assert_eq!(count as usize, READS_MAX);
    }
}

#[test]
fn a_write_goes_to_the_place_that_the_device_chooses() {
    let mut machine = Machine::new("cheetah-9lp");
    let mut others = 0;
    for round in 0..50_u64 {
        let places: Vec<u64> = (0..32).map(|index| 80_000 + 8 * (round * 32 + 31 - index)).collect();
        assert_eq!(machine.ask(&request_page(4, 32, &places)).0, 3);
        let data = vec![round as u8 + 1; PAGE_BYTES];
        assert!(machine.write(places[0], &data));
        let (outcome, _, _, numbers) = machine.answer();
        assert!(outcome == 0 && places.contains(&numbers[0]), "{outcome} {}", numbers[0]);
        others += u64::from(numbers[0] != places[0]);
        assert_eq!(machine.read(numbers[0], PAGE_BYTES), data);
    }
    assert!(others > 25, "{others}");
    let logged = machine.clock.engine().records().iter().filter(|record| record.op == Op::Write);
    assert!(logged.filter(|record| record.lba.0 >= 80_000).any(|record| record.lba.0 % (32 * 8) != 80_000 % (32 * 8)));
}

#[test]
fn wrong_places_leave_the_write_where_it_is() {
    let mut machine = Machine::new("cheetah-9lp");
    let last = CAPACITY_BYTES / SECTOR_BYTES;
    for places in [[8_000, last], [8_000, last - 4], [8_000, 8_004], [8_000, u64::MAX]] {
        assert_eq!(machine.ask(&request_page(4, 2, &places)).0, 3, "{places:?}");
        assert!(machine.write(8_000, &[9; PAGE_BYTES]));
        assert_eq!(machine.answer().0, 2, "{places:?}");
        assert_eq!(machine.read(8_000, PAGE_BYTES), [9; PAGE_BYTES]);
    }
    assert_eq!(machine.ask(&request_page(1, 1, &[last - 1, 2])).0, 2);
    assert_eq!(machine.ask(&request_page(9, 1, &[])).0, 2);
}

#[test]
fn a_device_without_gaps_says_so() {
    let mut machine = Machine::new("constant-10ms");
    assert_eq!(machine.ask(&request_page(1, 1, &[0, 8])).0, 1);
    let (outcome, count, others, _) = machine.ask(&request_page(3, 0, &[]));
    assert_eq!((outcome, count, others), (0, 0, 0));
    machine.ask(&request_page(4, 2, &[80, 88]));
    assert!(machine.write(80, &[1; PAGE_BYTES]));
    assert_eq!(machine.answer().3[0], 80);
}

#[test]
fn answers_hide_pages_until_they_are_written() {
    let mut machine = Machine::new("null");
    let page = request_page(3, 0, &[]);
    machine.write(PAGE, &page);
    // A read across it has the answer between the bytes before and behind it.
    machine.write(PAGE - 8, &[5; PAGE_BYTES]);
    machine.write(PAGE + 8, &[6; PAGE_BYTES]);
    let across = machine.read(PAGE - 1, PAGE_BYTES + 2 * SECTOR_BYTES as usize);
    assert!(across[..512] == [5; 512] && across[512..].starts_with(b"Chronodisk reply") && across[4_608..] == [6; 512]);
    machine.write(PAGE + 1, &[7; 512]);
    assert_eq!(&machine.read(PAGE, PAGE_BYTES)[..512], &page[..512]);
    // A page beside others is data, and so is one with a fault.
    machine.write(PAGE, &[&page[..], &page].concat());
    assert_eq!(machine.read(PAGE, PAGE_BYTES), page);
    machine.write(PAGE, &[&page[..4_095], &[1]].concat());
    assert_eq!(machine.read(PAGE, 16), b"Chronodisk ask\0\0");
    machine.store.discard(PAGE * SECTOR_BYTES, 4_096).unwrap();
    assert_eq!(machine.read(PAGE, PAGE_BYTES), [0; PAGE_BYTES]);
}

#[test]
fn many_pages_take_little_memory() {
    let mut machine = Machine::new("null");
    for index in 0..2 * ANSWERS_MAX as u64 {
        machine.write(8 * index, &request_page(4, 1, &[80_000 + 8 * index]));
    }
    assert_eq!(lock(&machine.pages.pages).answers.len(), ANSWERS_MAX);
    assert_eq!(machine.pages.waiting.len(), WAITING_MAX);
}

/// Sectors: most of the device's, some about its end, and some far beyond.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..2_000_000, 2_097_000_u64..2_097_200, any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each page has an answer, and the data of a write are at its place.
    #[test]
    fn any_page_has_an_answer(
        steps in prop::collection::vec(
            (0_u32..6, 0_u32..6, prop::collection::vec(numbers(), 8)),
            1..12,
        ),
    ) {
        let mut machine = Machine::new("cheetah-9lp");
        for (kind, count, mut numbers) in steps {
            // The first place is a block.
            numbers[0] = numbers[0] / 8 * 8;
            let (outcome, ..) = machine.ask(&request_page(kind, count, &numbers));
            prop_assert!(outcome <= 3);
            let first = numbers[0];
            if first < CAPACITY_BYTES / SECTOR_BYTES && first != PAGE {
                machine.write(first, &[9; PAGE_BYTES]);
                let (outcome, .., figures) = machine.answer();
                let place = if kind == 4 && count > 0 && outcome == 0 { figures[0] } else { first };
                prop_assert!(numbers.contains(&place));
                if place.abs_diff(PAGE) >= PAGE_SECTORS {
                    prop_assert_eq!(machine.read(place, PAGE_BYTES), [9; PAGE_BYTES]);
                }
            }
        }
    }
}

/// A store without room for another byte.
struct Full(RamStore);

impl Store for Full {
    forward_to_store!(self => self.0; capacity_bytes, read, write_zeroes, flush, allocated_bytes, budget_bytes);

    fn write(&mut self, offset_bytes: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::BudgetExceeded { offset_bytes, needed_bytes: 1, allocated_bytes: 0, budget_bytes: 0 })
    }
}

#[test]
fn data_that_can_not_be_copied_fail_their_write() {
    let mut machine = Machine::new("cheetah-9lp");
    let places: Vec<u64> = (0..64).map(|index| 80_000 + 8 * (63 - index)).collect();
    let mut failed = false;
    for _ in 0..20 {
        machine.ask(&request_page(4, 64, &places));
        machine.write(PAGE + 8, &[1; PAGE_BYTES]);
        machine.store.write(places[0] * SECTOR_BYTES, &[3; PAGE_BYTES]).unwrap();
        let full = Box::new(Full(RamStore::new(CAPACITY_BYTES, 0)));
        let store = std::mem::replace(&mut lock(&machine.pages.pages).store, full);
        failed |= !machine.request(Op::Write, places[0], 8);
        lock(&machine.pages.pages).store = store;
    }
    assert!(failed && machine.store.notices()[0].contains("could not be copied"));
}
