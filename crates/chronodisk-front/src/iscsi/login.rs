//! Login: identification, authentication and the negotiation of parameters; RFC 7143, sections 6 and 13.

use super::chap::{Algorithm, Challenge};
use super::target::{IscsiTarget, NAME_BYTES_MAX};
use super::text::{self, TEXT_BYTES_MAX};
use super::wire::login_status::{self as status, Status};
use super::wire::{Header, flag, stage};
use super::{BURST_BYTES_MAX, FIRST_BURST_BYTES_MAX, RECEIVE_DATA_BYTES_MAX};

/// Most requests of a login.
const REQUEST_COUNT_MAX: u32 = 32;
/// Least and most values of lengths that are negotiated.
const LENGTHS: std::ops::RangeInclusive<u32> = 512..=(1 << 24) - 1;

/// A login that has not ended.
#[derive(Debug)]
pub(crate) struct Login {
    stage: u8,
    requests: u32,
    /// The text of a request that is continued.
    text: Vec<u8>,
    identified: bool,
    /// The initiator's name in lower case.
    pub initiator: String,
    authentication: Authentication,
    declared: bool,
    pub is_discovery: bool,
    pub parameters: Parameters,
}

#[derive(Debug)]
enum Authentication {
    /// The initiator proposes methods.
    Method,
    /// The initiator proposes algorithms.
    Algorithm,
    Challenged(Challenge),
    Done,
}

/// Negotiated parameters; at first those of section 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub header_digest: bool,
    pub data_digest: bool,
    /// All data of writes are asked for, except immediate data.
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// Most bytes that the initiator sends unasked.
    pub first_burst_bytes: u32,
    pub burst_bytes: u32,
    /// Most bytes of data that the initiator accepts in one PDU.
    pub send_data_bytes: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            first_burst_bytes: 65_536,
            burst_bytes: 262_144,
            send_data_bytes: 8_192,
        }
    }
}

/// The answer to a request of a login.
#[derive(Debug)]
pub(crate) struct LoginAnswer {
    pub status: Status,
    /// The second byte of the response.
    pub flags: u8,
    pub text: Vec<u8>,
    /// The login has succeeded.
    pub is_complete: bool,
}

impl Login {
    pub fn new() -> Self {
        Login {
            stage: stage::SECURITY,
            requests: 0,
            text: Vec::new(),
            identified: false,
            initiator: String::new(),
            authentication: Authentication::Method,
            declared: false,
            is_discovery: false,
            parameters: Parameters::default(),
        }
    }

    /// Answers a request.
    pub fn request(&mut self, header: &Header, data: &[u8], target: &IscsiTarget) -> LoginAnswer {
        self.answer(header, data, target).unwrap_or_else(|status| LoginAnswer {
            status,
            flags: self.stage << 2,
            text: Vec::new(),
            is_complete: false,
        })
    }

    fn answer(&mut self, header: &Header, data: &[u8], target: &IscsiTarget) -> Result<LoginAnswer, Status> {
        let (current, next) = (header.flags() >> 2 & 3, header.flags() & 3);
        self.requests += 1;
        if self.requests == 1 && matches!(current, stage::SECURITY | stage::OPERATIONAL) {
            self.stage = current;
        }
        if header.0[3] > 0 {
            return Err(status::UNSUPPORTED_VERSION);
        }
        if header.0[14..16] != [0, 0] {
            return Err(status::NO_SESSION);
        }
        if current != self.stage || self.requests > REQUEST_COUNT_MAX {
            return Err(status::INVALID_DURING_LOGIN);
        }
        if self.text.len() + data.len() > TEXT_BYTES_MAX {
            return Err(status::INITIATOR_ERROR);
        }
        self.text.extend(data);
        let stays = |text| LoginAnswer { status: status::SUCCESS, flags: current << 2, text, is_complete: false };
        if header.flags() & flag::CONTINUE != 0 {
            return if header.is_final() { Err(status::INITIATOR_ERROR) } else { Ok(stays(Vec::new())) };
        }
        let text = std::mem::take(&mut self.text);
        let pairs = text::pairs(&text).ok_or(status::INITIATOR_ERROR)?;
        let mut answer = Vec::new();
        if !std::mem::replace(&mut self.identified, true) {
            self.identify(&pairs, target)?;
            if !self.is_discovery {
                text::put(&mut answer, "TargetPortalGroupTag", "1");
            }
        }
        self.authenticate(&pairs, target, &mut answer)?;
        for (key, value) in &pairs {
            self.parameters.negotiate(key, value, &mut answer);
        }
        if current == stage::OPERATIONAL && !std::mem::replace(&mut self.declared, true) {
            text::put(&mut answer, "MaxRecvDataSegmentLength", &RECEIVE_DATA_BYTES_MAX.to_string());
        }
        let is_trusted = target.credentials.is_none() || matches!(self.authentication, Authentication::Done);
        if current == stage::OPERATIONAL && !is_trusted {
            return Err(status::AUTHENTICATION_FAILURE);
        }
        if !header.is_final() || !is_trusted {
            return Ok(stays(answer));
        }
        if next <= current || !matches!(next, stage::OPERATIONAL | stage::FULL_FEATURE) {
            return Err(status::INITIATOR_ERROR);
        }
        self.stage = next;
        let flags = flag::FINAL | current << 2 | next;
        Ok(LoginAnswer { status: status::SUCCESS, flags, text: answer, is_complete: next == stage::FULL_FEATURE })
    }

