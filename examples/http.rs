//! HTTP over RDMA with hyper, which knows nothing of it: `http ADDRESS` serves, `http --get ADDRESS PATH`
//! fetches.
//!
//! ```console
//! $ cargo run --example http -- 10.0.0.1:8080 &
//! $ cargo run --example http -- --get 10.0.0.1:8080 /hello
//! GET /hello over RDMA
//! ```

use std::convert::Infallible;
use std::error::Error;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use rdmacm::tokio::{RdmaListener, RdmaStream};

type Body = Full<Bytes>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [get, address, path] if get == "--get" => fetch(address, path).await,
        [address] => serve(address).await,
        _ => Err("usage: http [--get] ADDRESS [PATH]".into()),
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = RdmaListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            let connection = server::conn::http1::Builder::new();
            let served = connection.serve_connection(TokioIo::new(stream), service_fn(answer));
            if let Err(error) = served.await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let text = format!("{} {} over RDMA", request.method(), request.uri().path());
    Ok(Response::new(Body::from(text)))
}

async fn fetch(address: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let stream = RdmaStream::connect(address).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", address);
    let response = sender.send_request(request.body(Body::default())?).await?;
    if !response.status().is_success() {
        return Err(response.status().to_string().into());
    }
    let body = response.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&body));
    drop(sender);
    Ok(connection.await??)
}
