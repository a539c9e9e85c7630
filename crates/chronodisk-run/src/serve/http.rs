//! Minimal HTTP for a scraper: one page at one path, one request per connection.
//!
//! Clients are hostile: requests are bounded in length and time, connections in number, and only a request's method and
//! path are used.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chronodisk_engine::listen::{Connections, Listener, Place, Share};
use chronodisk_engine::{HostClock, MonotonicClock};

/// A page that is rendered for each request.
pub struct Page {
    /// Path of the page, beginning with a slash.
    pub path: &'static str,
    /// Content type.
    pub content_type: &'static str,
    /// The page.
    pub render: Box<dyn Fn() -> String + Send + Sync>,
}

/// A server of one page; it ends with this value.
pub struct PageServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Longest request, headers included.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Time for a client's request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most clients at a time. One that has not asked yet makes room for the next.
const CLIENTS: Share = Share { most: 64, per_peer: 48 };
/// Interval of the checks for the server's own end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl PageServer {
    /// Serves `page` at `HOST:PORT`; port 0 lets the host choose one.
    pub fn start(address: impl ToSocketAddrs, page: Page) -> io::Result<Self> {
        let listener = Listener::tcp(&address.to_socket_addrs()?.collect::<Vec<_>>())?;
        let address = listener.tcp_address()?.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread =
            std::thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &page, &stop))?;
        Ok(PageServer { address, stopping, thread: Some(thread) })
    }

    /// Address of the server, with the port that the host chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &Listener, page: &Page, stopping: &AtomicBool) {
    let (clock, clients) = (MonotonicClock::new(), Connections::new(CLIENTS));
    std::thread::scope(|scope| {
        while !stopping.load(Ordering::SeqCst) {
            let accepted = listener.wait(LOOK_EVERY).and_then(|()| listener.accept());
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => {
                    // Without free descriptors, the server can only wait.
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            let Ok(place) = clients.enter(&socket, peer, clock.now()) else { continue };
            // A connection without a thread is closed.
            let _ = std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, move || {
                let socket = TcpStream::from(OwnedFd::from(socket));
                // A client that hangs up is no matter.
                let _ = answer(&socket, &place, page);
                // Before the client sees the end of its answer: it may come again at once.
                drop(place);
                drop(socket);
            });
        }
        clients.cut();
    });
}

fn answer(mut socket: &TcpStream, place: &Place, page: &Page) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let (status, with_body) = loop {
        if let Some(found) = judge(&request, page.path) {
            break found;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break (Status::TooSlow, true);
        }
        socket.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match socket.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => request.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    };
    // A whole request is answered, even if other clients connect meanwhile.
    place.hold();
    let (content_type, body) = match status {
        Status::Fine => (page.content_type, (page.render)()),
        other => ("text/plain; charset=utf-8", format!("{}\n", other.line())),
    };
    let allow = if status == Status::WrongMethod { "Allow: GET, HEAD\r\n" } else { "" };
    let mut reply = format!(
        "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    if with_body {
        reply.push_str(&body);
    }
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(reply.as_bytes())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Fine,
    Malformed,
    NotFound,
    WrongMethod,
    TooSlow,
    TooLong,
}

impl Status {
    /// RFC 9110, section 15.
    fn line(self) -> &'static str {
        match self {
            Status::Fine => "200 OK",
            Status::Malformed => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::WrongMethod => "405 Method Not Allowed",
            Status::TooSlow => "408 Request Timeout",
            Status::TooLong => "431 Request Header Fields Too Large",
        }
    }
}

/// Status of a request, and whether to send a body; `None` if it is incomplete.
fn judge(request: &[u8], path: &str) -> Option<(Status, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() <= REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Some((Status::TooLong, true)),
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some((Status::Malformed, true)),
    }
    let asked = parsed.path.unwrap_or_default();
    let here = asked.split('?').next() == Some(path);
    Some(match parsed.method {
        Some("GET") if here => (Status::Fine, true),
        Some("HEAD") if here => (Status::Fine, false),
        Some("GET") => (Status::NotFound, true),
        Some("HEAD") => (Status::NotFound, false),
        _ => (Status::WrongMethod, true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page { path: "/metrics", content_type: "text/plain", render: Box::new(|| "hello\n".repeat(1000)) }
    }

    #[test]
    fn requests_are_judged_whatever_their_pieces() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", (Status::Fine, true)),
            ("GET /metrics?x=y HTTP/1.0\r\n\r\n", (Status::Fine, true)),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", (Status::Fine, false)),
            ("GET / HTTP/1.1\r\n\r\n", (Status::NotFound, true)),
            ("POST /metrics HTTP/1.1\r\n\r\n", (Status::WrongMethod, true)),
            ("\u{1}\u{2}\u{3}\r\n\r\n", (Status::Malformed, true)),
        ] {
            assert_eq!(judge(request.as_bytes(), "/metrics"), Some(expected), "{request}");
            let cut = (0..request.len()).find_map(|len| judge(&request.as_bytes()[..len], "/metrics"));
            assert!(cut.is_none() || cut == Some(expected), "{request}");
        }
        let endless = format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(REQUEST_BYTES_MAX));
        assert_eq!(judge(endless.as_bytes(), "/metrics"), Some((Status::TooLong, true)));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(judge(many.as_bytes(), "/metrics"), Some((Status::TooLong, true)));
    }

    #[test]
    fn silent_clients_do_not_keep_others_from_the_page() {
        let server = PageServer::start("127.0.0.1:0", page()).unwrap();
        let ask = |request: &str| {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            socket.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            answer
        };
        // Some of them send a part of a request.
        let silent: Vec<TcpStream> = (0..300)
            .map(|index| {
                let mut socket = TcpStream::connect(server.address()).unwrap();
                if index % 2 == 0 {
                    socket.write_all(b"GET /metr").unwrap();
                }
                socket
            })
            .collect();
        let answer = ask("GET /metrics HTTP/1.1\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6000\r\n"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\nhello\n") || answer.ends_with("hello\n"));
        // A place is free again when the answer has ended.
        for _ in 0..100 {
            assert!(ask("DELETE /metrics HTTP/1.1\r\n\r\n").contains("Allow: GET, HEAD\r\n"));
        }
        drop(silent);
        drop(server);
    }
}
