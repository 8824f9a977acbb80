//! For the examples: the server that they run on, chosen in this one place. The one that `REDIS_URL`
//! names, else a private `redis-server` or `valkey-server` from PATH, else the demo server in this process.

#[path = "../demo_server/mod.rs"]
mod demo_server;
mod private;

use std::io;

use demo_server::DemoServer;
use private::PrivateServer;

/// What was started ends with the value.
pub(crate) enum Server {
    Given(String),
    Private(PrivateServer),
    Demo(DemoServer),
}

impl Server {
    /// Finds one, and says in a line which.
    pub(crate) fn find() -> io::Result<Server> {
        let server = if let Ok(url) = std::env::var("REDIS_URL") {
            Server::Given(url)
        } else if let Some(private) = PrivateServer::from_path()? {
            Server::Private(private)
        } else {
            Server::Demo(DemoServer::start()?)
        };
        println!("server: {}", server.describe());
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Server::Given(url) => url.clone(),
            Server::Private(private) => format!("redis://127.0.0.1:{}/", private.port()),
            Server::Demo(demo) => demo.url(),
        }
    }

    /// Without the address of REDIS_URL, which may have a password.
    fn describe(&self) -> String {
        match self {
            Server::Given(_) => "the one of REDIS_URL".to_owned(),
            Server::Private(private) => format!("a private {} on port {}", private.program(), private.port()),
            Server::Demo(demo) => {
                let port = demo.port();
                format!("a demo server in this process, on port {port}: no redis-server and no valkey-server on PATH")
            }
        }
    }
}
