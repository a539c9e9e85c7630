//! A served device with real iSCSI initiators: the utilities of libiscsi, and QEMU's driver.

use std::process::{Command, Output};

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock, verify};
use chronodisk_front::iscsi::Credentials;
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::scsi::UnitDescription;
use chronodisk_front::server::{IscsiOptions, Server, ServerOptions, ServerOutcome};
use chronodisk_sim::Op;
use chronodisk_store::RamStore;

const CAPACITY_BYTES: u64 = 64 << 20;

fn model(profile: &str) -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1, ..BuildOptions::default() };
    Profile::find(profile).unwrap().build(&build).unwrap()
}

struct Served {
    server: Server,
    profile: &'static str,
    portal: String,
    uri: String,
}

fn serve(profile: &'static str, change: impl FnOnce(IscsiOptions) -> IscsiOptions) -> Served {
    let mut engine = Engine::new();
    let device = engine.attach(model(profile));
    let options = change(IscsiOptions::of(model(profile).info(), CAPACITY_BYTES));
    let store = Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES));
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    // Real-time priorities and CPUs kept awake would disturb the other tests, and would not change the results.
    let server_options = ServerOptions { realtime: false, ..ServerOptions::default() };
    let mut server = Server::new(engine, device, store, offer, MonotonicClock::new(), server_options).unwrap();
    let (address, name) = server.listen_iscsi(&"0".parse().unwrap(), options).unwrap();
    Served { server, profile, portal: format!("iscsi://{address}"), uri: format!("iscsi://{address}/{name}/0") }
}

impl Served {
    /// Stops the server, and replays its log.
    fn stop(self) -> ServerOutcome {
        let outcome = self.server.stop();
        let verification = verify(&mut [model(self.profile)], &outcome.records, Some(outcome.end)).unwrap();
        assert!(verification.identical(), "{:?}", verification.first_difference);
        let statistics = &outcome.statistics;
        assert_eq!((statistics.panics, statistics.violations), (0, 0), "{statistics:?}");
        outcome
    }
}

