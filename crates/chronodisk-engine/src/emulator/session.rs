//! One client's device and bytes: commands in, answers out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chronodisk_device::{BuildOptions, DeviceModel, Profile, probed};
use chronodisk_sim::{Lba, Nanos, Op, Request, SECTOR_BYTES};
use chronodisk_store::{Store, StoreError};

use super::limits::{Call, Halt, Held, MemoryPool, Workshop};
use super::pace::{Paced, Refusal};
use super::store::StorePlace;
use crate::protocol::{
    Answer, BODY_BYTES_MAX, Clear, Command, ErrorCode, Frame, Info, ModelStatistics, RANGE_BYTES_MAX,
    REQUEST_BYTES_MAX, Reset, UNANSWERED_MAX,
};
use crate::step::{LATEST_ARRIVAL, fits};

/// Makes the devices of sessions.
pub trait DeviceMaker: Send + Sync {
    /// Makes the device that a client asks for.
    ///
    /// # Errors
    /// The reason of a refusal, for the client.
    fn make(&self, reset: &Reset) -> Result<MadeDevice, String>;
}

/// A device for a session.
pub struct MadeDevice {
    /// The model at instant zero.
    pub model: Box<dyn DeviceModel>,
    /// Text of its profile; empty if it has none.
    pub profile: String,
    /// Its store.
    pub store: Box<dyn Store>,
    /// The memory that its model may take, if that is counted.
    pub memory: Option<Held>,
}

/// Makes devices of the profiles that clients send, or of its own.
#[derive(Clone, Debug)]
pub struct Devices {
    /// Profiles that a client may ask for by name. The first is the default.
    pub profiles: Vec<Profile>,
    /// Place of the devices' bytes.
    pub store: StorePlace,
    /// Memory that the bytes of one device may take.
    pub store_budget_bytes: u64,
    /// Memory that the bytes of all devices may take.
    pub stores: Arc<MemoryPool>,
    /// Memory that the model of one device may take.
    pub model_budget_bytes: u64,
    /// Memory that the models of all devices may take.
    pub models: Arc<MemoryPool>,
}

/// One session, over any number of connections.
pub struct Session {
    maker: Arc<dyn DeviceMaker>,
    shop: Arc<Workshop>,
    device: Option<Device>,
    executed: u64,
    /// Answers that the client may not have received, by the number of their command.
    answers: VecDeque<(u64, Vec<u8>)>,
    repeated_commands: u64,
    /// The last command was a long one.
    works_long: bool,
    ended: bool,
}

/// A session that can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client has ended it.
    Ended,
    /// The client violated the protocol; the last answer names the violation.
    Violated,
}

struct Device {
    paced: Paced,
    store: Box<dyn Store>,
    /// Given back when the device is gone.
    _memory: Option<Held>,
    submitted: u64,
    capacity_sectors: u64,
}

/// Most bytes of answers that are kept for a client that may come back: no client waits for more than one read.
const ANSWERS_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Default limit of a call's work.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(1);

impl Session {
    /// A session without a device.
    #[must_use]
    pub fn new(maker: Arc<dyn DeviceMaker>) -> Self {
        Session::in_shop(maker, Workshop::new(CALL_LIMIT))
    }

    /// A session without a device. Its calls share the lanes of `shop` with other sessions.
    #[must_use]
    pub fn in_shop(maker: Arc<dyn DeviceMaker>, shop: Arc<Workshop>) -> Self {
        Session {
            maker,
            shop,
            device: None,
            executed: 0,
            answers: VecDeque::new(),
            repeated_commands: 0,
            works_long: false,
            ended: false,
        }
    }

