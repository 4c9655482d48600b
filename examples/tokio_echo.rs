//! An echo between tasks: `tokio_echo ADDRESS` serves, `tokio_echo --to ADDRESS TEXT...` sends words and
//! prints what comes back.
//!
//! ```console
//! $ cargo run --example tokio_echo -- 10.0.0.1:7471 &
//! $ cargo run --example tokio_echo -- --to 10.0.0.1:7471 hello RDMA
//! hello RDMA
//! ```

use std::io;

use rdmacm::tokio::{RdmaListener, RdmaStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [to, address, words @ ..] if to == "--to" => send(address, &words.join(" ")).await,
        [address] => serve(address).await,
        _ => Err(io::Error::other(
            "usage: tokio_echo [--to] ADDRESS [TEXT...]",
        )),
    }
}

async fn serve(address: &str) -> io::Result<()> {
    let listener = RdmaListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            match echo(stream).await {
                Ok(bytes) => println!("{peer}: {bytes} bytes"),
                Err(error) => eprintln!("{peer}: {error}"),
            }
        });
    }
}

async fn echo(mut stream: RdmaStream) -> io::Result<u64> {
    let (mut read, mut write) = stream.split();
    let bytes = copy(&mut read, &mut write).await?;
    write.shutdown().await?;
    Ok(bytes)
}

async fn send(address: &str, text: &str) -> io::Result<()> {
    let mut stream = RdmaStream::connect(address).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    let mut echo = String::new();
    stream.read_to_string(&mut echo).await?;
    println!("{echo}");
    Ok(())
}
