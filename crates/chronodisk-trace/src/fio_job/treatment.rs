//! An option of fio, and its treatment in a simulation.

/// An option of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FioOption {
    /// First name of the option.
    pub name: &'static str,
    /// Other names of the option.
    pub aliases: &'static [&'static str],
    /// Treatment of the option.
    pub treatment: Treatment,
}

/// The treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The option is supported; the text describes its values.
    Honoured(&'static str),
    /// The option has no effect on the requests that reach the device; the text gives the reason.
    Ignored(&'static str),
    /// The option is refused; the text is the expected value.
    Refused(&'static str),
}
