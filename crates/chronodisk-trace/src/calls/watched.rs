//! Calls at which a recorder stops, and the memory that it reads there.

use super::assess::{RecordedArguments, recorded_arguments};
use super::numbers::call_number;
use super::table::TABLE;

/// A call that a recorder sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Call number on x86-64.
    pub number: u32,
    /// Arguments that are addresses of paths.
    pub paths: [Option<usize>; 2],
    /// Arguments that point to words, with the number of words that [`take_words`](super::take_words) takes; the second
    /// points to one.
    pub words: [Option<(usize, usize)>; 2],
    /// The argument that is the address of two new descriptors.
    pub pipe: Option<usize>,
    /// The argument with the address of a message, which may carry descriptors.
    pub message: Option<usize>,
}

/// All calls that are in traces, and those by which the kernel restarts a call or ends a handler of a signal.
#[must_use]
pub fn watched_calls() -> Vec<Watched> {
    let mut calls: Vec<Watched> = TABLE
        .iter()
        .filter_map(|known| {
            let RecordedArguments { paths, pair, words, .. } = recorded_arguments(known.name);
            Some(Watched {
                number: call_number(known.name)?,
                paths,
                words,
                pipe: pair,
                message: (known.name == "recvmsg").then_some(1),
            })
        })
        .collect();
    calls.extend(
        ["restart_syscall", "rt_sigreturn"]
            .iter()
            .filter_map(|name| Some(Watched { number: call_number(name)?, ..Watched::default() })),
    );
    calls.sort_by_key(|call| call.number);
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_table_has_a_number() {
        let calls = watched_calls();
        assert_eq!(calls.len(), TABLE.len() + 2);
        assert!(calls.windows(2).all(|pair| pair[0].number < pair[1].number));
        let of = |name| calls.iter().find(|call| Some(call.number) == call_number(name)).unwrap();
        assert_eq!(of("renameat2").paths, [Some(1), Some(3)]);
        assert_eq!(of("symlinkat").paths, [Some(0), Some(2)]);
        assert_eq!(of("execve").paths, [Some(0), None]);
        assert_eq!((of("openat2").words[0], of("socketpair").pipe, of("pipe2").pipe), (Some((2, 3)), Some(3), Some(0)));
    }
}