/// Runs a program; `None` if the host lacks it, which is said visibly.
fn run(program: &str, package: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            println!("SKIPPED: no {program} (Debian: apt-get install {package})");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs commands of qemu-io on a device; `None` if the host lacks its driver for iSCSI.
fn qemu_io(uri: &str, options: &[&str], commands: &[&str]) -> Option<Output> {
    let formats = run("qemu-img", "qemu-utils", &["--help"])?;
    if !text(&formats).split_whitespace().any(|word| word == "iscsi") {
        println!("SKIPPED: no qemu-io with the driver iscsi (Debian: apt-get install qemu-block-extra)");
        return None;
    }
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let arguments: Vec<&str> = ["-f", "raw"].into_iter().chain(options.iter().copied()).chain(commands).collect();
    run("qemu-io", "qemu-utils", &[&arguments[..], &[uri]].concat())
}

#[test]
fn libiscsi_finds_and_describes_the_device() {
    let served = serve("cheetah-9lp", |options| options);
    let Some(listed) = run("iscsi-ls", "libiscsi-bin", &["-s", &served.portal]) else { return };
    let said = text(&listed);
    assert!(said.contains("Target:iqn.2026-11.org.chronodisk:cheetah-9lp Portal:127.0.0.1:"), "{said}");
    assert!(said.contains("Lun:0") && said.contains("DIRECT_ACCESS"), "{said}");
    for (page, expected) in [
        (None, "Vendor:CHRONODK"),
        (Some("0"), "BLOCK_LIMITS"),
        (Some("128"), "Unit Serial Number"),
        (Some("131"), "iqn.2026-11.org.chronodisk:cheetah-9lp,t,0x0001"),
        (Some("176"), "maximum transfer length:32768"),
        (Some("177"), "Medium Rotation Rate"),
        (Some("178"), "provisioning type:0"),
    ] {
        let page = page.map_or(Vec::new(), |page| vec!["-e", "1", "-c", page]);
        let output = run("iscsi-inq", "libiscsi-bin", &[&page[..], &[&*served.uri]].concat()).unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{page:?}: {said}");
        assert!(said.to_lowercase().contains(&expected.to_lowercase()), "{page:?}: {said}");
    }
    let capacity = run("iscsi-readcapacity16", "libiscsi-bin", &[&served.uri]).unwrap();
    assert!(text(&capacity).contains("67108864"), "{}", text(&capacity));
    assert!(served.stop().records.is_empty(), "no description takes the device's time");
}

#[test]
fn qemu_reads_its_writes_whatever_their_order() {
    // The second completes in another order than that of arrival.
    for profile in ["constant-100us", "mems-g2", "cheetah-9lp"] {
        let served = serve(profile, |options| options);
        // Data of one block, of several bursts, at several depths, discarded and zeroed.
        let commands = [
            "write -P 7 0 512",
            "write -P 8 1M 5M",
            "read -P 7 0 512",
            "read -P 8 1M 5M",
            "aio_write -P 1 8M 64k",
            "aio_write -P 2 9M 64k",
            "aio_write -P 3 10M 64k",
            "aio_flush",
            "read -P 1 8M 64k",
            "read -P 2 9M 64k",
            "read -P 3 10M 64k",
            "write -z 2M 1M",
            "read -P 0 2M 1M",
            "discard 3M 1M",
            "flush",
        ];
        let Some(output) = qemu_io(&served.uri, &[], &commands) else { return };
        let said = text(&output);
        assert!(output.status.success() && !said.contains("failed") && !said.contains("error"), "{profile}: {said}");
        served.stop();
    }
}

/// Operation, first sector and number of sectors of each request.
#[test]
fn the_log_has_the_requests_that_were_sent() {
    let served = serve("null", |options| options);
    let commands = ["write -P 7 16k 8k", "read 20k 4k", "write -f 1M 4k", "flush"];
    let Some(output) = qemu_io(&served.uri, &["-n"], &commands) else { return };
    assert!(output.status.success(), "{}", text(&output));
    let records = served.stop().records;
    let data = records.iter().filter(|record| record.op != Op::Flush);
    let logged: Vec<_> = data.map(|record| (record.op, record.lba.0, record.sectors)).collect();
    // QEMU looks for a table of partitions first, or does not.
    assert!(logged.ends_with(&[(Op::Write, 32, 16), (Op::Read, 40, 8), (Op::Write, 2048, 8)]), "{logged:?}");
}

#[test]
fn a_read_only_device_refuses_writes() {
    let read_only = |options: IscsiOptions| {
        let unit = UnitDescription { read_only: true, ..options.unit };
        IscsiOptions { unit, ..options }
    };
    let served = serve("null", read_only);
    let Some(output) = qemu_io(&served.uri, &["-r"], &["read -P 0 0 4k"]) else { return };
    assert!(output.status.success(), "{}", text(&output));
    let output = qemu_io(&served.uri, &[], &["write 0 4k"]).unwrap();
    assert!(!output.status.success() || text(&output).contains("failed"), "{}", text(&output));
    assert!(served.stop().records.iter().all(|record| record.op == Op::Read));
}

#[test]
fn only_initiators_with_the_secret_are_served() {
    let credentials = Credentials { user: "me".to_owned(), secret: b"sixteen-letters!".to_vec() };
    let served = serve("null", |options| IscsiOptions { credentials: Some(credentials), ..options });
    let as_user =
        |user: &str| qemu_io(&served.uri.replace("iscsi://", &format!("iscsi://{user}")), &[], &["read 0 4k"]);
    let Some(output) = as_user("me%sixteen-letters!@") else { return };
    assert!(output.status.success(), "{}", text(&output));
    for wrong in ["", "me%another-secret!!@", "you%sixteen-letters!@"] {
        let output = as_user(wrong).unwrap();
        assert!(!output.status.success(), "{wrong}: {}", text(&output));
    }
    assert!(!served.stop().records.is_empty());
}

/// Digests and reads of all sizes, from another implementation of the sums.
#[test]
fn digests_are_those_of_libiscsi() {
    let served = serve("null", |options| options);
    let uri = format!("{}?header_digest=crc32c", served.uri);
    let Some(output) = run("iscsi-inq", "libiscsi-bin", &[&uri]) else { return };
    assert!(output.status.success() && text(&output).contains("CHRONODK"), "{}", text(&output));
    served.stop();
}

/// Two sessions over TCP: the rules of reservations, from another implementation of both sides.
#[test]
fn reservations_pass_the_tests_of_libiscsi() {
    let served = serve("null", |options| options);
    for suite in
        ["PrinReadKeys", "PrinReportCapabilities", "ProutRegister", "ProutReserve", "ProutClear", "ProutPreempt"]
            .into_iter()
            .chain(["PrinServiceactionRange", "Reserve6"])
    {
        let test = format!("SCSI.{suite}");
        let arguments = ["--dataloss", "--fail", "--normal", "--test", &test, &served.uri];
        let Some(output) = run("iscsi-test-cu", "libiscsi-bin", &arguments) else { return };
        let said = text(&output);
        assert!(output.status.success() && said.contains("Run Summary"), "{suite}: {said}");
        assert!(!said.contains("Reserve is not implemented") && !said.contains("RESERVE IN is not"), "{suite}: {said}");
    }
    served.stop();
}