    /// The initiator names itself and the target.
    fn identify(&mut self, pairs: &[(&str, &str)], target: &IscsiTarget) -> Result<(), Status> {
        let value = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let initiator = value("InitiatorName").filter(|name| !name.is_empty()).ok_or(status::MISSING_PARAMETER)?;
        if initiator.len() > NAME_BYTES_MAX {
            return Err(status::INITIATOR_ERROR);
        }
        self.initiator = initiator.to_ascii_lowercase();
        self.is_discovery = match value("SessionType") {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(_) => return Err(status::SESSION_TYPE),
        };
        match value("TargetName") {
            None if !self.is_discovery => Err(status::MISSING_PARAMETER),
            Some(name) if !name.eq_ignore_ascii_case(&target.name) => Err(status::NOT_FOUND),
            _ => Ok(()),
        }
    }

    fn authenticate(
        &mut self,
        pairs: &[(&str, &str)],
        target: &IscsiTarget,
        answer: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let value = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let failed = status::AUTHENTICATION_FAILURE;
        // The initiator wants a proof of the target's, which has no secret for it.
        if value("CHAP_C").is_some() {
            return Err(failed);
        }
        match (&self.authentication, &target.credentials) {
            (Authentication::Method, None) => {
                if let Some(methods) = value("AuthMethod") {
                    methods.split(',').find(|method| *method == "None").ok_or(failed)?;
                    text::put(answer, "AuthMethod", "None");
                    self.authentication = Authentication::Done;
                }
            }
            (Authentication::Method, Some(_)) => match value("AuthMethod") {
                Some(methods) => {
                    methods.split(',').find(|method| *method == "CHAP").ok_or(failed)?;
                    text::put(answer, "AuthMethod", "CHAP");
                    self.authentication = Authentication::Algorithm;
                }
                None if self.stage == stage::SECURITY => {}
                None => return Err(failed),
            },
            (Authentication::Algorithm, _) => {
                let algorithm = value("CHAP_A").and_then(Algorithm::chosen).ok_or(failed)?;
                let challenge = Challenge::fresh(algorithm).ok_or(failed)?;
                challenge.put(answer);
                self.authentication = Authentication::Challenged(challenge);
            }
            (Authentication::Challenged(challenge), Some(credentials)) => {
                let response = value("CHAP_R").and_then(text::binary).ok_or(failed)?;
                let name = value("CHAP_N").ok_or(failed)?;
                if !challenge.is_answered(credentials, name, &response) {
                    return Err(failed);
                }
                self.authentication = Authentication::Done;
            }
            (Authentication::Challenged(_), None) | (Authentication::Done, _) => {}
        }
        Ok(())
    }
}

impl Parameters {
    /// Answers a key of the negotiation of parameters.
    fn negotiate(&mut self, key: &str, value: &str, answer: &mut Vec<u8>) {
        let result = match key {
            "HeaderDigest" => digest(value, &mut self.header_digest),
            "DataDigest" => digest(value, &mut self.data_digest),
            "InitialR2T" => boolean(value, &mut self.initial_r2t),
            "ImmediateData" => boolean(value, &mut self.immediate_data),
            "MaxBurstLength" => length(value, BURST_BYTES_MAX, &mut self.burst_bytes),
            "FirstBurstLength" => length(value, FIRST_BURST_BYTES_MAX, &mut self.first_burst_bytes),
            // Declared, without an answer.
            "MaxRecvDataSegmentLength" => {
                let mut declared = self.send_data_bytes;
                let is_valid = length(value, *LENGTHS.end(), &mut declared).is_some();
                self.send_data_bytes = declared;
                if is_valid {
                    return;
                }
                None
            }
            "MaxConnections" | "MaxOutstandingR2T" => {
                text::number(value).filter(|number| *number > 0).map(|_| "1".into())
            }
            "DefaultTime2Wait" => text::number(value).filter(|number| *number <= 3600).map(|number| number.to_string()),
            "DefaultTime2Retain" | "ErrorRecoveryLevel" => text::number(value).map(|_| "0".into()),
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(value, &mut true).map(|_| "Yes".into()),
            "IFMarker" | "OFMarker" => boolean(value, &mut true).map(|_| "No".into()),
            "TaskReporting" => Some("RFC3720".into()),
            "iSCSIProtocolLevel" => text::number(value).map(|level| level.min(1).to_string()),
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "AuthMethod" => return,
            key if key.starts_with("CHAP_") => return,
            _ => Some("NotUnderstood".into()),
        };
        text::put(answer, key, result.as_deref().unwrap_or("Reject"));
    }

    /// Most bytes that come unasked: no sequence exceeds a burst.
    pub fn unasked_bytes(&self) -> u32 {
        self.first_burst_bytes.min(self.burst_bytes)
    }

    /// A declaration after the login; whether it is valid.
    pub fn declare(&mut self, value: &str) -> bool {
        length(value, *LENGTHS.end(), &mut self.send_data_bytes).is_some()
    }
}

/// The first supported digest of a list.
fn digest(list: &str, on: &mut bool) -> Option<String> {
    let chosen = list.split(',').find(|name| matches!(*name, "CRC32C" | "None"))?;
    *on = chosen == "CRC32C";
    Some(chosen.to_owned())
}

/// The initiator's value, which decides: the target has no preference that it could impose.
fn boolean(value: &str, on: &mut bool) -> Option<String> {
    *on = match value {
        "Yes" => true,
        "No" => false,
        _ => return None,
    };
    Some(value.to_owned())
}

/// The lesser of both sides' lengths.
fn length(value: &str, most: u32, length: &mut u32) -> Option<String> {
    let number = text::number(value).filter(|number| LENGTHS.contains(number))?;
    *length = number.min(most);
    Some(length.to_string())
}
