//! A secret shared by client and server, and proofs of its possession that do not send it.
//!
//! Both sides add a nonce of 32 random bytes. A proof is the HMAC-SHA-256 (RFC 2104), under the token, of the prover's
//! role (`client` or `server`), the requested session and both nonces. So an overheard proof is worthless on another
//! connection, one side's proof is not valid for the other, and neither reveals the token. Proofs are compared in
//! constant time. The messages after the greeting are neither encrypted nor signed: TLS does that.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chronodisk_sim::{TextError, TextFile};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::SessionId;

/// Random bytes that are used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 32]);

impl Nonce {
    /// Fresh ones.
    ///
    /// # Panics
    /// If the host has no random numbers.
    #[must_use]
    pub fn fresh() -> Nonce {
        let mut nonce = [0; 32];
        SystemRandom::new().fill(&mut nonce).expect("the host has random numbers");
        Nonce(nonce)
    }
}

/// Proof of possession of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(pub [u8; 32]);

/// The shared secret.
#[derive(Clone)]
pub struct Token(hmac::Key);

/// Shortest token in bytes; shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Longest token in bytes.
const TOKEN_BYTES_MAX: usize = TextFile::Token.limit_bytes() as usize;

const CLIENT: &[u8] = b"chronodisk emulator client";
const SERVER: &[u8] = b"chronodisk emulator server";

/// Reads a secret from a file, without the white space around it. The file must belong to this user and be accessible
/// to no other.
///
/// # Errors
/// The file's problem.
pub fn secret_of_file(path: &Path) -> Result<Vec<u8>, TokenError> {
    let wrong = |kind| TokenError { path: path.to_owned(), kind };
    let read = |path: &Path| {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let text = TextFile::Token.read_bytes(file).map_err(|error| match error {
            TextError::Unreadable(error) => error,
            error => io::Error::other(error),
        })?;
        Ok((metadata, text))
    };
    let (metadata, text) = read(path).map_err(|error| wrong(TokenErrorKind::Unreadable(error)))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong(TokenErrorKind::Shared { mode: metadata.mode() & 0o777 }));
    }
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user && metadata.uid() != 0 {
        return Err(wrong(TokenErrorKind::Foreign { uid: metadata.uid() }));
    }
    Ok(text.trim_ascii().to_vec())
}

impl Token {
    /// Reads the token from a file, without the white space around it. The file must belong to this user and be
    /// accessible to no other.
    ///
    /// # Errors
    /// The file's problem.
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let text = secret_of_file(path)?;
        let kind = TokenErrorKind::Length { len: text.len() };
        Token::new(&text).ok_or_else(|| TokenError { path: path.to_owned(), kind })
    }

    /// A token of these bytes; `None` if it is too short or too long.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Token> {
        let fits = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes.len());
        fits.then(|| Token(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The client's proof of its token.
    #[must_use]
    pub fn client_proof(&self, session: SessionId, client: &Nonce, server: &Nonce) -> Proof {
        self.proof(CLIENT, session, client, server)
    }

    /// The server's proof of its token.
    #[must_use]
    pub fn server_proof(&self, session: SessionId, client: &Nonce, server: &Nonce) -> Proof {
        self.proof(SERVER, session, client, server)
    }

    /// Verifies the client's proof, in constant time.
    #[must_use]
    pub fn is_client_proof(&self, proof: &Proof, session: SessionId, client: &Nonce, server: &Nonce) -> bool {
        hmac::verify(&self.0, &message(CLIENT, session, client, server), &proof.0).is_ok()
    }

    /// Verifies the server's proof, in constant time.
    #[must_use]
    pub fn is_server_proof(&self, proof: &Proof, session: SessionId, client: &Nonce, server: &Nonce) -> bool {
        hmac::verify(&self.0, &message(SERVER, session, client, server), &proof.0).is_ok()
    }

    fn proof(&self, who: &[u8], session: SessionId, client: &Nonce, server: &Nonce) -> Proof {
        let tag = hmac::sign(&self.0, &message(who, session, client, server));
        Proof(tag.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

fn message(who: &[u8], session: SessionId, client: &Nonce, server: &Nonce) -> Vec<u8> {
    [who, &session.0, &client.0, &server.0].concat()
}

impl fmt::Debug for Token {
    /// Hides the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A file that has no usable token.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct TokenError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    #[source]
    pub kind: TokenErrorKind,
}

/// Problems of a token's file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenErrorKind {
    /// The host does not let us read it.
    #[error("{0}")]
    Unreadable(io::Error),
    /// Others can read or write it.
    #[error("others can read or write the file (mode {mode:04o}); expected a file for its owner alone (chmod 600)")]
    Shared {
        /// The file's permissions.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error("the file belongs to user {uid}; expected one that belongs to you or to root")]
    Foreign {
        /// The owner.
        uid: u32,
    },
    /// The token is too short or too long.
    #[error(
        "the token has {len} bytes; expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} (such as `openssl rand -hex 32`)"
    )]
    Length {
        /// Length of the token in bytes.
        len: usize,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_proof_is_of_one_side_one_session_and_one_pair_of_nonces() {
        let token = Token::new(&[1; 32]).unwrap();
        let (session, client, server) = (SessionId([2; 16]), Nonce([3; 32]), Nonce([4; 32]));
        let proof = token.client_proof(session, &client, &server);
        assert!(token.is_client_proof(&proof, session, &client, &server));
        assert!(!token.is_server_proof(&proof, session, &client, &server));
        assert!(!token.is_client_proof(&proof, SessionId::NEW, &client, &server));
        assert!(!token.is_client_proof(&proof, session, &server, &client));
        assert!(!Token::new(&[9; 32]).unwrap().is_client_proof(&proof, session, &client, &server));
        assert_ne!(proof, token.server_proof(session, &client, &server));
        assert_eq!(format!("{token:?}"), "Token");
        assert_ne!(Nonce::fresh(), Nonce::fresh());
    }

    #[test]
    fn a_file_is_for_its_owner_alone_and_has_a_secret() {
        let path = std::env::temp_dir().join(format!("chronodisk-token-{}", std::process::id()));
        let with = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            Token::from_file(&path).map_err(|error| error.to_string())
        };
        let secret = "0123456789abcdef";
        assert!(with(&format!("{secret}\n"), 0o600).is_ok());
        for mode in [0o640, 0o604, 0o620] {
            assert!(with(secret, mode).unwrap_err().contains("chmod 600"));
        }
        assert!(with("short\n", 0o600).unwrap_err().contains("has 5 bytes; expected 16"));
        assert!(with(&"x".repeat(5000), 0o600).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Token::from_file(&path).unwrap_err().to_string().contains("No such file"));
    }
}