    /// Number of the last command that was executed.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Whether the session has a device.
    #[must_use]
    pub fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Closes the device. Its bytes are then as durable as its store makes them.
    ///
    /// # Errors
    /// If the store can't be closed.
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.ended = true;
        self.device.take().map_or(Ok(()), |mut device| device.store.close())
    }

    /// Requests submitted to the present device, and predictions of its model that were dropped.
    #[must_use]
    pub fn submitted_and_rollbacks(&self) -> (u64, u64) {
        self.device.as_ref().map_or((0, 0), |device| (device.submitted, device.paced.predictions_and_rollbacks().1))
    }

    /// Executes a command unless it was executed before, and appends the answer to `out`.
    ///
    /// # Errors
    /// When the session has ended; the appended answer must still be sent.
    pub fn take(&mut self, frame: &Frame, out: &mut Vec<u8>) -> Result<(), SessionEnd> {
        if self.ended {
            return Err(SessionEnd::Violated);
        }
        let sequence = frame.sequence;
        if usize::from(frame.unanswered) >= UNANSWERED_MAX || u64::from(frame.unanswered) >= sequence {
            return self.violated(sequence, "it waits for more answers than there can be", out);
        }
        let first_unanswered = sequence - u64::from(frame.unanswered);
        while self.answers.front().is_some_and(|(answered, _)| *answered < first_unanswered) {
            self.answers.pop_front();
        }
        if sequence <= self.executed {
            return self.answer_again(sequence, out);
        }
        if sequence != self.executed + 1 {
            let reason = format!("command {sequence} came where {} was due", self.executed + 1);
            return self.violated(sequence, &reason, out);
        }
        if self.answers.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > ANSWERS_BYTES_MAX {
            return self.violated(sequence, "it reads on without looking at the answers", out);
        }
        let command = match Command::decode(frame) {
            Ok(command) => command,
            Err(error) => return self.violated(sequence, &error.to_string(), out),
        };
        self.executed = sequence;
        let shop = Arc::clone(&self.shop);
        let mut call = shop.call();
        // A kind of command that once took long probably does so again, and parts of it can't be interrupted.
        let begun = if self.works_long { call.enter_lane_in_time() } else { Ok(()) };
        let done = begun.map_err(Refused::from).and_then(|()| self.execute(command, &mut call));
        self.works_long = call.is_long();
        let answer = match &done {
            Ok(answer) => answer.clone(),
            Err(Refused::Command(code, reason)) => Answer::error(*code, reason),
            Err(Refused::Session(reason)) => return self.violated(sequence, reason, out),
            Err(Refused::Halted(halt)) => return self.halted(sequence, *halt, out),
            Err(Refused::Ended) => Answer::Done,
        };
        let mut bytes = Vec::new();
        answer.encode(sequence, &mut bytes);
        out.extend_from_slice(&bytes);
        self.answers.push_back((sequence, bytes));
        if matches!(done, Err(Refused::Ended)) {
            self.ended = true;
            return Err(SessionEnd::Ended);
        }
        Ok(())
    }

    fn answer_again(&mut self, sequence: u64, out: &mut Vec<u8>) -> Result<(), SessionEnd> {
        self.repeated_commands += 1;
        let Some((_, bytes)) = self.answers.iter().find(|(answered, _)| *answered == sequence) else {
            let reason = format!("command {sequence} was answered before, and the answer was received");
            return self.violated(sequence, &reason, out);
        };
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn violated(&mut self, sequence: u64, reason: &str, out: &mut Vec<u8>) -> Result<(), SessionEnd> {
        Answer::error(ErrorCode::Violation, reason).encode(sequence, out);
        self.ended = true;
        Err(SessionEnd::Violated)
    }

    /// Ends the session after an unfinished command, since its device is in an undefined state.
    fn halted(&mut self, sequence: u64, halt: Halt, out: &mut Vec<u8>) -> Result<(), SessionEnd> {
        let answer = match halt {
            Halt::TooLong(limit) => Answer::error(
                ErrorCode::Limit,
                format!("the command took more than {limit:?} of processor time, the most that the server gives one"),
            ),
            Halt::Stopping => Answer::error(ErrorCode::UnknownSession, "the server ends"),
        };
        answer.encode(sequence, out);
        self.ended = true;
        Err(SessionEnd::Violated)
    }

    fn execute(&mut self, command: Command, call: &mut Call<'_>) -> Result<Answer, Refused> {
        match command {
            Command::Hello { .. } => Err(Refused::Session("a second greeting".into())),
            Command::Prove { .. } => Err(Refused::Session("a proof without a request for it".into())),
            Command::Reset(reset) => self.reset(&reset, call),
            Command::End => Err(Refused::Ended),
            Command::Read { offset_bytes, len_bytes } => {
                let mut data = vec![0; len_bytes as usize];
                self.device()?.store.read(offset_bytes, &mut data)?;
                Ok(Answer::Data(data))
            }
            Command::Write { offset_bytes, data } => {
                self.device()?.store.write(offset_bytes, &data)?;
                Ok(Answer::Done)
            }
            Command::Clear { how, offset_bytes, len_bytes } => {
                let store = &mut self.device()?.store;
                match how {
                    Clear::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes),
                    Clear::Reserve => store.reserve_zeroes(offset_bytes, len_bytes),
                    Clear::Discard => store.discard(offset_bytes, len_bytes),
                }?;
                Ok(Answer::Done)
            }
            Command::Flush => {
                self.device()?.store.flush()?;
                Ok(Answer::Done)
            }
            Command::Submit { at, request } => self.device()?.submit(at, request, &[], call).map(|_| Answer::Done),
            Command::SubmitAnywhere { at, request, places } => {
                self.device()?.submit(at, request, &places, call).map(Answer::Place)
            }
            // Wanted sectors would be memory of the server that no profile bounds.
            Command::Background { .. } | Command::TakeBackground { .. } => {
                let reason = "an emulator server serves no background requests".to_owned();
                Err(Refused::Command(ErrorCode::Unsupported, reason))
            }
            Command::Next { taken, safe_until } => self.device()?.next(taken, safe_until, call),
            Command::Statistics => {
                let repeated_commands = self.repeated_commands;
                Ok(Answer::Statistics(self.device()?.statistics(repeated_commands)))
            }
        }
    }

    fn device(&mut self) -> Result<&mut Device, Refused> {
        self.device.as_mut().ok_or_else(|| Refused::Session("there is no device yet; reset makes one".into()))
    }

    fn reset(&mut self, reset: &Reset, call: &mut Call<'_>) -> Result<Answer, Refused> {
        // The old device's resources must be free for the new one.
        if let Some(mut before) = self.device.take() {
            before.store.close()?;
        }
        call.begin_long();
        let made = self.maker.make(reset).map_err(|reason| Refused::Command(ErrorCode::Device, reason))?;
        let info = made.model.info().clone();
        self.device = Some(Device {
            paced: Paced::new(made.model, reset.speculate),
            store: made.store,
            _memory: made.memory,
            submitted: 0,
            capacity_sectors: info.capacity_sectors,
        });
        Ok(Answer::Info(Info { device: info, speculates: reset.speculate, keeps_bytes: true, profile: made.profile }))
    }
}

