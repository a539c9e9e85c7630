//! Arrivals of requests: a trace's, and generated ones.

use chronodisk_run::quantity;
use chronodisk_sim::Nanos;
use chronodisk_sweep::{ReplayOptions, TraceArrivals};
use chronodisk_trace::ArrivalProcess;
use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// When requests arrive, and where those of a trace go.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReplayArguments {
    /// Sets the arrival process. For a trace: open (default), at its time stamps; closed, a pause after the completion
    /// that the same process saw last, as in the trace; depth=N, with N outstanding. For a workload: closed (default),
    /// with --depth outstanding; poisson, regular or on-off, at --rate regardless of the device
    #[arg(long, value_name = "ARRIVALS", value_parser = arrivals)]
    pub arrivals: Option<Arrivals>,

    /// Sets the mean number of arrivals of poisson and regular, or of on-off while it is on, such as 5000/s
    #[arg(long, value_name = "N/s", value_parser = rate)]
    pub rate: Option<f64>,

    /// Sets the mean time that on-off is on; times are exponential
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub on: Option<Nanos>,

    /// Sets the mean time that on-off is off; times are exponential
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub off: Option<Nanos>,

    /// Divides the times between arrivals of a trace by this factor
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = quantity::cpu_speed)]
    pub speed: f64,

    /// Refuses requests of a trace beyond the end of the device, or wraps them around to its beginning
    #[arg(long, value_name = "WHAT", default_value = "refuse")]
    pub beyond: Beyond,
}

/// Rule for the arrivals of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    Open,
    Closed,
    Depth(u32),
    Generated(Process),
}

/// A process of arrivals, without its rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    Poisson,
    Regular,
    OnOff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beyond {
    Refuse,
    Wrap,
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    let depth = |text: &str| text.strip_prefix("depth=")?.parse().ok().filter(|depth| (1..=1_000_000).contains(depth));
    match text {
        "open" => Ok(Arrivals::Open),
        "closed" => Ok(Arrivals::Closed),
        "poisson" => Ok(Arrivals::Generated(Process::Poisson)),
        "regular" => Ok(Arrivals::Generated(Process::Regular)),
        "on-off" => Ok(Arrivals::Generated(Process::OnOff)),
        text => depth(text)
            .map(Arrivals::Depth)
            .ok_or_else(|| "expected open, closed or depth=N; for a workload poisson, regular or on-off".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate))
        .ok_or_else(|| format!("expected {RATE_MIN}/s to {RATE_MAX}/s, such as 5000/s"))
}

/// Arrivals are at whole nanoseconds, and within 146 years.
const RATE_MIN: f64 = 1e-6;
const RATE_MAX: f64 = 1e9;

impl ReplayArguments {
    /// The name of an option that only a trace has, if it was given.
    pub fn given_of_trace(&self) -> Option<&'static str> {
        let given = [
            (matches!(self.arrivals, Some(Arrivals::Open | Arrivals::Depth(_))), "--arrivals open or depth=N"),
            (self.speed != 1.0, "--speed"),
            (self.beyond != Beyond::Refuse, "--beyond"),
        ];
        given.into_iter().find_map(|(given, name)| given.then_some(name))
    }

    /// The name of any option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.arrivals.is_some(), "--arrivals"),
            (self.rate.is_some(), "--rate"),
            (self.on.is_some(), "--on"),
            (self.off.is_some(), "--off"),
        ];
        let given = given.into_iter().find_map(|(given, name)| given.then_some(name));
        given.or_else(|| self.given_of_trace())
    }

    /// The process of arrivals of a workload; `None` for a closed loop.
    pub fn process(&self) -> Result<Option<ArrivalProcess>, Failure> {
        let Some(Arrivals::Generated(process)) = self.arrivals else {
            let given = [(self.rate.is_some(), "--rate"), (self.on.is_some(), "--on"), (self.off.is_some(), "--off")];
            return match given.into_iter().find_map(|(given, name)| given.then_some(name)) {
                Some(name) => Err(Failure::usage(format!("{name} needs --arrivals poisson, regular or on-off"))),
                None => Ok(None),
            };
        };
        let rate_per_s = self
            .rate
            .ok_or_else(|| Failure::usage("--arrivals needs a rate").help("add one, such as --rate 5000/s"))?;
        let bursts = (self.on.filter(|on| *on > Nanos::ZERO), self.off);
        Ok(Some(match (process, bursts) {
            (Process::OnOff, (Some(on), Some(off))) => ArrivalProcess::OnOff { rate_per_s, on, off },
            (Process::OnOff, _) => {
                let failure = Failure::usage("--arrivals on-off needs the mean times that it is on and off");
                return Err(failure.help("add them, such as --on 100ms --off 900ms"));
            }
            (_, _) if self.on.is_some() || self.off.is_some() => {
                return Err(Failure::usage("--on and --off need --arrivals on-off"));
            }
            (Process::Poisson, _) => ArrivalProcess::Poisson { rate_per_s },
            (Process::Regular, _) => ArrivalProcess::Regular { rate_per_s },
        }))
    }

    /// Arrivals and addresses of a trace's requests.
    pub fn of_trace(&self) -> Result<ReplayOptions, Failure> {
        if matches!(self.arrivals, Some(Arrivals::Generated(_))) {
            return Err(Failure::usage("--arrivals poisson, regular and on-off need --workload")
                .help("a trace has its own arrivals: open, closed or depth=N"));
        }
        let given = [(self.rate.is_some(), "--rate"), (self.on.is_some(), "--on"), (self.off.is_some(), "--off")];
        if let Some(name) = given.into_iter().find_map(|(given, name)| given.then_some(name)) {
            return Err(Failure::usage(format!("{name} needs --workload"))
                .help("a trace has its own times; --speed changes them"));
        }
        let arrivals = match self.arrivals {
            Some(Arrivals::Closed) => TraceArrivals::Closed,
            Some(Arrivals::Depth(depth)) => TraceArrivals::Depth(depth),
            _ => TraceArrivals::Open,
        };
        Ok(ReplayOptions { arrivals, speed: self.speed, wraps: self.beyond == Beyond::Wrap })
    }
}
