//! CHAP, by which an initiator proves that it knows a secret; RFC 7143, 12.1.3, and RFC 1994.

use md5::{Digest, Md5};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use super::target::Credentials;
use super::text;

/// Bytes of a challenge.
const CHALLENGE_BYTES: usize = 16;

/// The hash of a response; the registry "iSCSI CHAP algorithms".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// The first supported algorithm of an initiator's list.
    pub fn chosen(list: &str) -> Option<Self> {
        list.split(',').find_map(|name| match name {
            "5" => Some(Algorithm::Md5),
            "7" => Some(Algorithm::Sha256),
            _ => None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
        }
    }

    /// The response to a challenge.
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        let message = [&[identifier], secret, challenge].concat();
        match self {
            Algorithm::Md5 => Md5::digest(&message).to_vec(),
            Algorithm::Sha256 => digest(&SHA256, &message).as_ref().to_vec(),
        }
    }
}

/// A challenge that waits for its response.
#[derive(Debug)]
pub(crate) struct Challenge {
    pub algorithm: Algorithm,
    pub identifier: u8,
    pub bytes: [u8; CHALLENGE_BYTES],
}

impl Challenge {
    /// A fresh one; `None` if the host has no random numbers.
    pub fn fresh(algorithm: Algorithm) -> Option<Self> {
        let mut random = [0; CHALLENGE_BYTES + 1];
        SystemRandom::new().fill(&mut random).ok()?;
        let [identifier, bytes @ ..] = random;
        Some(Challenge { algorithm, identifier, bytes })
    }

    /// Appends the challenge's keys.
    pub fn put(&self, answer: &mut Vec<u8>) {
        text::put(answer, "CHAP_A", self.algorithm.name());
        text::put(answer, "CHAP_I", &self.identifier.to_string());
        text::put(answer, "CHAP_C", &text::hexadecimal(&self.bytes));
    }

    /// Whether name and response prove the knowledge of the secret. The time of the comparison does not depend on the
    /// response's bytes.
    pub fn is_answered(&self, credentials: &Credentials, name: &str, response: &[u8]) -> bool {
        let expected = self.algorithm.response(self.identifier, &credentials.secret, &self.bytes);
        let differences = expected.iter().zip(response).fold(0, |sum, (left, right)| sum | (left ^ right));
        name == credentials.user && response.len() == expected.len() && differences == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_name_and_secret_are_accepted() {
        let credentials = Credentials { user: "me".to_owned(), secret: b"a secret of 22 letters".to_vec() };
        for (list, algorithm) in [("5", Algorithm::Md5), ("6,7,5", Algorithm::Sha256)] {
            assert_eq!(Algorithm::chosen(list), Some(algorithm));
            let challenge = Challenge::fresh(algorithm).unwrap();
            let response = algorithm.response(challenge.identifier, &credentials.secret, &challenge.bytes);
            assert!(challenge.is_answered(&credentials, "me", &response));
            assert!(!challenge.is_answered(&credentials, "you", &response));
            assert!(!challenge.is_answered(&credentials, "me", &response[1..]));
            let wrong = algorithm.response(challenge.identifier, b"another secret", &challenge.bytes);
            assert!(!challenge.is_answered(&credentials, "me", &wrong));
        }
        assert_eq!(Algorithm::chosen("6,8"), None);
        assert!(!format!("{credentials:?}").contains("secret of"));
    }

    /// Computed by `printf '\x01passwordchallenge' | md5sum`.
    #[test]
    fn the_hash_is_of_identifier_secret_and_challenge() {
        let response = Algorithm::Md5.response(1, b"password", b"challenge");
        assert_eq!(text::hexadecimal(&response), HASH);
    }

    const HASH: &str = "0xc9d74fd27e9316adca50d246178a1f84";
}