impl DeviceMaker for Devices {
    fn make(&self, reset: &Reset) -> Result<MadeDevice, String> {
        let profile = self.profile(reset)?;
        let capacity_bytes = (reset.capacity_bytes > 0).then_some(reset.capacity_bytes);
        let build = BuildOptions { capacity_bytes, seed: reset.seed, ..BuildOptions::default() };
        let memory = self.memory_for(&profile, &build)?;
        let model = profile.build(&build).map_err(|error| error.to_string())?;
        if model.info().zones.is_some() {
            return Err("a device with zones works without a guest only".to_owned());
        }
        let bound = self.store_budget_bytes;
        let asked = if reset.store_budget_bytes == 0 { bound } else { reset.store_budget_bytes };
        let capacity_bytes = model.info().capacity_sectors * SECTOR_BYTES;
        let volatile_cache = model.info().volatile_cache;
        let store = self.store.open(capacity_bytes, volatile_cache, asked.min(bound), &self.stores)?;
        Ok(MadeDevice { model, profile: profile.text().to_owned(), store, memory: Some(memory) })
    }
}

impl Devices {
    /// A maker of these devices, each with this much memory for its bytes, and no other limits.
    #[must_use]
    pub fn in_memory(profiles: Vec<Profile>, store_budget_bytes: u64) -> Self {
        Devices {
            profiles,
            store: StorePlace::Ram,
            store_budget_bytes,
            stores: MemoryPool::new(u64::MAX),
            model_budget_bytes: u64::MAX,
            models: MemoryPool::new(u64::MAX),
        }
    }

