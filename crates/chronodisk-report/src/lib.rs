//! Results of runs: schemas, request logs, tables and plots.
//!
//! - [`RunResult`] is a run's result without its requests, as JSON.
//! - [`write_log`] and [`read_log`] keep the requests as Parquet, [`LogWriter`] as they come.
//! - [`write_calls`] and [`read_calls`] do the same for traces of system calls.
//! - [`Summary`] condenses requests to figures; percentiles are exact, over all requests. [`StreamedSummary`] does it
//!   request by request, in bounded memory.
//! - [`Simulation`] is the result of a simulation without a guest.
//! - [`Fidelity`] compares a model with a measured drive.
//! - [`SweepFit`] compares a model with a measured sweep, before and after its constants were fitted.
//! - [`TraceStatistics`] describes a block trace, [`TraceComparison`] compares two.
//! - [`compare`](compare()) compares runs, with paired differences.
//! - [`render_run_summary`], [`render_simulation`] and [`Comparison::render`] are plain text without colours;
//!   [`plot_comparison`] and [`plot_fidelity`] draw SVG files.
//! - [`render_report`] makes one HTML page of runs, with charts; [`render_sweep_report`] one of a sweep.
//!
//! Apart from reading and writing files, all functions are pure.
#![forbid(unsafe_code)]

mod calls;
mod compare;
mod crash;
mod crash_states;
mod curve_plot;
mod differences;
mod error;
mod fidelity;
mod files;
mod html;
mod judge;
mod labels;
mod log;
mod pages;
mod plot;
mod render;
mod schema;
mod simulation;
mod statistics;
mod streamed;
mod summary;
mod surroundings;
mod sweep_fit;
mod sweep_plot;
mod table;
mod tables;
mod trace_comparison;
mod trace_plot;
mod trace_statistics;
mod utc;
mod verdict;

pub use calls::{CALLS_SCHEMA, CallMemory, read_calls, read_calls_within, write_calls};
pub use compare::{COMPARISON_SCHEMA, Comparison, ComparisonRow, compare};
pub use crash::{CRASH_SCHEMA, CrashFailure, CrashRequest, CrashResult, FewestLost};
pub use crash_states::CrashStates;
pub use curve_plot::{Curve, CurvePoint, curves_svg, plot_curves};
pub use error::ReportError;
pub use fidelity::{Agreement, FIDELITY_SCHEMA, Fidelity, QuantilePair, ServedTwice, plot_fidelity};
pub use files::AtomicFile;
pub use files::write_text;
pub use html::{
    AddressRange, ChartsBuilder, CrashReport, Heat, ReportRun, ReportSource, Resolution, RunCharts, Series, SweepCell,
    SweepCombination, SweepCurves, SweepEffect, SweepReport, charted_window, render_report, render_sweep_report,
};
pub use judge::{Condition, Judgement, judge, render_junit, render_markdown};
pub use labels::Labels;
pub use log::{LOG_SCHEMA, LogInfo, LogReader, LogWriter, read_log, write_log};
pub use pages::PAGE_BYTES_MAX;
pub use plot::{PlotRun, plot_comparison};
pub use render::{render_refused_calls, render_run_summary, render_simulation};
pub use schema::{
    BootstrapResult, BootstrapStatistic, ClockInfo, ComponentSample, DeviceUsed, DroppedFiles, EndedBy, GuestInfo,
    HostInfo, HostSample, KernelCost, NativeResult, Phase, PhaseName, PilotResult, RUN_SCHEMA, RepResult, ReplayResult,
    RunResult, ServerResult, ShadowResult, TransportResult, ZonesFile,
};
pub use simulation::{BackgroundScan, SIMULATION_SCHEMA, Simulation};
pub use statistics::{Estimate, student_t_975};
pub use streamed::{EXACT_MAX, StreamedDistribution, StreamedSummary};
pub use summary::{Distribution, LATENESS_UNNOTICED, OpSummary, Summary, failed_by_status, service_times};
pub use surroundings::Surroundings;
pub use sweep_fit::{
    FIT_SCHEMA, FittedConstant, MissingSweep, PointUse, SetError, StructureErrors, SweepFigures, SweepFit, SweepPoint,
};
pub use sweep_plot::plot_sweeps;
pub use table::{Align, Table, counted, four_digits};
pub use tables::{log_columns, records_of_table, table_of_records};
pub use trace_comparison::{
    ComparedTrace, Matched, OpComparison, Remainder, TRACE_COMPARISON_SCHEMA, TimeComparison, TraceComparison,
    compare_traces,
};
pub use trace_plot::plot_trace_statistics;
pub use trace_statistics::{
    Burstiness, CacheHits, FigureEstimate, OpStatistics, ResponseIntervals, SizeDistribution, StatisticsGatherer,
    TRACE_STATISTICS_SCHEMA, TraceSeries, TraceStatistics,
};
pub use utc::{unix_seconds_of, utc_timestamp};
pub use verdict::{Doubt, Figure, GenericCode, KernelCpu, Limit, RequestIssuers, Seen, Verdict};
