//! The filter of system calls as a program for the host's kernel (BPF).
//!
//! Calls are compared in the order of the rules, the most frequent first. From Linux 5.11 on, the kernel keeps a map
//! of the calls that are allowed with any arguments, and does not run the program for them.

use std::io;

use libc::sock_filter;

/// A condition on the lower 32 bits of an argument: the kernel uses no more of the arguments in these rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The argument has one of these values.
    In(u8, Vec<u32>),
    /// The argument has none of these bits.
    Clear(u8, u32),
    /// The argument's bits in the mask have this value.
    Masked(u8, u32, u32),
    /// Zero, or the number of the guest's kernel.
    Own(u8),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    /// The call fails with this error.
    Fail(libc::c_int),
    /// The launcher decides.
    Notify,
}

impl Action {
    const fn code(self) -> u32 {
        match self {
            Action::Allow => libc::SECCOMP_RET_ALLOW,
            Action::Fail(errno) => libc::SECCOMP_RET_ERRNO | errno as u32 & libc::SECCOMP_RET_DATA,
            Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
        }
    }
}

/// A rule for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub call: u32,
    /// The call is allowed if all conditions in one of these lists hold.
    pub allowed: Vec<Vec<Condition>>,
    pub otherwise: Action,
}

/// A filter program, complete except for the process id of the guest's kernel.
#[derive(Clone, Debug)]
pub(super) struct Program {
    instructions: Vec<sock_filter>,
    /// Instructions that compare with that number.
    own: Vec<usize>,
}

/// Offsets in `struct seccomp_data` (`linux/seccomp.h`).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// `linux/audit.h`: x86-64. A call by `int 0x80` has another architecture. A call of x32 has this one, but its number
/// matches no rule.
pub(super) const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A jump whose distance is not known yet.
struct Jump {
    at: usize,
    if_true: bool,
}

impl Program {
    /// # Errors
    /// When a rule is longer than a jump can be.
    pub fn new(rules: &[Rule], otherwise: Action) -> io::Result<Self> {
        let mut program = Program { instructions: Vec::new(), own: Vec::new() };
        program.push(LOAD, ARCHITECTURE);
        let is_native = program.push(EQUAL, AUDIT_ARCH_X86_64);
        program.instructions[is_native].jt = 1;
        program.push(RETURN, otherwise.code());
        program.push(LOAD, NUMBER);
        for rule in rules {
            program.add(rule)?;
        }
        program.push(RETURN, otherwise.code());
        Ok(program)
    }

    fn push(&mut self, code: u16, value: u32) -> usize {
        self.instructions.push(sock_filter { code, jt: 0, jf: 0, k: value });
        self.instructions.len() - 1
    }

    /// Lets the jump end at the next instruction.
    fn land(&mut self, jump: &Jump) -> io::Result<()> {
        let distance = self.instructions.len() - jump.at - 1;
        let distance = u8::try_from(distance).map_err(|_| io::Error::other("a rule for a system call is too long"))?;
        let instruction = &mut self.instructions[jump.at];
        *(if jump.if_true { &mut instruction.jt } else { &mut instruction.jf }) = distance;
        Ok(())
    }

    fn add(&mut self, rule: &Rule) -> io::Result<()> {
        let is_other = Jump { at: self.push(EQUAL, rule.call), if_true: false };
        for conditions in &rule.allowed {
            let mut fails = Vec::new();
            for condition in conditions {
                fails.push(self.check(condition)?);
            }
            self.push(RETURN, Action::Allow.code());
            for fail in &fails {
                self.land(fail)?;
            }
        }
        if rule.allowed.iter().all(|conditions| !conditions.is_empty()) {
            self.push(RETURN, rule.otherwise.code());
        }
        self.land(&is_other)
    }

    /// Continues if the condition holds. Returns the jump for the other case.
    fn check(&mut self, condition: &Condition) -> io::Result<Jump> {
        let (Condition::In(argument, _)
        | Condition::Clear(argument, _)
        | Condition::Masked(argument, ..)
        | Condition::Own(argument)) = condition;
        self.push(LOAD, ARGUMENTS + 8 * u32::from(*argument));
        match condition {
            Condition::In(_, values) => self.one_of(values),
            Condition::Clear(_, mask) => Ok(Jump { at: self.push(ANY_BIT, *mask), if_true: true }),
            Condition::Masked(_, mask, value) => {
                self.push(AND, *mask);
                self.one_of(&[*value])
            }
            Condition::Own(_) => {
                let is_own = self.one_of(&[0, 0])?;
                self.own.push(is_own.at);
                Ok(is_own)
            }
        }
    }

