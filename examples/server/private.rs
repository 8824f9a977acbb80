//! A `redis-server` or `valkey-server` from PATH that ends with the example. Called by `Server::find`.

use std::{
    io,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct PrivateServer {
    program: &'static str,
    port: u16,
    child: Child,
}

impl PrivateServer {
    /// `None` if there is no such program.
    pub(crate) fn from_path() -> io::Result<Option<PrivateServer>> {
        for program in ["redis-server", "valkey-server"] {
            match start(program) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                started => return started.map(Some),
            }
        }
        Ok(None)
    }

    pub(crate) fn program(&self) -> &'static str {
        self.program
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn start(program: &'static str) -> io::Result<PrivateServer> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let child = Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()?;
    let mut server = PrivateServer { program, port, child };
    let end = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        // Another program may have taken the port first.
        let ended = !matches!(server.child.try_wait(), Ok(None));
        if ended || Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} does not come up")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