    /// Reserves the memory for a model before it is built.
    fn memory_for(&self, profile: &Profile, build: &BuildOptions) -> Result<Held, String> {
        let bytes = profile.memory_bytes_max(build).map_err(|error| error.to_string())?;
        let (name, mib) = (profile.name(), bytes.div_ceil(1 << 20));
        if bytes > self.model_budget_bytes {
            let most_mib = self.model_budget_bytes >> 20;
            return Err(format!(
                "the tables of the device {name} may take {mib} MiB of the server's memory; a device may have \
                 {most_mib} MiB"
            ));
        }
        self.models.hold(bytes).ok_or_else(|| {
            let (used, limit) = (self.models.used_bytes() >> 20, self.models.limit_bytes() >> 20);
            format!(
                "the tables of the device {name} may take {mib} MiB of the server's memory; other sessions have \
                 {used} MiB of the {limit} MiB for all"
            )
        })
    }

    fn profile(&self, reset: &Reset) -> Result<Profile, String> {
        if !reset.profile.is_empty() {
            return Profile::parse(&reset.profile, &reset.label).map_err(|error| error.to_string());
        }
        let found = if reset.label.is_empty() {
            self.profiles.first()
        } else {
            self.profiles.iter().find(|profile| profile.name() == reset.label)
        };
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.profiles.iter().map(Profile::name).collect();
            if names.is_empty() {
                "it offers no devices of its own; name a profile".into()
            } else {
                format!("it has no device '{}'; it offers {}", reset.label, names.join(", "))
            }
        })
    }
}

/// Reason why a command was not executed.
enum Refused {
    /// The command alone was refused.
    Command(ErrorCode, String),
    /// The command violated the protocol, which ends the session.
    Session(String),
    /// The command took too long, which ends the session.
    Halted(Halt),
    /// The command ends the session.
    Ended,
}

impl From<Halt> for Refused {
    fn from(halt: Halt) -> Self {
        Refused::Halted(halt)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Violation(reason) => Refused::Session(reason),
            Refusal::Halt(halt) => Refused::Halted(halt),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Refused::Command(ErrorCode::Store, error.to_string())
    }
}

impl Device {
    /// A request arrives, for one of the places if there are some. Returns the place.
    fn submit(&mut self, at: Nanos, request: Request, places: &[Lba], call: &mut Call<'_>) -> Result<Lba, Refused> {
        let wrong = |reason: String| Err(Refused::Session(reason));
        let id = request.id.0;
        if at > LATEST_ARRIVAL {
            return wrong(format!(
                "request {id} arrives at {} ns, beyond the {} ns (18 years) that models hold",
                at.as_nanos(),
                LATEST_ARRIVAL.as_nanos()
            ));
        }
        let bytes_max = if request.op.moves_data() { REQUEST_BYTES_MAX } else { RANGE_BYTES_MAX };
        if request.len_bytes() > bytes_max {
            let mib = bytes_max >> 20;
            return wrong(format!(
                "request {id} is a {} of {} bytes; the most are {mib} MiB",
                request.op,
                request.len_bytes()
            ));
        }
        let ends_beyond = |lba: &Lba| !fits(self.capacity_sectors, lba.0, request.sectors);
        if let Some(lba) = std::iter::once(&request.lba).chain(places).find(|lba| ends_beyond(lba)) {
            return wrong(format!(
                "request {id} asks for {} sectors at sector {lba}, but the device ends at sector {}",
                request.sectors, self.capacity_sectors
            ));
        }
        if !places.is_empty() && !matches!(request.op, Op::Write | Op::WriteZeroes) {
            return wrong(format!("request {id} is a {}; only a write goes to one of several places", request.op));
        }
        if (request.op == Op::Flush) != (request.sectors == 0) {
            return wrong(format!("request {id} is a {} of {} sectors", request.op, request.sectors));
        }
        let place = self.paced.submit(at, request, places, call)?;
        self.submitted += 1;
        Ok(place)
    }

    fn next(&mut self, taken: Nanos, safe_until: Nanos, call: &mut Call<'_>) -> Result<Answer, Refused> {
        if taken > safe_until || taken < self.paced.committed().now() {
            let now = self.paced.committed().now();
            return Err(Refused::Session(format!(
                "it asks for the events after {taken} and is safe until {safe_until}, while the model is at {now}"
            )));
        }
        Ok(Answer::Next(self.paced.next(taken, safe_until, call)?))
    }

    fn statistics(&self, repeated_commands: u64) -> ModelStatistics {
        let model = probed(|sink| self.paced.committed().probe(sink));
        let (predictions, rollbacks) = self.paced.predictions_and_rollbacks();
        ModelStatistics { submitted: self.submitted, predictions, rollbacks, repeated_commands, model }
    }
}