    fn one_of(&mut self, values: &[u32]) -> io::Result<Jump> {
        let (last, others) = values.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let equals: Vec<Jump> =
            others.iter().map(|value| Jump { at: self.push(EQUAL, *value), if_true: true }).collect();
        let fail = Jump { at: self.push(EQUAL, *last), if_true: false };
        for equal in &equals {
            self.land(equal)?;
        }
        Ok(fail)
    }

    /// Applies the filter to this process permanently, with these flags of seccomp(2). Allocates no memory. Returns the
    /// listener's descriptor if the flags request one.
    ///
    /// # Errors
    /// If the kernel refuses: it has no listeners before Linux 5.0, and no second one for a process.
    pub fn apply(&mut self, flags: libc::c_ulong) -> io::Result<libc::c_int> {
        // SAFETY: a system call without pointers.
        let own = unsafe { libc::getpid() } as u32;
        for at in &self.own {
            self.instructions[*at].k = own;
        }
        let program = libc::sock_fprog { len: self.instructions.len() as u16, filter: self.instructions.as_mut_ptr() };
        // SAFETY: the program and its length belong together, and the kernel copies them.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
    }
}

#[cfg(test)]
impl Program {
    /// Runs the program as the kernel does. Returns its verdict on a call.
    pub fn decide(&self, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let sock_filter { code, jt, jf, k } = self.instructions[at];
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
            match code {
                LOAD if k == NUMBER => accumulator = number,
                LOAD if k == ARCHITECTURE => accumulator = architecture,
                LOAD => accumulator = arguments[(k - ARGUMENTS) as usize / 8] as u32,
                EQUAL => jump(accumulator == k),
                ANY_BIT => jump(accumulator & k != 0),
                AND => accumulator &= k,
                RETURN => return k,
                _ => panic!("instruction {code:#x}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(call: u32, allowed: Vec<Vec<Condition>>) -> Rule {
        Rule { call, allowed, otherwise: Action::Fail(libc::EPERM) }
    }

    #[test]
    fn calls_are_allowed_by_number_and_by_argument() {
        let allow = Action::Allow.code();
        let (refuse, other) = (Action::Fail(libc::EPERM).code(), Action::Notify.code());
        let rules = [
            rule(10, vec![vec![]]),
            rule(11, vec![vec![Condition::In(1, vec![3, 5, 7])]]),
            rule(12, vec![vec![Condition::Clear(0, 6)], vec![Condition::In(0, vec![6]), Condition::Own(2)]]),
            rule(13, vec![vec![Condition::Masked(5, 0xf0, 0x30), Condition::In(0, vec![1])]]),
            rule(14, vec![]),
        ];
        let mut program = Program::new(&rules, Action::Notify).unwrap();
        for at in program.own.clone() {
            program.instructions[at].k = 4321;
        }
        let call = |number, arguments| program.decide(AUDIT_ARCH_X86_64, number, arguments);
        assert_eq!(call(10, [9; 6]), allow);
        for (value, result) in [(3, allow), (5, allow), (7, allow), (4, refuse), (0, refuse), (3 << 32, refuse)] {
            assert_eq!(call(11, [0, value, 0, 0, 0, 0]), result, "{value}");
        }
        for (first, third, result) in
            [(0, 0, allow), (9, 9, allow), (2, 0, refuse), (6, 0, allow), (6, 4321, allow), (6, 4322, refuse)]
        {
            assert_eq!(call(12, [first, 0, third, 0, 0, 0]), result, "{first} {third}");
        }
        assert_eq!(call(13, [1, 0, 0, 0, 0, 0x0f3f]), allow);
        assert_eq!((call(13, [1, 0, 0, 0, 0, 0x0f4f]), call(13, [2, 0, 0, 0, 0, 0x3f])), (refuse, refuse));
        assert_eq!((call(14, [0; 6]), call(15, [0; 6])), (refuse, other));
        // x32, and a call by `int 0x80`.
        assert_eq!(call(10 | 0x4000_0000, [0; 6]), other);
        assert_eq!(program.decide(0x4000_0003, 10, [0; 6]), other);
    }

    #[test]
    fn a_rule_that_is_too_long_is_no_program() {
        let values = |count| rule(1, vec![vec![Condition::In(0, (0..count).collect())]]);
        assert!(Program::new(&[values(250)], Action::Notify).is_ok());
        assert!(Program::new(&[values(260)], Action::Notify).is_err());
    }
}
